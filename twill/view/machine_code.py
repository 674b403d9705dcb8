"""A compiled kernel for people: what it takes, what a turn of each loop costs, and its order beside the schedule's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from twill.build.order import Move, Placed
from twill.build.report import Counts, LoopReport, Report, Turn
from twill.view.parts import plain_table

__all__ = ["counted_loops", "details", "summary"]

INDENT = (0, 0, 0, 2)


def summary(report: Report) -> RenderableType:
    """What the kernel takes, and what a turn of each of its loops costs."""
    used, smem = report.resources, report.launch.get("dynamic_smem_bytes")
    facts = plain_table(("", False), ("", False))
    facts.show_header = False
    facts.add_row("registers", f"{used.registers} a thread at launch; then {', '.join(map(str, report.requests)) or 'the same'}")
    facts.add_row("spills", f"{used.stack_bytes} bytes of stack, {used.local_bytes} of local memory")
    facts.add_row("SMEM", f"{smem if smem is not None else '?'} bytes" + (f" + {used.shared_bytes} static" if used.shared_bytes else ""))
    facts.add_row("instructions", f"{report.instructions}")
    facts.add_row("order", _order(report))
    title = Text(f"{report.kernel}, {report.variant}, {report.arch}", style="bold")
    return Group(title, Padding(facts, INDENT), Text(), Padding(_turns(report), INDENT))


def counted_loops(counts: Counts) -> RenderableType:
    """What a kernel of whatever origin takes, and what a turn of each of its innermost loops costs."""
    used = counts.resources
    title = Text(counts.kernel, style="bold", overflow="fold")
    later = ", ".join(map(str, counts.requests)) or "the same"
    facts = f"{used.registers} registers at launch, then {later}; {used.stack_bytes} bytes of stack; {counts.instructions} instructions"
    table = plain_table(("loop at", True), ("registers", True), ("a turn", True), ("of these", False))
    for turn in counts.turns:
        registers = "" if turn.registers is None else str(turn.registers)
        table.add_row(f"{turn.address:#x}", registers, _span(turn.shortest, turn.longest), _families(turn))
    return Group(title, Padding(Text(facts), INDENT), Padding(table, INDENT))


def _order(report: Report) -> str:
    wrong = sum(not loop.period for loop in report.loops)
    if wrong or not report.loops:
        return f"not that of {report.schedule}"
    return f"MMAs, barriers and waits as in {report.schedule}"


def _turns(report: Report) -> Table:
    table = plain_table(("role", False), ("loop", False), ("registers", True), ("a turn", True), ("of these", False))
    for loop in report.loops:
        turn = loop.turn
        registers = "" if turn.registers is None else str(turn.registers)
        table.add_row(loop.role, _which(report.loops, loop), registers, _span(turn.shortest, turn.longest), _families(turn))
    return table


def _families(turn: Turn) -> str:
    return ", ".join(f"{_span(*span)} {name}" for name, span in turn.families.items())


def _which(loops: Sequence[LoopReport], loop: LoopReport) -> str:
    """The shortest loop of a role is its steady state; others are copies for tiles that need a mask."""
    least = min(x.turn.longest for x in loops if x.role == loop.role)
    return "steady" if loop.turn.longest == least else "masked"


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def details(report: Report) -> RenderableType:
    """The order of every loop beside the schedule's, instruction by instruction numbered within a turn."""
    return Group(*_details(report))


def _details(report: Report) -> Iterator[RenderableType]:
    if report.issue:
        yield Text()
        yield Text("issue slots an iteration, by sub-partition", style="bold")
        table = plain_table(("sub-partition", True), ("slots", True), ("of these", False))
        for part in report.issue:
            roles = ", ".join(f"{_span(*span)} {role}" for role, span in part.roles.items())
            table.add_row(str(part.number), _span(*part.total), roles)
        yield Padding(table, INDENT)
    for loop in report.loops:
        if not loop.period:
            continue
        yield Text()
        yield Text(f"{loop.role}, {_which(report.loops, loop)} loop at {loop.turn.address:#x}", style="bold")
        table = plain_table(("schedule", False), ("machine code", True), ("instructions", True), ("moved", False))
        for placed in loop.period:
            table.add_row(placed.event.text, _place(placed), _count(placed), _moved(placed, loop.moves))
        yield Padding(table, INDENT)


def _place(placed: Placed) -> str:
    return _span(min(placed.at) + 1, max(placed.at) + 1) if placed.at else "-"


def _count(placed: Placed) -> str:
    return str(len(placed.at)) if placed.event.kind in ("op", "mma", "tma") and placed.at else ""


def _moved(placed: Placed, moves: Sequence[Move]) -> str:
    return "; ".join(f"{m.count} {m.side} {m.of}" for m in moves if m.op == placed.event.name)
