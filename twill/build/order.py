"""The order of a loop's machine code beside that of the role's period: the skeleton must agree, what moved of the rest is told.

An instruction knows the line of PTX that it was made from, and PTX keeps the order of the file. So the k-th synchronization of a
loop in PTX order is the k-th of the period, wherever the assembler put it. MMAs carry no such line; their groups are told by where
their first operand lives (registers for P, SMEM for Q).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from twill.build.roles import ARITHMETIC, Event, RoleCode
from twill.build.sass import Instruction

__all__ = ["Move", "Placed", "compared", "moves", "placed", "shape", "strays"]

HGMMA = ("HGMMA", "QGMMA", "IGMMA", "BGMMA")
TENSOR_MEMORY = ("UTCHMMA", "UTCQMMA", "UTCIMMA")
ANCHOR = dict(ARITHMETIC.values())


@dataclass(frozen=True, slots=True)
class Placed:
    """An event of a period and the numbers, within a turn of the loop, of the instructions that carry it out."""

    event: Event
    at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """``count`` of the ``total`` instructions of an arithmetic op stand on the other side of ``of`` than the schedule has them."""

    op: str
    count: int
    total: int
    side: str
    of: str

    @property
    def text(self) -> str:
        return f"{self.count} of {self.total} {self.op} {self.side} {self.of}"


def _kind(x: Instruction) -> str | None:
    """The kind of event that an instruction carries out or is part of."""
    if x.is_a("SYNCS"):
        if "TRYWAIT" in x.opcode:
            return "wait"
        if ".ARRIVE." in f"{x.opcode}.":
            return "arrive" if "A1T0" in x.opcode or "ART0" in x.opcode else "expect"
        return None
    if x.is_a("UTMALDG"):
        return "tma"
    if x.is_a("WARPGROUP.DEPBAR"):
        return "own"
    if x.is_a(*HGMMA):
        return "mma"
    return "bar" if x.is_a("BAR") else None


def _from_registers(x: Instruction) -> bool:
    """Whether the first operand of an MMA, behind the accumulator, is in registers."""
    operands = [o.strip() for o in x.operands.split(",")]
    return len(operands) > 1 and operands[1].startswith("R")


@dataclass(frozen=True, slots=True)
class _Seen:
    """One event of the machine code: its kind, the number of its first and last instruction, its line of PTX, and what it is known by."""

    kind: str
    at: tuple[int, ...]
    line: int | None
    mark: str = ""


def _seen(body: Sequence[Instruction]) -> list[_Seen]:
    """Events in the order of the machine code; an MMA group is one event, and so is a load of several boxes."""
    found: list[_Seen] = []
    group: list[int] = []
    for i, x in enumerate(body):
        kind = _kind(x)
        if kind == "mma":
            group.append(i)
            if "gsb0" in x.operands:
                found.append(_Seen("mma", tuple(group), None, "PV" if _from_registers(x) else "QK"))
                group = []
        elif kind == "own":
            found.append(_Seen("own", (i,), x.line, str(int(x.operands.split(",")[-1], 0))))
        elif kind:
            found.append(_Seen(kind, (i,), x.line))
    if group:
        found.append(_Seen("mma", tuple(group), None, "unfinished"))
    return found


def shape(body: Sequence[Instruction]) -> tuple[str, ...]:
    """Kinds of a loop's events in the order of PTX, loads of several boxes as one: what a role is recognised by."""
    synchronizing = sorted((s for s in _seen(body) if s.kind != "mma"), key=_line)
    kinds = [s.kind for s in synchronizing]
    return tuple(k for i, k in enumerate(kinds) if not (k == "tma" and i and kinds[i - 1] == "tma"))


def _line(s: _Seen) -> tuple[int, int]:
    return (s.line if s.line is not None else 0, s.at[0])


def compared(role: RoleCode, body: Sequence[Instruction]) -> tuple[tuple[Placed, ...], str | None]:
    """Where each event of the skeleton is, in the order of the machine code, and what is wrong with that order, if anything."""
    seen = _seen(body)
    # MMAs of one thread do not end groups of their own: only what synchronizes them is compared
    alone = any(x.is_a(*TENSOR_MEMORY) for x in body)
    wanted = [e for e in role.skeleton if not (alone and e.kind == "mma")]
    names, problem = _names([e for e in wanted if e.kind != "mma"], [s for s in seen if s.kind != "mma"])
    if problem:
        return (), problem
    mmas = [e for e in wanted if e.kind == "mma"]
    groups = [s for s in seen if s.kind == "mma"]
    if [e.name.partition("_")[0] for e in mmas] != [s.mark for s in groups]:
        return (), f"the schedule issues {_text(mmas)}; the machine code has groups of {', '.join(s.mark for s in groups) or 'none'}"
    names |= {s.at: e for s, e in zip(groups, mmas, strict=True)}
    found: list[Placed] = []
    for s in seen:
        event = names[s.at]
        if event.kind == "tma" and found and found[-1].event == event:
            found[-1] = Placed(event, (*found[-1].at, *s.at))
        else:
            found.append(Placed(event, s.at))
    # a group of MMAs must neither begin before nor end behind its neighbours
    orders = (sorted(found, key=lambda p: p.at[end]) for end in (0, -1))
    wrong = (_difference(wanted, [p.event for p in order]) for order in orders)
    return tuple(found), next((w for w in wrong if w), None)


def _names(wanted: Sequence[Event], seen: Sequence[_Seen]) -> tuple[dict[tuple[int, ...], Event], str | None]:
    """Which event each synchronization of the machine code is, by the order of their lines of PTX."""
    names: dict[tuple[int, ...], Event] = {}
    ordered = sorted(seen, key=_line)
    at = -1
    for i, s in enumerate(ordered):
        if s.kind == "tma" and i and ordered[i - 1].kind == "tma":
            names[s.at] = wanted[at]
            continue
        at += 1
        if at == len(wanted):
            return {}, f"the machine code has {_kind_text(s)} too many: the schedule ends with {wanted[-1].text}"
        event = wanted[at]
        if event.kind != s.kind or (s.kind == "own" and event.name != s.mark):
            return {}, f"where the schedule has {event.text}, the machine code has {_kind_text(s)}"
        names[s.at] = event
    if at + 1 < len(wanted):
        return {}, f"the machine code lacks {_text(wanted[at + 1 :])}"
    return names, None


def _kind_text(s: _Seen) -> str:
    words = {
        "wait": "a wait for a barrier", "arrive": "an arrival", "expect": "an arrival with bytes", "tma": "a load",
        "bar": "a named barrier", "own": f"a wait for MMAs with {s.mark} pending",
    }  # fmt: skip
    return words[s.kind]


def _text(events: Sequence[Event]) -> str:
    return ", ".join(e.text for e in events) or "nothing"


def _difference(wanted: Sequence[Event], found: Sequence[Event]) -> str | None:
    if list(wanted) == list(found):
        return None
    at = next(i for i, (a, b) in enumerate(zip(wanted, found, strict=False)) if a != b)
    before = f"after {wanted[at - 1].text}" if at else "at first"
    return f"{before} the schedule has {wanted[at].text}, the machine code {found[at].text}"


def strays(code: Sequence[Instruction], groups: Sequence[tuple[int, int]]) -> tuple[Instruction, Instruction] | None:
    """The first two instructions of ``code`` that synchronize, or begin or end a group of MMAs, in another order than in PTX.

    ``code`` is in the order of execution, ``groups`` as `twill.build.ptx.Ptx` has them. MMAs know no line: their groups are taken to be
    in the order of PTX among themselves.
    """
    found: list[tuple[int, Instruction]] = []
    number, inside = 0, False
    for x in code:
        kind = _kind(x)
        if kind == "mma" and number < len(groups):
            if not inside:
                found.append((groups[number][0], x))
            inside = "gsb0" not in x.operands
            if not inside:
                found.append((groups[number][1], x))
                number += 1
        elif kind is not None and x.line is not None:
            found.append((x.line, x))
    return next(((one, other) for (a, one), (b, other) in pairwise(found) if a > b), None)


def placed(role: RoleCode, body: Sequence[Instruction], skeleton: Sequence[Placed], functions: Sequence[str | None]) -> tuple[Placed, ...]:
    """Every event of the period in the schedule's order, with its instructions.

    ``functions`` says which tile operation each instruction was made by, where that is known. Ops of one kind that a role executes
    for several sub-tiles cannot be told apart in machine code and share their instructions.
    """
    where = {p.event: p.at for p in skeleton}
    found = []
    for event in role.period:
        if event.skeleton:
            found.append(Placed(event, where.get(event, ())))
            continue
        stem = event.name.partition("_")[0]
        makers = {name for name, (op, _) in ARITHMETIC.items() if op == stem}
        found.append(Placed(event, tuple(i for i, x in enumerate(body) if _carries_out(x, functions[i], makers, ANCHOR.get(stem)))))
    return tuple(found)


def _carries_out(x: Instruction, function: str | None, makers: set[str], anchor: str | None) -> bool:
    if anchor is None or not x.is_a(anchor):
        return False
    return function in makers or function not in ARITHMETIC


def moves(period: Sequence[Placed]) -> tuple[Move, ...]:
    """What the assembler moved across the skeleton: for each op, how much of it is on the wrong side of each event."""
    found = []
    for i, op in enumerate(period):
        if op.event.skeleton or not op.at:
            continue
        for j, other in enumerate(period):
            if not other.event.skeleton or not other.at:
                continue
            # an MMA group begins with its first instruction
            edge = other.at[0]
            wrong = [a for a in op.at if (a > edge) != (i > j)]
            if wrong:
                found.append(Move(op.event.name, len(wrong), len(op.at), "before" if i > j else "after", other.event.text))
    return tuple(found)
