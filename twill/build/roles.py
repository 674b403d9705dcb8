"""Roles of an emitted file, read off its text: seats with their register requests, and what each role does in a period.

`Event` is the language in which the file, the WarpProgram and the machine code are compared. Synchronization and MMAs are its
*skeleton*, which no compiler may reorder; the arithmetic between may move.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from twill.build.errors import BuildError
from twill.build.kernelfile import KernelFile

__all__ = ["ARITHMETIC", "LOADS", "MMAS", "Event", "RoleCode", "Seat", "first_warps", "seats", "turning"]

ARITHMETIC = {
    "row_max": ("MAX", "FMNMX"), "exp2": ("EXP", "MUFU.EX2"), "row_sum": ("SUM", "FADD"), "convert": ("CVT", "F2FP"),
    "exp2_ahead": ("EXP", "MUFU.EX2"), "row_max_behind": ("MAX", "FMNMX"),
    "rescale": ("RESC", "FMUL"), "rescale_if_grown": ("RESC", "FMUL"),
}  # fmt: skip
"""Tile operations that only calculate: what the schedule calls them, and the instruction that tells them in machine code."""
BESIDE = ("advance", "commit", "peek", "pin", "read_dpsum", "read_lse", "settle")
"""Tile operations that a schedule does not have: counting on, looking ahead, holding a place; or that it has as part of an MMA."""
FRAGMENT = re.compile(r"(?:tile|scores|dv|dk|dq)(_[a-h])")
"""What holds registers of a sub-tile or of a part."""
MMAS = {"mma_qk": "QK", "mma_pv": "PV", "mma_dp": "DP", "mma_dv": "DV", "mma_dk": "DK", "mma_dq": "DQ"}
LOADS = {"load_k": "LK", "load_v": "LV", "load_q": "LQ", "load_do": "LDO"}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a role does in a period.

    ``kind`` is ``wait`` or ``arrive`` (an mbarrier, by name), ``bar`` (a named barrier), ``tma`` (a load; the arrival that announces its
    bytes is an ``expect`` of its barrier before it), ``mma`` (``QK`` or ``PV`` with the letter of the sub-tile), ``own`` (a wait for
    MMAs; the name is the number that may be pending), or ``op`` (anything else, as the schedule calls it where it is known here).
    """

    kind: str
    name: str

    @property
    def skeleton(self) -> bool:
        return self.kind != "op"

    @property
    def bare(self) -> Event:
        """The event without the letter of its sub-tile, which code that serves several does not have."""
        return replace(self, name=self.name.partition("_")[0]) if self.kind in ("mma", "op") else self

    @property
    def text(self) -> str:
        """As a reader of the schedule knows it."""
        if self.kind == "own":
            return f"wait own MMAs, {self.name} pending"
        return {"op": self.name, "mma": self.name, "tma": self.name}.get(self.kind, f"{self.kind} {self.name}")


@dataclass(frozen=True, slots=True)
class RoleCode:
    """Code of roles that do the same: the function that they share, the roles of the schedule, and the events of a period in order.

    ``passed`` are the events of an iteration that is passed over, for roles that do such a thing.
    """

    name: str
    roles: tuple[str, ...]
    period: tuple[Event, ...]
    passed: tuple[Event, ...] = ()

    @property
    def skeleton(self) -> tuple[Event, ...]:
        return tuple(e for e in self.period if e.skeleton)


@dataclass(frozen=True, slots=True)
class Seat:
    """Warps that ask for registers together: how many, and their code in the order of the file.

    ``frame`` names functions beside the schedule's roles, such as the one that shares out work tiles.
    """

    registers: int
    roles: tuple[RoleCode, ...]
    frame: tuple[str, ...] = ()


def seats(kernel: KernelFile) -> tuple[Seat, ...]:
    """The warps of an emitted file, by the register requests that they make.

    Raises
    ------
    BuildError : its roles or register requests cannot be made out.
    """
    hint = "emit it with this version of twill"
    tree = ast.parse(kernel.text)
    functions = {x.name: x for x in tree.body if isinstance(x, ast.FunctionDef)}
    serves: dict[str, list[str]] = {}
    for role, function in _served(tree).items():
        serves.setdefault(function, []).append(role)
    if not serves or any(f"{name}_period" not in functions for name in serves):
        raise BuildError(f"{kernel.path} does not say which of its functions serves which role", hint)
    codes = {
        name: RoleCode(name, tuple(roles), tuple(_events(functions[f"{name}_period"])), _passed(functions.get(f"{name}_skip")))
        for name, roles in serves.items()
    }
    found: list[tuple[int, list[str]]] = []
    for call in _calls(functions[_device(kernel, functions)]):
        name = _name(call.func)
        if name.startswith("setmaxregister_") and isinstance(call.args[0], ast.Constant):
            found.append((int(str(call.args[0].value)), []))
        elif name in functions and found:
            found[-1][1].append(name)
    if {name for _, called in found for name in called if name in codes} != set(codes):
        raise BuildError(f"{kernel.path}: roles and register requests cannot be read off its kernel", hint)
    return tuple(
        Seat(registers, tuple(codes[x] for x in called if x in codes), tuple(x for x in called if x not in codes))
        for registers, called in found
    )


def _passed(skip: ast.FunctionDef | None) -> tuple[Event, ...]:
    return () if skip is None else tuple(_events(skip))


def first_warps(kernel: KernelFile) -> dict[str, int]:
    """The first warp of each role of the schedule."""
    return {role: warp for role, (_, warp) in _table(ast.parse(kernel.text)).items()}


def _served(tree: ast.Module) -> dict[str, str]:
    """The function of each role."""
    return {role: function for role, (function, _) in _table(tree).items()}


def _table(tree: ast.Module) -> dict[str, tuple[str, int]]:
    """The file's table of roles: function and first warp of each."""
    for x in tree.body:
        if isinstance(x, ast.Assign) and [ast.unparse(t) for t in x.targets] == ["ROLES"]:
            table: dict[str, tuple[str, int]] = ast.literal_eval(x.value)
            return table
    return {}


def turning(places: Sequence[Seat]) -> tuple[str, ...]:
    """Roles that have MMAs running when their loop turns. The assembler does not carry accumulators of running MMAs round a loop."""
    return tuple(name for seat in places for code in seat.roles if _running(code.period) for name in code.roles)


def _running(period: Sequence[Event]) -> int:
    """MMAs that run when a period ends, one having gone before."""
    running = 0
    for event in (*period, *period):
        if event.kind == "mma":
            running += 1
        elif event.kind == "own":
            running = min(running, int(event.name))
    return running


def _device(kernel: KernelFile, functions: dict[str, ast.FunctionDef]) -> str:
    for name, f in functions.items():
        if any(ast.unparse(d) == "cute.kernel" for d in f.decorator_list):
            return name
    raise BuildError(f"{kernel.path} has no function that is a kernel", "write the file with `twill emit SCHEDULE -o FILE.py`")


def _calls(function: ast.FunctionDef) -> list[ast.Call]:
    """Calls in the order in which the text has them."""
    found = [x for x in ast.walk(function) if isinstance(x, ast.Call)]
    return sorted(found, key=lambda x: (x.lineno, x.col_offset))


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _ring(call: ast.Call) -> str:
    """The barrier that a call names: ``ring["K_full"]`` anywhere in its arguments."""
    for x in ast.walk(call):
        if isinstance(x, ast.Subscript) and isinstance(x.slice, ast.Constant):
            return str(x.slice.value)
    return ""


def _letter(call: ast.Call) -> str:
    """The suffix that an op of a sub-tile has: ``_a`` for ``tile_a`` or ``scores_a``, none where a role has one sub-tile."""
    for x in call.args:
        if isinstance(x, ast.Name) and (found := FRAGMENT.fullmatch(x.id)):
            return found.group(1)
    return ""


def _events(period: ast.FunctionDef) -> list[Event]:
    found: list[Event] = []
    for statement in period.body:
        for call in (x for x in ast.walk(statement) if isinstance(x, ast.Call)):
            if not ast.unparse(call.func).startswith("tiles."):
                continue
            name = _name(call.func)
            if name in ("wait", "wait_peeked", "arrive"):
                found.append(Event(name.partition("_")[0], _ring(call)))
            elif name in ("arrive_named", "meet"):
                found.append(Event("bar", _ring(call)))
            elif name == "wait_mma":
                found.append(Event("own", ast.unparse(call.args[0])))
            elif name in LOADS:
                found += [Event("expect", _ring(call)), Event("tma", LOADS[name])]
            elif name in MMAS:
                found.append(Event("mma", MMAS[name] + _letter(call)))
            elif name in ARITHMETIC:
                found.append(Event("op", ARITHMETIC[name][0] + _letter(call)))
            elif name == "reductions_read":
                found.append(Event("wait", f"dQ{_letter(call)}_empty"))
            elif name == "reduce_add":
                found.append(Event("op", name))
            elif name not in BESIDE:
                found.append(Event("op", name + _letter(call)))
    return found
