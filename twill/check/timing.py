"""Rules about when ops run: completion, dependence and hand-over, and the time options."""

from __future__ import annotations

from collections.abc import Iterator

from twill.check.facts import Facts, ceil_div
from twill.check.report import Finding, finding

__all__ = ["completion", "dependence", "time_options"]


def completion(facts: Facts) -> Iterator[Finding]:
    """0 <= M(v), M(v) + span(v) <= L, some op starts at 0, ceil(L / I) <= max_copies."""
    for name, start in facts.start.items():
        end = start + facts.ops[name].span_cycles
        if start < 0:
            yield finding("completion", name, start, "starts before the iteration; at least 0 needed")
        if end > facts.length:
            text = f"ends at {end} (span {facts.ops[name].span_cycles}), after the iteration, which lasts until {facts.length}"
            yield finding("completion", name, start, text)
    first = min(facts.start, key=lambda name: facts.start[name])
    if facts.start[first] > 0:
        yield finding("completion", first, facts.start[first], "is the first op of the iteration; some op must start at 0")
    copies = ceil_div(facts.length, facts.ii)
    if copies > facts.options.max_copies:
        most = facts.options.max_copies
        text = f"length {facts.length} at initiation interval {facts.ii} keeps {copies} iterations in flight; at most {most} allowed"
        yield finding("completion", "length_cycles", facts.length, text)


def dependence(facts: Facts) -> Iterator[Finding]:
    """M(v) + delta I >= M(u) + latency(e) + c(e); ``hand-over`` where only the cost of crossing groups is missing."""
    for edge in facts.graph.edges:
        u, v = facts.start[edge.src], facts.start[edge.dst]
        given = v + edge.distance * facts.ii
        ready = u + edge.latency_cycles
        cost = facts.handover_cycles(edge)
        if given >= ready + cost:
            continue
        only_crossing = not facts.same(edge.src, edge.dst) and facts.on("hand-over") and given >= ready + edge.same_group_cycles
        rule = "hand-over" if only_crossing else "dependence"
        later = f" ({v} + {edge.distance} * {facts.ii})" if edge.distance else ""
        groups = f"group {facts.group[edge.src]}" + ("" if facts.same(edge.src, edge.dst) else f" to group {facts.group[edge.dst]}")
        yield finding(
            rule, edge.dst, v,
            f"{edge.label} ({edge.kind}, {groups}) needs {ready + cost} = {u} + latency {edge.latency_cycles} + hand-over {cost}; "
            f"{edge.dst} starts at {given}{later}, {ready + cost - given} cycles too early",
        )  # fmt: skip


def time_options(facts: Facts) -> Iterator[Finding]:
    """Starts, I and L are multiples of ``time_unit_cycles``; I is at most ``max_ii_cycles``."""
    unit = facts.options.time_unit_cycles
    for name, start in facts.start.items():
        if start % unit:
            yield finding("options", name, start, f"does not start at a multiple of time_unit_cycles = {unit}")
    for field, value in (("ii_cycles", facts.ii), ("length_cycles", facts.length)):
        if value % unit:
            yield finding("options", field, None, f"{value} is not a multiple of time_unit_cycles = {unit}")
    limit = facts.options.max_ii_cycles
    if limit is not None and facts.ii > limit:
        yield finding("options", "ii_cycles", None, f"{facts.ii} is more than max_ii_cycles = {limit}")
