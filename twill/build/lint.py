"""What machine code must not do, whatever the schedule: spill, lose a register request, or wait after every MMA.

Needs no more than a cubin, its PTX and the requests that the kernel's file makes; order is judged in `twill.build.order`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from twill.build.errors import LintError, Problem
from twill.build.kernelfile import KernelFile
from twill.build.ptx import Ptx, read_ptx
from twill.build.roles import seats, turning
from twill.build.sass import Function, parse
from twill.build.tools import Resources, disassembled, resources

__all__ = ["Wanted", "found_in", "lint", "refuse", "register_requests", "requests", "wanted_by"]

FEWER_REGISTERS = "take smaller tiles, fewer copies or fewer warps (`twill solve --tile, --max-copies, --subtiles`), and emit it again"
NOT_ROUND = "take a schedule in which each of these roles has a moment without running MMAs (`twill solve --top`), and emit it"
REPORT_THIS = "report this with the kernel's file"


def requests(kernel: KernelFile) -> tuple[int, ...]:
    """Register counts that the roles of an emitted file ask for, in order."""
    calls = [x for x in ast.walk(ast.parse(kernel.text)) if isinstance(x, ast.Call) and "setmaxregister_" in ast.unparse(x.func)]
    calls.sort(key=lambda x: x.lineno)
    return tuple(int(str(x.args[0].value)) for x in calls if x.args and isinstance(x.args[0], ast.Constant))


def register_requests(function: Function) -> tuple[int, ...]:
    """Register counts that machine code asks for."""
    return tuple(int(x.operands.split(",")[-1], 0) for x in function.instructions if x.is_a("USETMAXREG"))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an emitted file asks for: registers by role, in order, and `twill.build.roles.turning`; of the kernel called ``name``.

    Kernels that a library adds before or after it have no roles. Without a name any kernel is meant.
    """

    registers: tuple[int, ...]
    turning: tuple[str, ...] = ()
    name: str = ""


def wanted_by(kernel: KernelFile) -> Wanted:
    """What a file asks for.

    Raises
    ------
    BuildError : as `twill.build.roles.seats`.
    """
    return Wanted(requests(kernel), turning(seats(kernel)), kernel.prefix)


def lint(function: Function, used: Resources, ptx: Ptx, wanted: Wanted) -> tuple[Problem, ...]:
    """What is wrong with the machine code of a kernel."""
    if not function.name.startswith(wanted.name):
        return tuple(_spills(function, used))
    return (
        *_spills(function, used), *_dropped(function, ptx, wanted.registers),
        *(_serialised(function, ptx, wanted.turning) or _unwaited(function, ptx)),
    )  # fmt: skip


def _spills(function: Function, used: Resources) -> list[Problem]:
    local = sum(x.is_a("LDL", "STL") for x in function.instructions)
    if not (used.stack_bytes or used.local_bytes or local):
        return []
    text = (
        f"{function.name} spills: {used.stack_bytes} bytes of stack, {used.local_bytes} of local memory, {local} local loads and stores "
        f"at {used.registers} registers a thread"
    )
    return [Problem("spills", text, FEWER_REGISTERS)]


def _dropped(function: Function, ptx: Ptx, wanted: Sequence[int]) -> list[Problem]:
    found = register_requests(function)
    lost = list((Counter(wanted) - Counter(found)).elements())
    if not lost:
        return []
    by = "the assembler" if not Counter(wanted) - Counter(ptx.setmaxnreg) else "the compiler"
    text = f"{function.name}: {by} dropped setmaxnreg {_list(lost)} (asked for: {_list(wanted)}; in the machine code: {_list(found)})"
    return [Problem("registers", text, FEWER_REGISTERS)]


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def _serialised(function: Function, ptx: Ptx, turns: Sequence[str]) -> list[Problem]:
    """The assembler ends as many groups as were committed, unless it must end one, and wait, after every MMA.

    It must for all MMAs of a kernel if registers are short, or if any runs on when a loop turns.
    """
    mmas = [x for x in function.instructions if x.is_a("HGMMA", "QGMMA", "IGMMA", "BGMMA")]
    groups = sum("gsb0" in x.operands for x in mmas)
    if groups == len(ptx.groups):
        return []
    if groups > len(ptx.groups):
        text = (
            f"{function.name}: wgmma is serialised: {groups} of {len(mmas)} MMAs end a group, where {len(ptx.groups)} groups were written"
        )
        if turns:
            return [Problem("serialised", f"{text}; MMAs of {', '.join(turns)} run on when the loop turns", NOT_ROUND)]
        return [Problem("serialised", text, FEWER_REGISTERS)]
    return [
        Problem("order", f"{function.name}: {len(ptx.groups)} groups of wgmma were written, {groups} are in the machine code", REPORT_THIS)
    ]


def _unwaited(function: Function, ptx: Ptx) -> list[Problem]:
    """Every wait for groups of wgmma is in the machine code, at least as often as it was written."""
    pending = [int(x.operands.split(",")[-1], 0) for x in function.instructions if x.is_a("WARPGROUP.DEPBAR")]
    lost = sorted((Counter(ptx.waits) - Counter(pending)).elements())
    if not lost:
        return []
    text = f"{function.name}: waits for wgmma with {_list(lost)} pending were written and are not in the machine code"
    return [Problem("order", text, REPORT_THIS)]


def found_in(cubin: Path, ptx_text: str, wanted: Wanted) -> tuple[Problem, ...]:
    """`lint` for the kernels of a cubin."""
    ptx, used = read_ptx(ptx_text), resources(cubin)
    return tuple(problem for f in parse(disassembled(cubin)) for problem in lint(f, used[f.name], ptx, wanted))


def refuse(what: str, problems: Sequence[Problem]) -> None:
    """Raise if there is anything in ``problems``.

    Raises
    ------
    LintError : with the first as message, and how many more there are.
    """
    if problems:
        more = f" (and {len(problems) - 1} more, see `twill build`)" if len(problems) > 1 else ""
        raise LintError(f"{what}: {problems[0].text}{more}", problems[0].step)
