"""Machine code as text (what ``nvdisasm -c`` prints, with or without ``-gp``), read into instructions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from twill.build.errors import BuildError

__all__ = ["Function", "Instruction", "parse"]

SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
LABEL = re.compile(r"^(\.L_[\w.]+):")
LINE = re.compile(r'^\s*//## File "\.nv_debug_ptx_txt[^"]*", line (\d+)')
CODE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][A-Za-z0-9_.]*)\s*([^;]*?)\s*;")
TARGET = re.compile(r"`\((\.L_[\w.]+)\)")
LISTED = re.compile(r"\.L_[\w.]+")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. ``line`` is the line of PTX that it was made from, where the code says so."""

    address: int
    predicate: str
    opcode: str
    operands: str
    line: int | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        """Labels that a branch may go to: one, or for a jump through a table all that the listing names."""
        if self.is_a("BRX", "JMX"):
            return tuple(LISTED.findall(self.operands.partition("BRANCH_TARGETS")[2]))
        return tuple(TARGET.findall(self.operands)) if self.is_a("BRA") else ()

    def is_a(self, *prefixes: str) -> bool:
        """Whether the opcode is one of these or a form of it: ``HGMMA.64x128x16`` is an ``HGMMA``."""
        return any(self.opcode == p or self.opcode.startswith(p + ".") for p in prefixes)


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel: its instructions in the order of addresses, and the index that each label points to."""

    name: str
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]


def parse(text: str) -> tuple[Function, ...]:
    """All functions of a listing.

    Raises
    ------
    BuildError : no instruction in it, or a branch to a label that it lacks.
    """
    functions: list[Function] = []
    name, line = "", None
    code: list[Instruction] = []
    labels: dict[str, int] = {}

    def close() -> None:
        if code:
            functions.append(_checked(Function(name, tuple(code), dict(labels))))
            code.clear()
        labels.clear()

    for row in text.splitlines():
        if found := SECTION.match(row):
            close()
            name, line = found.group(1), None
        elif found := LINE.match(row):
            line = int(found.group(1))
        elif found := LABEL.match(row):
            labels[found.group(1)] = len(code)
        elif found := CODE.match(row):
            address, predicate, opcode, operands = found.groups()
            code.append(Instruction(int(address, 16), predicate or "", opcode, operands, line))
    close()
    if not functions:
        raise BuildError("the listing holds no machine code", "disassemble a cubin with `nvdisasm -c`")
    return tuple(functions)


def _checked(function: Function) -> Function:
    for x in function.instructions:
        for target in x.targets:
            if target not in function.labels:
                text = f"{function.name}: the branch at {x.address:#x} goes to {target}, which the listing lacks"
                raise BuildError(text, "disassemble the whole function")
    return function
