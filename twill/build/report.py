"""`reported`: everything that `twill build` says about a compiled kernel, as data."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from twill.build.compiler import Compiled
from twill.build.errors import BuildError, Problem
from twill.build.families import counted
from twill.build.flow import Flow, Loop
from twill.build.issue import SubPartition, issue_slots
from twill.build.lint import FEWER_REGISTERS, REPORT_THIS, lint, register_requests, wanted_by
from twill.build.order import Move, Placed, compared, moves, placed, shape, strays
from twill.build.ptx import Ptx, read_ptx
from twill.build.roles import ARITHMETIC, Event, RoleCode, Seat, first_warps, seats
from twill.build.sass import Function, Instruction, parse
from twill.build.tools import Resources, disassembled, resources

__all__ = ["Counts", "LoopReport", "Report", "Turn", "counts", "differences", "examined", "reported", "turns"]


LOOK = "look at the loop (`nvdisasm -c` of the cubin that -o keeps); `tiles.pin` in front of what moved holds its place"


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a loop of machine code: instructions of the shortest and the longest way round, and of each family on either way.

    ``registers`` is what the warps that run it asked for by setmaxnreg, None if they did not.
    """

    address: int
    registers: int | None
    shortest: int
    longest: int
    families: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class LoopReport:
    """A loop of a role: what a turn takes, where each event of the period is (empty if the order is wrong), and what moved."""

    role: str
    turn: Turn
    period: tuple[Placed, ...]
    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """A compiled kernel in numbers. ``problems`` are what the build fails on; ``schedule`` says what its order was compared with.

    ``issue`` says for each sub-partition what its warps issue in an iteration, nothing if a role has no loop that is known.
    """

    kernel: str
    variant: str
    arch: str
    schedule: str
    resources: Resources
    launch: Mapping[str, int | None]
    instructions: int
    requests: tuple[int, ...]
    loops: tuple[LoopReport, ...]
    issue: tuple[SubPartition, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """A kernel of whatever origin: what it takes, how many instructions it has, and a turn of each of its innermost loops."""

    kernel: str
    resources: Resources
    instructions: int
    requests: tuple[int, ...]
    turns: tuple[Turn, ...]


def counts(cubin: Path) -> tuple[Counts, ...]:
    """Count the machine code of every kernel of a cubin; nothing needs to be known of where it comes from.

    Raises
    ------
    BuildError : a tool is missing, or the file is no cubin.
    """
    used = resources(cubin)
    return tuple(
        Counts(f.name, used[f.name], len(f.instructions), register_requests(f), turns(f))
        for f in parse(disassembled(cubin))
        if f.name in used
    )


def turns(function: Function) -> tuple[Turn, ...]:
    """Turns of the innermost loops of a kernel, by address."""
    flow = Flow(function)
    return tuple(_turn(flow, loop) for loop in flow.work)


def _turn(flow: Flow, loop: Loop) -> Turn:
    ways = [flow.turn(loop, longest) for longest in (False, True)]
    counts = [counted(way) for way in ways]
    families = {name: (counts[0].get(name, 0), counts[1].get(name, 0)) for name in {**counts[1], **counts[0]}}
    return Turn(flow.instructions(loop.head)[0].address, _registers(flow, loop), len(ways[0]), len(ways[1]), families)


def _request(flow: Flow, loop: Loop) -> Instruction | None:
    """The register request that holds in a loop: the last on every way to it."""
    for block in flow.dominators(loop.head):
        found = [x for x in flow.instructions(block) if x.is_a("USETMAXREG")]
        if found:
            return found[-1]
    return None


def _registers(flow: Flow, loop: Loop) -> int | None:
    request = _request(flow, loop)
    return None if request is None else int(request.operands.split(",")[-1], 0)


def reported(compiled: Compiled, program: Mapping[str, Sequence[Event]] | None, schedule: str) -> Report:
    """Compare a compiled kernel with its file and, if given, with the roles of its WarpProgram.

    Raises
    ------
    BuildError : a tool is missing, or the cubin does not hold one kernel.
    """
    return examined(compiled, disassembled(compiled.cubin), program, schedule)


def examined(compiled: Compiled, listing: str, program: Mapping[str, Sequence[Event]] | None, schedule: str) -> Report:
    """`reported` for a listing of the machine code, as ``nvdisasm -c -gp`` prints it."""
    functions = parse(listing)
    mine = [f for f in functions if f.name.startswith(compiled.kernel.prefix)]
    if len(mine) != 1:
        raise BuildError(f"{compiled.cubin} holds {len(mine)} kernels called {compiled.kernel.prefix}", "emit one kernel a file")
    (function,) = mine
    ptx, wanted = read_ptx(compiled.ptx.read_text(encoding="utf-8")), wanted_by(compiled.kernel)
    every = resources(compiled.cubin)
    used = every[function.name]
    places = seats(compiled.kernel)
    problems = [*(p for f in functions for p in lint(f, every[f.name], ptx, wanted)), *differences(places, program)]
    flow = Flow(function)
    loops, wrong = _loops(flow, places, _makers(ptx))
    # operations of a backward loop meet at named barriers that the events of a period do not tell yet: its order is not judged
    if compiled.kernel.host == "attn_fwd" and not any(p.kind == "serialised" for p in problems):
        problems += [*wrong, *([] if wrong else _out_of_order(flow, ptx))]
    issue = issue_slots(places, first_warps(compiled.kernel), ((x.role, (x.turn.shortest, x.turn.longest)) for x in loops))
    return Report(
        kernel=compiled.kernel.name, variant=compiled.variant.name, arch=compiled.arch, schedule=schedule, resources=used,
        launch=compiled.launch, instructions=len(function.instructions), requests=register_requests(function), loops=loops,
        issue=issue, problems=tuple(problems),
    )  # fmt: skip


def _out_of_order(flow: Flow, ptx: Ptx) -> list[Problem]:
    """Synchronization or MMAs anywhere in the kernel, prologue and epilogue included, in another order than they were written in."""
    found = strays(flow.once(), ptx.groups)
    if found is None:
        return []
    one, other = (f"{x.opcode} at {x.address:#x}{_from(x, ptx)}" for x in found)
    return [Problem("order", f"{one} comes before {other}, which was written before it", LOOK)]


def _from(x: Instruction, ptx: Ptx) -> str:
    if x.line is None or x.line not in ptx.origin:
        return ""
    file, line = ptx.origin[x.line]
    return f" ({Path(file).name}, line {line})"


def differences(places: Sequence[Seat], program: Mapping[str, Sequence[Event]] | None) -> list[Problem]:
    """Roles of a file that do something else than those of the program: their periods may begin elsewhere, but go round the same."""
    if program is None:
        return []
    codes = {name: code for seat in places for code in seat.roles for name in code.roles}
    step = "emit the kernel again from this schedule"
    if codes.keys() != program.keys():
        return [Problem("program", f"the file has roles {', '.join(codes)}, the schedule {', '.join(program)}", step)]
    text = "role {} of the file does not go through {}, as the schedule does"
    return [
        Problem("program", text.format(name, ", ".join(e.text for e in program[name])), step)
        for name, code in codes.items()
        if not _same_round(code.period, program[name])
    ]


def _same_round(code: Sequence[Event], program: Sequence[Event]) -> bool:
    """Whether two periods are the same but for where they begin, and for letters of sub-tiles if the code has none."""
    lettered = any(e != e.bare for e in code)
    wanted = list(program) if lettered else [e.bare for e in program]
    return len(code) == len(wanted) and any([*code[i:], *code[:i]] == wanted for i in range(max(len(code), 1)))


def _makers(ptx: Ptx) -> Mapping[int, str]:
    """For each line of PTX the tile operation that it was made by."""
    found = {}
    for line, (file, number) in ptx.origin.items():
        if Path(file).parent.name == "tiles":
            name = _functions(file).get(number)
            if name:
                found[line] = name
    return found


@cache
def _functions(file: str) -> dict[int, str]:
    """Which top-level function each line of a Python file is in, or whose part that is: private functions belong to the one operation
    that calculates of a file with only one.
    """
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return {}
    functions = [f for f in tree.body if isinstance(f, ast.FunctionDef)]
    operations = [f.name for f in functions if f.name in ARITHMETIC]

    def whose(name: str) -> str:
        return operations[0] if name.startswith("_") and len(operations) == 1 else name

    return {n: whose(f.name) for f in functions for n in range(f.lineno, (f.end_lineno or f.lineno) + 1)}


def _loops(flow: Flow, places: Sequence[Seat], makers: Mapping[int, str]) -> tuple[tuple[LoopReport, ...], list[Problem]]:
    """The loops of each role. Warpgroups are told by the order in which they ask for registers, roles in one by what they do."""
    by_request: dict[int, list[Loop]] = {}
    order: dict[int, tuple[int, int]] = {}
    for loop in flow.work:
        request = _request(flow, loop)
        if request is not None:
            by_request.setdefault(request.address, []).append(loop)
    for x in flow.function.instructions:
        if x.is_a("USETMAXREG"):
            order[x.address] = (x.line or 0, x.address)
    requests = sorted(order, key=lambda a: order[a])
    if len(requests) != len(places):
        return (), [
            Problem("registers", f"{len(places)} warpgroups ask for registers, {len(requests)} do in the machine code", FEWER_REGISTERS)
        ]
    found: list[LoopReport] = []
    problems: list[Problem] = []
    for seat, address in zip(places, requests, strict=True):
        left = {r.name for r in seat.roles}
        for loop in by_request.get(address, []):
            role = _role_of(seat, _once(flow, loop))
            if role is None:
                continue
            left.discard(role.name)
            report, problem = _loop(flow, loop, role, makers)
            found.append(report)
            if problem:
                problems.append(problem)
        problems += [Problem("order", f"the machine code has no loop for role {name}", REPORT_THIS) for name in sorted(left)]
    return tuple(found), problems


def _once(flow: Flow, loop: Loop) -> tuple[Instruction, ...]:
    """The instructions of a turn, in its order, with one instruction a wait."""
    return tuple(x for x in flow.body(loop) if x.address not in flow.first_tries)


def _role_of(seat: Seat, body: Sequence[Instruction]) -> RoleCode | None:
    """The code of a seat that a loop belongs to: the one that synchronizes like it, or else the only one.

    None for loops of the frame, and for those that pass over iterations, whose order the order of the whole kernel covers.
    """
    found = shape(body)
    if not found or any(found == tuple(e.kind for e in r.passed) for r in seat.roles):
        return None
    exact = [r for r in seat.roles if tuple(e.kind for e in r.skeleton if e.kind != "mma") == found]
    if exact:
        return exact[0]
    return None if seat.frame or len(seat.roles) != 1 else seat.roles[0]


def _loop(flow: Flow, loop: Loop, role: RoleCode, makers: Mapping[int, str]) -> tuple[LoopReport, Problem | None]:
    body, turn = _once(flow, loop), _turn(flow, loop)
    skeleton, problem = compared(role, body)
    if problem:
        text = f"role {role.name}, loop at {turn.address:#x}: {problem}"
        return LoopReport(role.name, turn, (), ()), Problem("order", text, LOOK)
    functions = [makers.get(x.line) if x.line is not None else None for x in body]
    period = placed(role, body, skeleton, functions)
    return LoopReport(role.name, turn, period, moves(period)), None
