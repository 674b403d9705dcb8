"""The table of opcodes. A rule owns a full opcode, modifiers and all; what no rule owns is refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from twill.emulate.errors import EmulationError
from twill.emulate.isa.emitter import Emitter
from twill.emulate.ptx.syntax import Instruction, Kernel

__all__ = ["FAMILIES", "RUNTIME", "blocking", "converging", "find", "has_effect", "launching", "refuse_unknown", "rule", "runtime"]

FAMILIES = (
    "alu", "compare", "convert", "floating", "control", "memory", "lanes", "mbarrier", "named_barrier", "fences", "tma", "bulk", "copies",
    "wgmma", "tcgen05", "cluster",
)  # fmt: skip
"""Modules of this package, one a family of instructions."""

Rule = Callable[[Emitter, Instruction], None]


class _Entry:
    def __init__(self, pattern: str, body: Rule, waits: bool, converges: bool) -> None:
        self.pattern, self.body, self.waits, self.converges = re.compile(pattern), body, waits, converges


_TABLE: list[_Entry] = []

RUNTIME: dict[str, Any] = {}
"""What generated code may call, by name."""

F = TypeVar("F", bound=Callable[..., Any])


def runtime(function: F) -> F:
    """Let generated code call a function."""
    RUNTIME[function.__name__] = function
    return function


def rule(*patterns: str, waits: bool = False, converges: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule for opcodes that match a pattern as a whole.

    ``waits``: the instruction may have to wait, so that a segment must begin with it. ``converges``: it is for all lanes together.
    """

    def add(body: Rule) -> Rule:
        _TABLE.extend(_Entry(p, body, waits, converges) for p in patterns)
        return body

    return add


@cache
def _loaded() -> list[_Entry]:
    for family in FAMILIES:
        import_module(f"twill.emulate.isa.{family}")
    return _TABLE


@cache
def _entry(opcode: str) -> _Entry | None:
    return next((e for e in _loaded() if e.pattern.fullmatch(opcode)), None)


def find(x: Instruction) -> Rule:
    """The rule of an instruction.

    Raises
    ------
    EmulationError : no rule knows the opcode with these modifiers.
    """
    found = _entry(x.opcode)
    if found is None:
        raise EmulationError(
            f"PTX line {x.line}: {x.opcode} is not known to the emulator", f"add a rule to twill/emulate/isa ({', '.join(FAMILIES)})"
        )
    return found.body


def blocking(x: Instruction) -> bool:
    """True if the instruction may have to wait for something."""
    found = _entry(x.opcode)
    return found is not None and found.waits


def has_effect(x: Instruction) -> bool:
    """True if other warps may notice the instruction: a good place to let them run."""
    return x.parts[0] in ("mbarrier", "bar", "barrier", "cp", "wgmma", "tcgen05", "setmaxnreg", "fence", "st", "red", "atom")


def launching(x: Instruction) -> bool:
    """True if the instruction puts in flight what others wait for."""
    if x.parts[0] == "cp":
        return not {"commit_group", "wait_group", "wait_all"} & set(x.parts)
    return x.parts[0] in ("wgmma", "tcgen05") and x.parts[1] in ("mma_async", "mma", "commit")


def converging(x: Instruction) -> bool:
    """True if the instruction needs the other lanes of the warp."""
    found = _entry(x.opcode)
    return found is not None and found.converges


def refuse_unknown(kernel: Kernel) -> None:
    """Name every opcode of a kernel that no rule knows.

    Raises
    ------
    EmulationError : there is one.
    """
    unknown = {x.opcode: x.line for x in reversed(kernel.instructions) if _entry(x.opcode) is None}
    if unknown:
        listed = ", ".join(f"{opcode} (line {line})" for opcode, line in sorted(unknown.items()))
        raise EmulationError(f"{kernel.name}: opcodes not known to the emulator: {listed}", "add rules to twill/emulate/isa")
