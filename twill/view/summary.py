"""The compact summary of a schedule."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from twill.model.schedule import Schedule
from twill.view.parts import label, plain_table, stage_legend, stage_style, storage, unit_use
from twill.view.words import bottleneck, bounds_in_words, counted, ii_in_words, length_in_words, margin_in_words, rounding_in_words

__all__ = ["facts", "summary", "title"]


def title(schedule: Schedule) -> Text:
    """``attn_fwd (head_dim 128, ...) on b200 (sm100): optimal``."""
    parameters = ", ".join(f"{name} {value}" for name, value in schedule.graph.parameters.items())
    text = Text(schedule.graph.name, style="bold")
    if parameters:
        text.append(f" ({parameters})", style="not bold")
    text.append(f" on {schedule.machine.name} ({schedule.machine.arch}): ")
    text.append(schedule.status, style="green" if schedule.status == "optimal" else "yellow")
    return text


def facts(schedule: Schedule, reasons: Mapping[str, str] | None = None) -> Table:
    """What was found and how it is known, line by line."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    rank, proved = (
        schedule.rank,
        "proved best of these" if schedule.proof.rank_proved else "not proved best of these: time ran out",
    )
    table.add_row("interval", ii_in_words(schedule))
    if any(op.asynchronous and op.unit == "tensor" for op in schedule.graph.ops):
        table.add_row("margin", margin_in_words(schedule))
    table.add_row("length", length_in_words(schedule))
    table.add_row("bottleneck", bottleneck(schedule))
    table.add_row("bounds on I", "\n".join(bounds_in_words(schedule.lower_bounds_cycles, reasons)))
    table.add_row("costs", rounding_in_words(schedule))
    table.add_row(
        "rank",
        f"{counted(rank.groups, 'group')}, {rank.held_up} held up, {counted(rank.handovers, 'hand-over')}, {counted(rank.waits, 'wait')}, "
        f"{counted(rank.register_peak, 'register')} at the peak, slack {counted(rank.slack_cycles, 'cycle')}\n{proved}",
    )
    return table


def groups(schedule: Schedule) -> Table:
    """The warp groups: warps, registers, and ops in the order in which a period issues them."""
    table = plain_table(("group", False), ("warps", True), ("registers", True), ("issues, in order", False))
    stages = {op.name: op.stage for op in schedule.ops}
    for group in schedule.groups:
        ops = Text(" ").join(Text(label(name, stages[name]), style=stage_style(stages[name])) for name in group.ops)
        table.add_row(group.name, str(group.warps), str(group.registers_per_thread), ops)
    return table


def summary(schedule: Schedule, reasons: Mapping[str, str] | None = None) -> Stack:
    """All of it: proof, groups, memory and use of the units. ``reasons`` says where each bound comes from."""
    parts: list[RenderableType] = [facts(schedule, reasons), groups(schedule), stage_legend(schedule), unit_use(schedule)]
    if schedule.buffers:
        parts.append(storage(schedule))
    return Stack(title(schedule), *(Padding(part, (0, 0, 1, 2)) for part in parts))
