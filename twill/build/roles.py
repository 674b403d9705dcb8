"""Roles of an emitted file, read off its text: seats with their register requests, and what each role does in a period.

`Event` is the language in which the file, the WarpProgram and the machine code are compared. Synchronization and MMAs are its
*skeleton*, which no compiler may reorder; the arithmetic between may move.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from twill.build.errors import BuildError
from twill.build.kernelfile import KernelFile

__all__ = ["ARITHMETIC", "Event", "RoleCode", "Seat", "seats"]

ARITHMETIC = {
    "row_max": ("MAX", "FMNMX"), "exp2": ("EXP", "MUFU.EX2"), "row_sum": ("SUM", "FADD"), "convert": ("CVT", "F2FP"),
    "rescale": ("RESC", "FMUL"), "rescale_if_grown": ("RESC", "FMUL"),
}  # fmt: skip
"""Tile operations that only calculate: what the schedule calls them, and the instruction that tells them in machine code."""
MMAS = {"mma_qk": "QK", "mma_pv": "PV"}
LOADS = {"load_k": "LK", "load_v": "LV"}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a role does in a period.

    ``kind`` is ``wait`` or ``arrive`` (an mbarrier, by name), ``tma`` (a load; the arrival that announces its bytes is an ``expect``
    of its barrier before it), ``mma`` (``QK`` or ``PV`` with the letter of the sub-tile), ``own`` (a wait for MMAs; the name is the
    number that may be pending), or ``op`` (anything else, as the schedule calls it where it is known here).
    """

    kind: str
    name: str

    @property
    def skeleton(self) -> bool:
        return self.kind != "op"

    @property
    def text(self) -> str:
        """As a reader of the schedule knows it."""
        if self.kind == "own":
            return f"wait own MMAs, {self.name} pending"
        return {"op": self.name, "mma": self.name, "tma": self.name}.get(self.kind, f"{self.kind} {self.name}")


@dataclass(frozen=True, slots=True)
class RoleCode:
    """A role as the file has it: its name and the events of a period in order."""

    name: str
    period: tuple[Event, ...]

    @property
    def skeleton(self) -> tuple[Event, ...]:
        return tuple(e for e in self.period if e.skeleton)


@dataclass(frozen=True, slots=True)
class Seat:
    """A warpgroup: the registers that it asks for and its roles, in the order of the file."""

    registers: int
    roles: tuple[RoleCode, ...]


def seats(kernel: KernelFile) -> tuple[Seat, ...]:
    """The warpgroups of an emitted file.

    Raises
    ------
    BuildError : its roles or register requests cannot be made out.
    """
    tree = ast.parse(kernel.text)
    functions = {x.name: x for x in tree.body if isinstance(x, ast.FunctionDef)}
    periods = {name: f for name, f in functions.items() if name.endswith("_period")}
    roles = {name: RoleCode(name, tuple(_events(kernel, periods[f"{name}_period"]))) for name in functions if f"{name}_period" in periods}
    found: list[tuple[int, list[RoleCode]]] = []
    for call in _calls(functions[_device(kernel, functions)]):
        name = _name(call.func)
        if name.startswith("setmaxregister_") and isinstance(call.args[0], ast.Constant):
            found.append((int(str(call.args[0].value)), []))
        elif name in roles and found:
            found[-1][1].append(roles[name])
    if not found or {r.name for _, rs in found for r in rs} != set(roles):
        raise BuildError(f"{kernel.path}: roles and register requests cannot be read off its kernel", "emit it with this version of twill")
    return tuple(Seat(registers, tuple(rs)) for registers, rs in found)


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
    """The suffix that an op of a sub-tile has: ``_a`` for ``tile_a``."""
    for x in call.args:
        if isinstance(x, ast.Name) and x.id.startswith("tile_"):
            return "_" + x.id.removeprefix("tile_")
    return ""


def _events(kernel: KernelFile, period: ast.FunctionDef) -> list[Event]:
    found: list[Event] = []
    for statement in period.body:
        for call in (x for x in ast.walk(statement) if isinstance(x, ast.Call)):
            if not ast.unparse(call.func).startswith("tiles."):
                continue
            name = _name(call.func)
            if name in ("wait", "arrive"):
                found.append(Event(name, _ring(call)))
            elif name == "wait_mma":
                found.append(Event("own", ast.unparse(call.args[0])))
            elif name in LOADS:
                found += [Event("expect", _ring(call)), Event("tma", LOADS[name])]
            elif name in MMAS:
                found.append(Event("mma", MMAS[name] + _letter(call)))
            elif name in ARITHMETIC:
                found.append(Event("op", ARITHMETIC[name][0] + _letter(call)))
            elif name != "pin":
                found.append(Event("op", name + _letter(call)))
    return found
