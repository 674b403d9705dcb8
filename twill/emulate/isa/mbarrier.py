"""mbarrier objects. PTX ISA 9.7.13.15."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from twill.emulate.isa.emitter import Emitter
from twill.emulate.isa.memory import address_of
from twill.emulate.isa.registry import rule, runtime
from twill.emulate.machine.barriers import MBarrier
from twill.emulate.machine.block import RESERVED, WINDOW
from twill.emulate.ptx.syntax import Instruction, Memory, Operand, Pair, Register

if TYPE_CHECKING:
    from twill.emulate.machine.block import Block
    from twill.emulate.machine.warp import Warp

__all__ = ["complete_bytes", "lookup"]

PATIENCE = 1000
SHARED = r"(\.shared(::cta|::cluster)?)"
ORDER = r"(\.(release|relaxed|acquire))?(\.(cta|cluster))?"


@rule(rf"mbarrier\.init{SHARED}?\.b64")
def _init(e: Emitter, x: Instruction) -> None:
    e.line(f"mbarrier_init(w, {x.line}, {address_of(e, x.operands[0], False)}, {e.get(x.operands[1], 'u32')}, {e.mask})")


@rule(rf"mbarrier\.inval{SHARED}?\.b64")
def _inval(e: Emitter, x: Instruction) -> None:
    e.line(f"mbarrier_inval(w, {x.line}, {address_of(e, x.operands[0], False)})")


def _split(x: Instruction) -> tuple[Operand | None, tuple[Operand, ...]]:
    if isinstance(x.operands[0], Memory):
        return None, x.operands
    return x.operands[0], x.operands[1:]


@rule(rf"mbarrier\.arrive{ORDER}{SHARED}?\.b64", rf"mbarrier\.arrive\.noComplete{ORDER}{SHARED}?\.b64")
def _arrive(e: Emitter, x: Instruction) -> None:
    state, rest = _split(x)
    count = str(e.get(rest[1], "u32")) if len(rest) > 1 else "1"
    e.line(f"mbarrier_arrive(w, {x.line}, {address_of(e, rest[0], False)}, {count}, 0, {e.mask})")
    if isinstance(state, Register):
        e.put(state, "0", "b64", True)


@rule(rf"mbarrier\.arrive\.expect_tx{ORDER}{SHARED}?\.b64")
def _arrive_expect(e: Emitter, x: Instruction) -> None:
    state, rest = _split(x)
    e.line(f"mbarrier_arrive(w, {x.line}, {address_of(e, rest[0], False)}, 1, {e.get(rest[1], 'u32')}, {e.mask})")
    if isinstance(state, Register):
        e.put(state, "0", "b64", True)


@rule(rf"mbarrier\.expect_tx{ORDER}{SHARED}?\.b64")
def _expect(e: Emitter, x: Instruction) -> None:
    e.line(f"mbarrier_arrive(w, {x.line}, {address_of(e, x.operands[0], False)}, 0, {e.get(x.operands[1], 'u32')}, {e.mask})")


@rule(rf"mbarrier\.try_wait\.parity{ORDER}{SHARED}?\.b64", waits=True)
def _try_wait(e: Emitter, x: Instruction) -> None:
    """In a loop that only waits, waits; else gives the present state, as a wait whose time is over does."""
    assert not isinstance(x.operands[0], Pair)
    got = e.name()
    e.line(f"{got} = mbarrier_try_wait(w, {x.line}, {address_of(e, x.operands[1], False)}, {e.get(x.operands[2], 'u32')}, {e.spins})")
    e.line(f"if {got} is None: return -2")
    e.put(x.operands[0], got, "pred", True)


@rule(rf"mbarrier\.test_wait\.parity{ORDER}{SHARED}?\.b64")
def _test_wait(e: Emitter, x: Instruction) -> None:
    got = e.name()
    e.line(f"{got} = mbarrier_try_wait(w, {x.line}, {address_of(e, x.operands[1], False)}, {e.get(x.operands[2], 'u32')}, False)")
    e.put(x.operands[0], got, "pred", True)


def _one(w: Warp, line: int, address: Any, mask: Any) -> list[tuple[int, int]]:
    """Addresses with the number of lanes that name each."""
    if isinstance(address, np.ndarray):
        chosen = address if mask is None else address[mask]
        values, counts = np.unique(chosen, return_counts=True)
        return [(int(v), int(n)) for v, n in zip(values, counts, strict=True)]
    return [(int(address), 32 if mask is None else int(mask.sum()))]


def _one_value(value: Any) -> int:
    return int(value.flat[0]) if isinstance(value, np.ndarray) else int(value)


def lookup(w: Warp, line: int, address: int) -> tuple[Block, MBarrier] | None:
    """The barrier at an address of this block or another one of the cluster; None after a finding."""
    block = w.block.cluster.block_of(address)
    if block is None or (block is not w.block and not block.running):
        w.find("barrier", line, f"uses a barrier at {address:#x} of a block that has ended or never was", key="ended")
        return None
    found = block.barrier(address)
    if found is None:
        name = w.block.cluster.names.barrier((address & ((1 << WINDOW) - 1)) - RESERVED)
        w.find("barrier", line, f"uses {name}, which is not initialised", key="not initialised")
        return None
    component, time = found.made
    if component != w.component and time > w.clock[0, component]:
        name = w.block.cluster.names.barrier(found.address - RESERVED)
        w.find("race", line, f"uses {name}, whose initialisation nothing orders before", key="initialisation")
    return block, found


def complain(w: Warp, line: int, barrier: MBarrier, trouble: str | None) -> None:
    """Report what a barrier says is wrong."""
    if trouble is None:
        return
    name = w.block.cluster.names.barrier(barrier.address - RESERVED)
    if trouble.startswith("overrun:"):
        who = trouble.partition(":")[2]
        w.find("phase overrun", line, f"{name} ends another phase while {who} has not yet seen the last one", key=name)
    else:
        w.find("barrier", line, f"{name}: {trouble} ({barrier})", key=name)


@runtime
def mbarrier_init(w: Warp, line: int, address: Any, count: int, mask: Any) -> None:
    """Make a barrier; 8 bytes, aligned to 8."""
    for at, _ in _one(w, line, address, mask):
        offset = at & ((1 << WINDOW) - 1)
        if offset % 8 or w.block.in_shared(at, 8) is None:
            w.find("out of bounds", line, f"initialises a barrier at {offset - RESERVED}")
            continue
        amount = _one_value(count)
        if not 1 <= amount < 1 << 20:
            w.find("barrier", line, f"initialises a barrier with {amount} arrivals")
        made = MBarrier(address=offset, expected=amount, pending=amount)
        made.made = (w.component, int(w.clock[0, w.component]))
        old = w.block.barriers.get(offset)
        if old is not None and old.waiting:
            w.find("barrier", line, "initialises a barrier that a warp waits for", key="waiting")
        w.block.barriers[offset] = made
        w.block.unfenced[offset] = made


@runtime
def mbarrier_inval(w: Warp, line: int, address: Any) -> None:
    found = lookup(w, line, int(address))
    if found is not None:
        found[0].barriers.pop(found[1].address, None)


@runtime
def mbarrier_arrive(w: Warp, line: int, address: Any, count: int, announced: int, mask: Any) -> None:
    """Each active lane arrives ``count`` times and announces bytes."""
    clock = None
    for at, lanes in _one(w, line, address, mask):
        found = lookup(w, line, at)
        if found is None:
            continue
        clock = w.release() if clock is None else clock
        complain(w, line, found[1], found[1].arrive(_one_value(count) * lanes, _one_value(announced) * lanes, clock, line))


@runtime
def mbarrier_try_wait(w: Warp, line: int, address: Any, parity: Any, spins: bool) -> bool | None:
    """True once the phase of this parity is over, None if the warp has to wait."""
    if isinstance(address, np.ndarray):
        values = set(address.tolist())
        if len(values) > 1:
            w.find("barrier", line, "lanes of one warp wait for different barriers")
        address = values.pop()
    parity = _one_value(parity)
    found = lookup(w, line, int(address))
    if found is None:
        return True
    barrier = found[1]
    barrier.waited = True
    if not barrier.passed(int(parity)):
        if not spins and not _polls(w, line, barrier):
            return False
        barrier.waiting.setdefault(w.name, barrier.phase)
        name = w.block.cluster.names.barrier(barrier.address - RESERVED)
        w.wait(barrier, f"PTX line {line}: waits for parity {int(parity) & 1} of {name}: {barrier}")
        return None
    if not spins and w.block.cluster.scheduler.fails(w.peeked == (barrier.address, barrier.phase)):
        w.peeked = (barrier.address, barrier.phase)
        return False
    barrier.waiting.pop(w.name, None)
    w.acquire(barrier.done, line)
    return True


def _polls(w: Warp, line: int, barrier: MBarrier) -> bool:
    """True if a warp has tried in vain so often that it must be a loop which only waits, written in some other way."""
    key = (line, barrier.address, barrier.version)
    w.tries = w.tries + 1 if w.tried == key else 0
    w.tried = key
    return w.tries > PATIENCE


def complete_bytes(w: Warp, line: int, address: int, count: int, clock: Any) -> None:
    """Bytes of an asynchronous copy arrive at a barrier."""
    block = w.block.cluster.block_of(address)
    if block is None or not block.running:
        w.find("barrier", line, "bytes arrive at a barrier of a block that has ended", key="ended")
        return
    barrier = block.barrier(address)
    if barrier is None:
        name = w.block.cluster.names.barrier((address & ((1 << WINDOW) - 1)) - RESERVED)
        w.find("barrier", line, f"bytes arrive at {name}, which is not initialised", key="not initialised")
        return
    complain(w, line, barrier, barrier.complete(count, clock))
