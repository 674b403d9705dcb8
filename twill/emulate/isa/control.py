"""Jumps and the end of a thread. PTX ISA 9.7.12. The compiler of segments writes the jumps; here they only are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twill.emulate.isa.emitter import Emitter
from twill.emulate.isa.registry import rule, runtime
from twill.emulate.ptx.syntax import Immediate, Instruction

if TYPE_CHECKING:
    from twill.emulate.machine.warp import Warp

__all__: list[str] = []


@rule(r"bra(\.uni)?", r"ret(\.uni)?", r"exit")
def _jump(e: Emitter, x: Instruction) -> None:
    raise AssertionError(f"{x.opcode} inside of a segment")


@rule(r"trap")
def _trap(e: Emitter, x: Instruction) -> None:
    e.line(f"w.trap({x.line})")


@rule(r"nanosleep\.u32", waits=True)
def _sleep(e: Emitter, x: Instruction) -> None:
    time = x.operands[0]
    if not (isinstance(time, Immediate) and time.bits == 0):
        e.line(f"if not sleep_on_words(w, {x.line}): return -2")


@runtime
def sleep_on_words(w: Warp, line: int) -> bool:
    """Between two looks at words in memory: until some word has been changed since the first of them, however long that takes."""
    activity = w.block.cluster.activity
    if w.looked is not None and w.looked == activity.version:
        w.wait(activity, f"PTX line {line}: sleeps until a word that it has looked at may have changed")
        return False
    w.looked = None
    return True


@rule(r"prefetch\.tensormap", r"prefetch(\.global)?\.L[12](::\w+)?", r"griddepcontrol\.(wait|launch_dependents)")
def _hint(e: Emitter, x: Instruction) -> None:
    """No effect on values: kernels run one after the other here, so dependent launches have nothing to wait for."""
