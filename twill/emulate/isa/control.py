"""Jumps and the end of a thread. PTX ISA 9.7.12. The compiler of segments writes the jumps; here they only are known."""

from __future__ import annotations

from twill.emulate.isa.emitter import Emitter
from twill.emulate.isa.registry import rule
from twill.emulate.ptx.syntax import Instruction

__all__: list[str] = []


@rule(r"bra(\.uni)?", r"ret(\.uni)?", r"exit")
def _jump(e: Emitter, x: Instruction) -> None:
    raise AssertionError(f"{x.opcode} inside of a segment")


@rule(r"trap")
def _trap(e: Emitter, x: Instruction) -> None:
    e.line(f"w.trap({x.line})")


@rule(r"nanosleep\.u32", r"prefetch\.tensormap", r"prefetch(\.global)?\.L[12](::\w+)?", r"griddepcontrol\.(wait|launch_dependents)")
def _hint(e: Emitter, x: Instruction) -> None:
    """No effect on values: kernels run one after the other here, so dependent launches have nothing to wait for."""
