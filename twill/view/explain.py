"""Explanations in words: why no schedule exists, or why none with a smaller interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["because", "infeasible", "unknown"]

REMEDIES = {
    "register-limit": "raise --registers, or use a smaller tile or more --subtiles",
    "register-file": "use a smaller tile or fewer --subtiles",
    "memory": "use a smaller tile or head dimension, or fewer --subtiles",
    "placement": "use a smaller tile or head dimension, or fewer --subtiles",
    "warp-budget": "raise --groups, or use fewer --subtiles",
    "hand-over": "see what it costs with --without hand-over",
    "local-registers": "leave --with local-registers away",
}
"""What a user can change where a rule stands in the way."""


def _remedy(rules: Sequence[str], max_ii_cycles: int | None) -> str:
    if max_ii_cycles is not None:
        return f"raise --max-ii {max_ii_cycles}, or leave it away"
    for rule in rules:
        if rule in REMEDIES:
            return REMEDIES[rule]
    return "raise --max-copies"


def infeasible(
    what: str, words: Sequence[str] | None, rules: Sequence[str], *, max_ii_cycles: int | None = None, minimal: bool = True
) -> Stack:
    """No schedule exists; ``words`` are the sentences of the minimal core, None if time ran out before it was known."""
    limit = f" with I up to {max_ii_cycles} cycles" if max_ii_cycles is not None else ""
    lines: list[RenderableType] = [Text(f"{what}: infeasible", style="bold red"), Text(f"There is no schedule{limit}.")]
    if words is None:
        lines.append(Text("Time ran out before it was known which rules forbid it."))
        lines.append(Text("next step: give a longer --timeout"))
    else:
        lines.append(because(words, minimal=minimal))
        lines.append(Text(f"next step: {_remedy(rules, max_ii_cycles)}"))
    return Stack(*lines)


def because(words: Sequence[str], *, minimal: bool = True) -> Stack:
    """The sentences of a core; if it is minimal, the conclusion no longer follows with any one of its rules away."""
    head = "It is forbidden by this:" if len(words) == 1 else "It is forbidden by these together, and by no fewer:"
    if not minimal:
        head = "It is forbidden by these together; whether by fewer was too hard to find out:"
    return Stack(Text(head), _items(words))


def _items(lines: Sequence[str]) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    for line in lines:
        table.add_row("  -", Text(line))
    return table


def unknown(what: str, ii_floor_cycles: int, bounds: Sequence[str], timeout_s: float) -> Stack:
    """Time ran out with neither a schedule nor a proof that there is none."""
    return Stack(
        Text(f"{what}: not known", style="bold yellow"),
        Text(f"{timeout_s:g} seconds brought neither a schedule nor a proof that there is none; I >= {ii_floor_cycles} is proved."),
        _items(bounds),
        Text("next step: give a longer --timeout, or a coarser --time-unit such as 16"),
    )


def not_smaller(ii_cycles: int, bound: str, reasons: Mapping[str, str]) -> Text:
    """I equals a lower bound: say which unit, cycle of the graph, memory or op it comes from."""
    return Text(f"I = {ii_cycles} equals the {bound} bound: {reasons.get(bound) or 'see docs/formulation.md'}")
