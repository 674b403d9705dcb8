"""Rule capacity: functional units over the modulo reservation table."""

from __future__ import annotations

from collections.abc import Iterator

from twill.check.facts import Facts
from twill.check.periodic import Span, peak
from twill.check.report import Finding, finding

__all__ = ["capacity", "unit_spans"]


def unit_spans(facts: Facts) -> dict[str, list[Span]]:
    """What every unit is asked to hold, by unit."""
    spans: dict[str, list[Span]] = {}
    for op in facts.graph.ops:
        for r in op.reservations:
            spans.setdefault(r.unit, []).append(Span(op.name, facts.start[op.name] + r.offset, r.cycles, r.amount))
    return spans


def capacity(facts: Facts) -> Iterator[Finding]:
    """In no cycle of the period do the ops together hold more of a unit than there is."""
    for unit, spans in unit_spans(facts).items():
        top = peak(spans, facts.ii)
        have = facts.machine.capacity(unit)
        if top.amount > have:
            holders = ", ".join(top.owners)
            text = f"of the period the ops {holders} hold {top.amount} of unit {unit}, which has {have}"
            yield finding("capacity", top.beginners[0], top.cycle, text)
