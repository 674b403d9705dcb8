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
    """In no cycle of the period do the ops together hold more of a unit than there is; of an elastic one, on average."""
    for unit, spans in unit_spans(facts).items():
        have = facts.machine.capacity(unit)
        if facts.machine.units[unit].elastic:
            held = sum(s.length * s.amount for s in spans)
            if held > have * facts.ii:
                text = f"of the period the ops together hold {held} of the elastic unit {unit}, which has {have} * {facts.ii}"
                yield finding("capacity", spans[0].owner, None, text)
            continue
        top = peak(spans, facts.ii)
        if top.amount > have:
            holders = ", ".join(top.owners)
            text = f"of the period the ops {holders} hold {top.amount} of unit {unit}, which has {have}"
            yield finding("capacity", top.beginners[0], top.cycle, text)
