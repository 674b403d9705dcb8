"""Which registers an instruction reads and writes."""

from __future__ import annotations

from collections.abc import Iterator

from twill.emulate.ptx.syntax import Instruction, Memory, Negated, Operand, Pair, Register, Vector

__all__ = ["registers", "sources", "targets"]

NO_RESULT = frozenset({
    "st", "stmatrix", "bar", "barrier", "setmaxnreg", "cp", "fence", "prefetch", "red", "griddepcontrol", "discard", "nanosleep", "membar",
    "bra", "ret", "exit", "trap", "tcgen05.alloc", "tcgen05.dealloc", "tcgen05.mma", "tcgen05.st", "tcgen05.commit", "tcgen05.wait",
    "tcgen05.fence", "tcgen05.relinquish_alloc_permit", "tcgen05.cp", "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group",
    "mbarrier.init", "mbarrier.inval", "mbarrier.expect_tx", "mbarrier.complete_tx", "applypriority", "multimem",
})  # fmt: skip


def registers(operand: Operand) -> Iterator[Register]:
    """All registers in an operand, those of addresses too."""
    match operand:
        case Register():
            yield operand
        case Negated(register):
            yield register
        case Vector(items):
            for item in items:
                yield from registers(item)
        case Pair(first, second):
            yield from registers(first)
            yield from registers(second)
        case Memory(base, _, coordinates):
            yield from registers(base)
            for item in coordinates:
                yield from registers(item)
        case _:
            return


def _results(instruction: Instruction) -> int:
    """How many of the first operands are written."""
    parts = instruction.parts
    if parts[0] in NO_RESULT or ".".join(parts[:2]) in NO_RESULT:
        return 0
    if instruction.opcode.startswith("tcgen05.ld.red"):
        return 2
    return int(bool(instruction.operands) and not isinstance(instruction.operands[0], Memory))


def targets(instruction: Instruction) -> tuple[Register, ...]:
    """Registers written, in order. The accumulators of a wgmma count as written."""
    return tuple(r for operand in instruction.operands[: _results(instruction)] for r in registers(operand))


def sources(instruction: Instruction) -> tuple[Register, ...]:
    """Registers read, the guard included. The accumulators of a wgmma count as read."""
    first = _results(instruction) if instruction.parts[0] != "wgmma" else 0
    found = [r for operand in instruction.operands[first:] for r in registers(operand)]
    if instruction.guard is not None:
        found.append(instruction.guard)
    return tuple(found)
