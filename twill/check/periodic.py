"""Amounts held by spans of time that repeat with a period: the modulo reservation table, by event points.

All cost depends on the number of spans, never on the number of cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Peak", "Span", "first_common_cycle", "peak"]


@dataclass(frozen=True, slots=True)
class Span:
    """``owner`` holds ``amount`` during ``[start + j period, start + length + j period)`` for every integer j.

    A span longer than the period holds its amount several times over where it meets itself.
    """

    owner: str
    start: int
    length: int
    amount: int


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest sum of amounts, a cycle in [0, period) that has it, who holds then and who begins then."""

    amount: int
    cycle: int
    owners: tuple[str, ...]
    beginners: tuple[str, ...]


def _holds(span: Span, cycle: int, period: int) -> bool:
    return (cycle - span.start) % period < span.length


def peak(spans: Sequence[Span], period: int) -> Peak:
    """The peak of the spans; the earliest cycle at which one of them begins and the sum is largest.

    Spans of whole periods do not count as beginning anywhere unless there are no others.
    """
    spans = [s for s in spans if s.length > 0]
    if not spans:
        return Peak(0, 0, (), ())
    always = 0
    change: dict[int, int] = {0: 0}
    for span in spans:
        turns, rest = divmod(span.length, period)
        always += turns * span.amount
        begin = span.start % period
        end = begin + rest
        change[begin] = change.get(begin, 0) + span.amount
        if end <= period:
            change[end] = change.get(end, 0) - span.amount
        else:
            change[0] += span.amount
            change[end - period] = change.get(end - period, 0) - span.amount
    changing = [s for s in spans if s.length % period] or spans
    beginnings = {s.start % period for s in changing}
    held = always
    best_amount, best_cycle = -1, 0
    for cycle in sorted(change):
        held += change[cycle]
        if cycle in beginnings and held > best_amount:
            best_amount, best_cycle = held, cycle
    owners = tuple(dict.fromkeys(s.owner for s in spans if _holds(s, best_cycle, period)))
    beginners = tuple(dict.fromkeys(s.owner for s in changing if s.start % period == best_cycle))
    return Peak(best_amount, best_cycle, owners, beginners)


def first_common_cycle(a: Span, b: Span, period: int) -> int | None:
    """The earliest cycle in [0, period) at which both hold and one of them begins; None if they never meet."""
    if a.length <= 0 or b.length <= 0:
        return None
    common = [s.start % period for s, other in ((a, b), (b, a)) if _holds(other, s.start % period, period)]
    return min(common, default=None)
