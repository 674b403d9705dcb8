"""The table of one steady-state period: cycles down, warp groups and units across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from twill.model.schedule import Schedule
from twill.view.parts import label, shorten, stage_legend, stage_style, storage, unit_use
from twill.view.summary import title
from twill.view.words import bottleneck, ii_in_words, length_in_words

__all__ = ["bucket_cycles", "period_table", "show"]

STEPS = (1, 2, 4, 5, 8)
NARROWEST = 4
GOES_ON = "│"


@dataclass(frozen=True, slots=True)
class _Slot:
    """An op at work during [start, start + cycles) of the period, which may run over its end."""

    op: str
    stage: int
    start: int
    cycles: int

    def begins(self, low: int, high: int) -> bool:
        return low <= self.start < high

    def at_work(self, low: int, high: int, period: int) -> bool:
        end = self.start + self.cycles
        return (self.start < high and end > low) or end - period > low


def bucket_cycles(ii_cycles: int, rows: int) -> int:
    """The smallest round number of cycles a row with which a period takes at most ``rows`` rows."""
    scale = 1
    while True:
        for step in STEPS:
            if -(-ii_cycles // (step * scale)) <= rows:
                return step * scale
        scale *= 10


def _columns(schedule: Schedule) -> list[tuple[str, list[_Slot]]]:
    """Every group with the ops it issues, then every unit in use with the ops that hold it."""
    ii, placed = schedule.ii_cycles, {op.name: op for op in schedule.ops}
    columns: list[tuple[str, list[_Slot]]] = []
    for group in schedule.groups:
        slots = []
        for name in group.ops:
            issue = schedule.graph.op(name).issue_cycles
            slots.append(_Slot(name, placed[name].stage, placed[name].start_cycle % ii, min(max(issue, 1), ii)))
        columns.append((group.name, slots))
    by_unit: dict[str, list[_Slot]] = {unit: [] for unit in schedule.utilization}
    for op in schedule.graph.ops:
        for r in op.reservations:
            start = (placed[op.name].start_cycle + r.offset) % ii
            by_unit.setdefault(r.unit, []).append(_Slot(op.name, placed[op.name].stage, start, min(r.cycles, ii)))
    return columns + [(unit, slots) for unit, slots in by_unit.items() if slots]


def _widest(slots: Sequence[_Slot], step: int, period: int) -> int:
    """Room to show what begins in every row of a column; three or more in one row are not reason enough to be wider than two."""
    longest = max(len(label(s.op, s.stage)) for s in slots)
    crowd = max(sum(s.begins(low, low + step) for s in slots) for low in range(0, period, step))
    return longest if crowd < 2 else 2 * longest + 1


def _shared_out(wanted: Sequence[int], room: int) -> list[int]:
    """Widths that together take at most ``room``: each what it wants, or all of the rest the same, but at least `NARROWEST`."""
    level = max(wanted)
    while level > NARROWEST and sum(min(w, level) for w in wanted) > room:
        level -= 1
    return [min(w, level) for w in wanted]


def _cell(slots: Sequence[_Slot], low: int, high: int, period: int, width: int) -> Text:
    """Ops that begin in [low, high); a line where one only goes on; nothing where the column is idle."""
    fresh = sorted((s for s in slots if s.begins(low, high)), key=lambda s: s.start)
    working = sorted((s for s in slots if s.at_work(low, high, period)), key=lambda s: s.start)
    named = fresh or (working if low == 0 else [])
    if not named:
        return Text(GOES_ON, style=stage_style(working[0].stage)) if working else Text("")
    whole = [label(s.op, s.stage) for s in named]
    if len(" ".join(whole)) <= width:
        return Text(" ").join(Text(text, style=stage_style(s.stage)) for text, s in zip(whole, named, strict=True))
    more = f"+{len(named) - 1}" if len(named) > 1 else ""
    if len(more) > width - NARROWEST:
        more = more[: max(0, width - NARROWEST)]
    return Text(label(named[0].op, named[0].stage, width - len(more)) + more, style=stage_style(named[0].stage))


def period_table(schedule: Schedule, *, rows: int = 40, width: int = 100) -> Table:
    """One period [0, I) in about ``rows`` rows and at most ``width`` characters, as long as each column gets four."""
    ii, step = schedule.ii_cycles, bucket_cycles(schedule.ii_cycles, rows)
    columns = _columns(schedule)
    first = max(len("cycle"), len(str(ii)))
    wanted = [max(len(name), _widest(slots, step, ii)) for name, slots in columns]
    widths = _shared_out(wanted, width - first - len(columns))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("cycle", justify="right", width=first, no_wrap=True)
    for (name, _), wide in zip(columns, widths, strict=True):
        table.add_column(shorten(name, wide), width=wide, no_wrap=True, overflow="crop")
    for low in range(0, ii, step):
        high = min(low + step, ii)
        cells = (_cell(slots, low, high, ii, wide) for (_, slots), wide in zip(columns, widths, strict=True))
        table.add_row(str(low), *cells)
    return table


def show(schedule: Schedule, *, rows: int = 40, width: int = 100) -> Stack:
    """The table with its legend, and below it what limits I, the use of the units and the buffers.

    Raises
    ------
    KeyError, ValueError : the schedule names ops that its graph does not have, or groups without ops.
    """
    step = bucket_cycles(schedule.ii_cycles, rows)
    count = len(schedule.groups)
    legend = Text(f"one row: {step} cycle{'s' if step > 1 else ''}; the first {count} column{'s are' if count > 1 else ' is'} ")
    legend.append("what the warp groups issue, the others who holds the units\n")
    legend.append(f"OP·s: an op begins, of stage s; {GOES_ON} it goes on; +n: n more begin in the same row")
    below = Text(f"{ii_in_words(schedule)}\n{length_in_words(schedule)}\nbottleneck: {bottleneck(schedule)}")
    table = period_table(schedule, rows=rows, width=width)
    parts: list[RenderableType] = [table, Stack(legend, stage_legend(schedule)), below, unit_use(schedule)]
    if schedule.buffers:
        parts.append(storage(schedule))
    return Stack(title(schedule), Text(""), *(Padding(part, (0, 0, 1, 0)) for part in parts))
