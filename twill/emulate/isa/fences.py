"""Fences and register reallocation. PTX ISA 9.7.13.4 (fence, proxies), 9.7.19.5 (setmaxnreg)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from twill.emulate.isa.emitter import Emitter
from twill.emulate.isa.registry import rule, runtime
from twill.emulate.ptx.syntax import Immediate, Instruction

if TYPE_CHECKING:
    from twill.emulate.machine.warp import Warp

__all__: list[str] = []


@rule(r"fence\.proxy\.async(\.(shared::cta|shared::cluster|global))?")
def _proxy(e: Emitter, x: Instruction) -> None:
    e.line("proxy_fence(w)")


@rule(r"fence\.mbarrier_init\.release\.cluster")
def _initialised(e: Emitter, x: Instruction) -> None:
    e.line("initialisation_fence(w)")


@rule(
    r"fence(\.(sc|acq_rel|acquire|release))?\.(cta|cluster|gpu|sys)", r"membar\.(cta|gl|sys)", r"fence\.proxy\.(alias|tensormap::generic.*)"
)
def _memory(e: Emitter, x: Instruction) -> None:
    """Scopes are not modelled: memory is sequentially consistent here, and only barriers order it in the eyes of the race detector."""


@rule(r"setmaxnreg\.(inc|dec)\.sync\.aligned\.u32", waits=True)
def _registers(e: Emitter, x: Instruction) -> None:
    amount = x.operands[0]
    assert isinstance(amount, Immediate)
    e.line(f"if not set_registers(w, {x.line}, {amount.bits}, {x.parts[1] == 'inc'}): return -2")


@runtime
def proxy_fence(w: Warp) -> None:
    """All that this warp knows to have happened is visible to the asynchronous proxy from now on."""
    np.maximum(w.clock[1], w.clock[0], out=w.clock[1])
    w.clock[0, w.component] += 1


@runtime
def initialisation_fence(w: Warp) -> None:
    for barrier in w.block.unfenced.values():
        barrier.fenced = True
    w.block.unfenced.clear()


@runtime
def set_registers(w: Warp, line: int, amount: int, more: bool) -> bool:
    """Give registers back, or wait until the block has enough free ones."""
    block = w.block
    if amount % 8 or not 24 <= amount <= 256:
        w.find("registers", line, f"setmaxnreg asks for {amount}; it must be a multiple of 8 from 24 to 256")
    needed = 32 * (amount - w.registers)
    if more and amount < w.registers:
        w.find("registers", line, f"setmaxnreg.inc to {amount} from {w.registers}", key="direction")
    if not more and amount > w.registers:
        w.find("registers", line, f"setmaxnreg.dec to {amount} from {w.registers}", key="direction")
    if more and needed > block.free_registers:
        w.wait(block.register_pool, f"PTX line {line}: waits for {needed} registers; {block.free_registers} are free")
        return False
    block.free_registers -= needed
    w.registers = amount
    block.register_pool.version += 1
    return True
