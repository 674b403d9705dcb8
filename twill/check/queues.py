"""Rule queueing, and the margin: results of a queued unit may be late, since nothing orders the ops of different groups there."""

from __future__ import annotations

from collections.abc import Iterator

from twill.check.facts import Facts
from twill.check.report import Finding, finding
from twill.model.graph import Edge
from twill.model.schedule import Schedule

__all__ = ["held_up", "margin_cycles", "margin_field", "most_margin", "queueing", "step_cycles"]


def queue_cycles(facts: Facts, name: str) -> int:
    """How long an op keeps a queued unit busy; 0 if it is not queued."""
    op = facts.ops[name]
    if op.variable_latency or not op.asynchronous or not facts.machine.queued(op.unit):
        return 0
    return max((r.offset + r.cycles for r in op.reservations if r.unit == op.unit), default=0)


def ahead(facts: Facts, name: str) -> tuple[int, str]:
    """The longest queued op of another group on the same unit, and its name; (0, "") if there is none."""
    unit = facts.ops[name].unit
    others = [(queue_cycles(facts, w), w) for w in facts.ops if facts.ops[w].unit == unit and not facts.same(w, name)]
    return max(((cycles, w) for cycles, w in others if cycles), default=(0, ""))


def _waits(facts: Facts) -> Iterator[Edge]:
    return (e for e in facts.graph.edges if queue_cycles(facts, e.src) and not queue_cycles(facts, e.dst))


def _patience(facts: Facts, edge: Edge) -> int:
    """Cycles from the result, as planned, to whoever waits for it."""
    ready = facts.start[edge.src] + edge.latency_cycles + facts.handover_cycles(edge)
    return facts.start[edge.dst] + edge.distance * facts.ii - ready


def queueing(facts: Facts) -> Iterator[Finding]:
    """Every result may be late by the longest queued op of another group."""
    for edge in _waits(facts):
        late, who = ahead(facts, edge.src)
        patience = _patience(facts, edge)
        # without any patience it is the rule dependence that is broken
        if 0 <= patience < late:
            text = f"{edge.label}: {edge.src} may be late by {late} cycles, behind {who} of group {facts.group[who]}; {patience} are left"
            yield finding("queueing", edge.dst, facts.start[edge.dst], text)


def step_cycles(facts: Facts) -> int:
    """Margins count in whole steps."""
    figure = facts.machine.costs.get("margin_step")
    return max(1, int(figure.value)) if figure else 1


def most_margin(facts: Facts) -> int:
    """The longest queued op, in whole steps."""
    step = step_cycles(facts)
    return max(queue_cycles(facts, name) for name in facts.ops) // step * step


def margin_cycles(facts: Facts) -> int:
    """What every result may be later still, in whole steps, at most `most_margin`, which it is without the rule queueing."""
    step = step_cycles(facts)
    if not facts.on("queueing"):
        return most_margin(facts)
    left = [_patience(facts, e) - late for e, (late, who) in ((e, ahead(facts, e.src)) for e in _waits(facts)) if who]
    return max(0, min([most_margin(facts), *left])) // step * step


def held_up(facts: Facts) -> int:
    """Pairs of one group: a synchronous op that waits for a queued one, and work behind it that neither waits itself nor needs it."""
    waits = {e.dst for e in _waits(facts) if not facts.ops[e.dst].asynchronous}
    count = 0
    for v in waits:
        needs = {v}
        while more := {e.dst for e in facts.graph.edges if e.distance == 0 and e.src in needs} - needs:
            needs |= more
        count += sum(
            1 for x in facts.members[facts.group[v]]
            if not facts.ops[x].asynchronous and x not in waits and x not in needs and facts.start[x] >= facts.start[v]
        )  # fmt: skip
    return count


def margin_field(facts: Facts, schedule: Schedule) -> Iterator[Finding]:
    """``margin_cycles`` is what the starts leave."""
    right = margin_cycles(facts)
    if schedule.margin_cycles != right:
        yield finding("margin", "margin_cycles", None, f"the starts leave {right}, the file says {schedule.margin_cycles}")
