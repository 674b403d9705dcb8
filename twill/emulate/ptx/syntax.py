"""PTX as data: what the parser makes and everything after it reads."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "Immediate", "Instruction", "Kernel", "Location", "Memory", "Module", "Negated", "Operand", "Pair", "Parameter", "Register", "Sink",
    "Special", "Symbol", "Vector",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Register:
    """A register, by a name that is unique in the kernel (scopes are resolved)."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal. ``bits`` is its value as written, negative if so written; of ``0f`` and ``0d`` literals the bit pattern."""

    bits: int


@dataclass(frozen=True, slots=True)
class Special:
    """A special register such as ``%tid.x``."""

    name: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable or parameter, plus a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Negated:
    """A predicate operand written ``!p``."""

    register: Register


@dataclass(frozen=True, slots=True)
class Sink:
    """The operand ``_``: a result that is dropped."""


@dataclass(frozen=True, slots=True)
class Vector:
    """A brace-enclosed list."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``a|b``: two results."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Memory:
    """``[base+offset]``, or ``[base, {coordinates}]`` of a tensor."""

    base: Operand
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


Operand = Register | Immediate | Special | Symbol | Negated | Sink | Vector | Pair | Memory


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the source that the compiler was given. Kernels that `twill.build` compiles have in ``column`` the line of the emitted
    file whose statement asked for it, 0 if there is none."""

    file: str
    line: int
    column: int = 0


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. ``line`` counts lines of the PTX from 1; branch targets are labels that are unique in the kernel."""

    opcode: str
    operands: tuple[Operand, ...]
    line: int
    guard: Register | None = None
    guard_negated: bool = False
    location: Location | None = None
    label: str | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """The opcode split at its dots; ``::`` stays inside a part."""
        return tuple(self.opcode.split("."))


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel parameter in ``.param`` space."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """An entry. ``labels`` maps a label to the index of the instruction that follows it; ``registers`` a name to its type as declared."""

    name: str
    parameters: tuple[Parameter, ...]
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    registers: dict[str, str]
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    shared: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Static shared variables: name to (alignment, bytes). The dynamic one has 0 bytes."""


@dataclass(frozen=True, slots=True)
class Module:
    """A PTX file."""

    target: str
    version: str
    kernels: tuple[Kernel, ...]
