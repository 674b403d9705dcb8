"""Pieces that more than one view shows: stages as colours, use of the units, placement of the buffers."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from twill.model.schedule import Schedule

__all__ = ["STAGE_STYLES", "label", "plain_table", "shorten", "stage_legend", "stage_style", "storage", "unit_use"]

STAGE_STYLES = ("bold cyan", "yellow", "magenta", "green", "blue", "red")
BAR_CELLS = 40
AGES = ("the newest iteration", "one iteration before", "two before", "three before", "four before", "five before")


def stage_style(stage: int) -> str:
    """The colour of a stage; stages beyond the last colour start over."""
    return STAGE_STYLES[stage % len(STAGE_STYLES)]


def shorten(name: str, width: int) -> str:
    """A name in at most ``width`` characters: without underscores, then with its middle left out; the end tells sub-tiles apart."""
    if len(name) <= width:
        return name
    bare = name.replace("_", "")
    if len(bare) <= width or width < 4:
        return bare[:width]
    return f"{bare[: width - 3]}~{bare[-2:]}"


def label(name: str, stage: int, width: int = 100) -> str:
    """``EXP_a·1``: an op and the iteration it works on, in at most ``width`` characters."""
    suffix = f"·{stage}"
    return shorten(name, width - len(suffix)) + suffix


def stage_legend(schedule: Schedule) -> Text:
    """What the suffixes and colours of the stages mean."""
    text = Text("stages: ")
    for stage in range(max(op.stage for op in schedule.ops) + 1):
        age = AGES[stage] if stage < len(AGES) else f"{stage} before"
        text.append(f"·{stage} {age}   ", style=stage_style(stage))
    return text


def plain_table(*headers: tuple[str, bool]) -> Table:
    """A table without lines; each header comes with whether its column holds numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title, number in headers:
        table.add_column(title, justify="right" if number else "left", no_wrap=number, overflow="fold")
    return table


def unit_use(schedule: Schedule) -> Table:
    """How much of each unit one period uses, as bars; units that nobody uses are left out."""
    table = plain_table(("unit", False), ("use", False), ("", True))
    for unit, use in sorted(schedule.utilization.items(), key=lambda item: -item[1]):
        if use > 0:
            full = round(use * BAR_CELLS)
            table.add_row(unit, "█" * full + "░" * (BAR_CELLS - full), f"{use:.1%}")
    return table


def storage(schedule: Schedule) -> Table:
    """Where every buffer lies, memory by memory, by address."""
    table = plain_table(("memory", False), ("buffer", False), ("from", True), ("size", True), ("stages", True))
    of_graph = {b.name: b for b in schedule.graph.buffers}
    for buffer in sorted(schedule.buffers, key=lambda b: (b.memory, b.offset, b.name)):
        stays = " (stays)" if of_graph[buffer.name].persistent else ""
        table.add_row(buffer.memory, buffer.name + stays, str(buffer.offset), str(buffer.size), str(buffer.stages))
    return table
