"""Planted faults: a kernel with one instruction dropped, weakened or changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from twill.emulate.ptx.syntax import Immediate, Instruction, Kernel, Memory, Operand, Register

__all__ = ["Mutant", "mutants"]

DROPPED = {
    "mbarrier.arrive.shared": "arrival dropped",
    "mbarrier.arrive.release": "arrival dropped",
    "mbarrier.arrive.expect_tx": "arrival with bytes dropped",
    "bar.sync": "barrier dropped",
    "barrier.sync": "barrier dropped",
    "bar.arrive": "barrier arrival dropped",
    "barrier.arrive": "barrier arrival dropped",
    "barrier.cluster.wait": "barrier of the cluster dropped",
    "fence.proxy.async": "proxy fence dropped",
    "wgmma.wait_group": "wgmma wait dropped",
    "wgmma.commit_group": "wgmma commit dropped",
    "cp.async.bulk.wait_group": "bulk wait dropped",
    "cp.async.bulk.commit_group": "bulk commit dropped",
    "tcgen05.commit": "tcgen05 commit dropped",
    "tcgen05.wait::st": "tcgen05 wait dropped",
    "tcgen05.wait::ld": "tcgen05 wait dropped",
}
"""Opcode prefixes of what is dropped, with the family that a report counts them in."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed kernel, what was changed and on which PTX line: ``old`` became ``new``, which may use more ``registers``."""

    family: str
    line: int
    text: str
    kernel: Kernel
    old: Instruction
    new: tuple[Instruction, ...]
    registers: dict[str, str]


def _with(kernel: Kernel, at: int, new: Sequence[Instruction], registers: dict[str, str] | None = None) -> Kernel:
    """The kernel with one instruction replaced by others."""
    code = kernel.instructions
    shift = len(new) - 1
    labels = {name: i + shift if i > at else i for name, i in kernel.labels.items()}
    return replace(
        kernel, instructions=(*code[:at], *new, *code[at + 1 :]), labels=labels, registers=kernel.registers | (registers or {})
    )  # fmt: skip


def _nothing(x: Instruction) -> Instruction:
    return Instruction("nanosleep.u32", (Immediate(0),), x.line, location=x.location)


def _shown(x: Instruction) -> str:
    names = [_name(o) for o in x.operands[:4]]
    return f"{x.opcode} {', '.join(n for n in names if n)}"


def _name(operand: Operand) -> str:
    match operand:
        case Register(name):
            return name
        case Immediate(bits):
            return str(bits)
        case Memory(base, offset):
            return f"[{_name(base) or getattr(base, 'name', '')}+{offset}]"
    return ""


def mutants(kernel: Kernel) -> Iterator[Mutant]:
    """All mutants of a kernel, in the order of its instructions."""
    for at, x in enumerate(kernel.instructions):
        for family, new, registers in _changes(x):
            yield Mutant(family, x.line, _shown(x), _with(kernel, at, new, registers), x, tuple(new), registers or {})


Change = tuple[str, Sequence[Instruction], dict[str, str] | None]


def _changes(x: Instruction) -> Iterator[Change]:
    family = next((f for prefix, f in DROPPED.items() if x.opcode.startswith(prefix)), None)
    if family is not None:
        yield family, [_nothing(x)], None
    if x.opcode.startswith("mbarrier.try_wait"):
        yield "wait dropped", [Instruction("mov.pred", (x.operands[0], Immediate(-1)), x.line, location=x.location)], None
        yield "parity flipped", _flipped(x), {"%flipped": "b32"}
    if x.opcode.startswith("mbarrier.arrive.expect_tx") and isinstance(x.operands[-1], Register | Immediate):
        yield "bytes halved", _halved(x), {"%halved": "b32"}
    if x.opcode.startswith("wgmma.wait_group") and isinstance(x.operands[0], Immediate):
        yield "wgmma wait weakened", [replace(x, operands=(Immediate(x.operands[0].bits + 1),))], None
    if x.opcode.startswith(("wgmma.mma_async", "tcgen05.mma")):
        yield from _other_operands(x)
    if x.opcode.startswith(("tcgen05.ld", "tcgen05.st")):
        yield "column shifted", [_shifted(x, 16)], None
    if x.opcode.startswith("cp.async.bulk.tensor") and ".global.tile" in x.opcode and isinstance(x.operands[0], Memory):
        yield "load to another place", [replace(x, operands=(_moved(x.operands[0], 1024), *x.operands[1:]))], None
    if x.parts[0] == "sub" and x.parts[-1] in ("f32", "f32x2") and x.operands[1] != x.operands[2]:
        yield "operands swapped", [replace(x, operands=(x.operands[0], x.operands[2], x.operands[1]))], None


def _flipped(x: Instruction) -> list[Instruction]:
    flip = Instruction("xor.b32", (Register("%flipped"), x.operands[2], Immediate(1)), x.line, location=x.location)
    return [flip, replace(x, operands=(x.operands[0], x.operands[1], Register("%flipped"), *x.operands[3:]))]


def _halved(x: Instruction) -> list[Instruction]:
    halve = Instruction("shr.u32", (Register("%halved"), x.operands[-1], Immediate(1)), x.line, location=x.location)
    return [halve, replace(x, operands=(*x.operands[:-1], Register("%halved")))]


def _moved(place: Memory, distance: int) -> Memory:
    return replace(place, offset=place.offset + distance)


def _shifted(x: Instruction, columns: int) -> Instruction:
    operands = tuple(_moved(o, columns) if isinstance(o, Memory) else o for o in x.operands)
    return replace(x, operands=operands)


def _other_operands(x: Instruction) -> Iterator[Change]:
    a, b = x.operands[1], x.operands[2]
    if isinstance(a, Register) and isinstance(b, Register):
        yield "operands swapped", [replace(x, operands=(x.operands[0], b, a, *x.operands[3:]))], None
    yield "multiplication dropped", [_nothing(x)], None
