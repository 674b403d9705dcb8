"""The lower bounds of ``docs/formulation.md`` section 4, recomputed from the graph and the machine."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import TopologicalSorter

import networkx as nx

from twill.check.facts import Facts, ceil_div, round_up
from twill.check.report import Finding, finding
from twill.check.storage import stride

__all__ = ["BOUNDS", "bound_fields", "critical_path", "lower_bounds"]

BOUNDS = ("resource", "recurrence", "memory", "issue")


def lower_bounds(facts: Facts) -> dict[str, int]:
    """The four lower bounds on I, in cycles; 0 for one whose rule is off."""
    return {
        "resource": _resource(facts) if facts.on("capacity") else 0,
        "recurrence": _recurrence(facts),
        "memory": _memory(facts) if facts.on("memory") else 0,
        "issue": max(op.issue_cycles for op in facts.graph.ops) if facts.on("concurrency") else 0,
    }


def _resource(facts: Facts) -> int:
    work: dict[str, int] = {}
    for op in facts.graph.ops:
        for r in op.reservations:
            work[r.unit] = work.get(r.unit, 0) + r.amount * r.cycles
    return max((ceil_div(total, facts.machine.capacity(unit)) for unit, total in work.items()), default=0)


def _recurrence(facts: Facts) -> int:
    """ceil of the largest weight / distance over the cycles of the graph: the least I at which no cycle is positive."""
    whole = nx.DiGraph()
    whole.add_edges_from((e.src, e.dst) for e in facts.graph.edges)
    worst = 0
    for component in nx.strongly_connected_components(whole):
        edges = [
            (e.src, e.dst, e.latency_cycles + facts.cheapest_cycles(e), e.distance)
            for e in facts.graph.edges
            if e.src in component and e.dst in component
        ]
        if not edges or not _positive_cycle(component, edges, worst):
            continue
        low, high = worst, sum(weight for _, _, weight, _ in edges)
        while high - low > 1:
            middle = (low + high) // 2
            if _positive_cycle(component, edges, middle):
                low = middle
            else:
                high = middle
        worst = high
    return worst


def _positive_cycle(ops: set[str], edges: list[tuple[str, str, int, int]], ii: int) -> bool:
    """Whether some cycle has weight - distance * ii > 0 (Bellman-Ford for longest paths)."""
    longest = dict.fromkeys(ops, 0)
    for _ in range(len(ops)):
        changed = False
        for src, dst, weight, distance in edges:
            reach = longest[src] + weight - distance * ii
            if reach > longest[dst]:
                longest[dst] = reach
                changed = True
        if not changed:
            return False
    return True


def _memory(facts: Facts) -> int:
    worst = 0
    lives = _shortest_lives(facts)
    for name in facts.machine.memories:
        buffers = [b for b in facts.graph.buffers if b.memory == name]
        free = facts.capacity_of(name) - sum(stride(facts, b) for b in buffers if b.persistent)
        demand = sum(stride(facts, b) * lives[b.name] for b in buffers if not b.persistent)
        if free > 0:
            worst = max(worst, ceil_div(demand, free))
    return worst


def _shortest_lives(facts: Facts) -> dict[str, int]:
    """Shortest possible lifetime of every buffer that is not persistent."""
    order = _order_within_iteration(facts)
    into: dict[str, list[tuple[str, int]]] = {name: [] for name in order}
    for e in facts.graph.edges:
        if e.distance == 0:
            into[e.dst].append((e.src, e.latency_cycles + facts.cheapest_cycles(e)))
    paths: dict[str, dict[str, int]] = {}

    def paths_from(writer: str) -> dict[str, int]:
        if writer not in paths:
            reach = {writer: 0}
            for name in order:
                steps = [reach[src] + weight for src, weight in into[name] if src in reach]
                if steps:
                    reach[name] = max(steps)
            paths[writer] = reach
        return paths[writer]

    lives = {}
    for buffer in facts.graph.buffers:
        if not buffer.persistent:
            near = [r for r in buffer.readers if r.distance == 0]
            known = [paths_from(w)[r.op] + r.hold_cycles for w in buffer.writers for r in near if r.op in paths_from(w)]
            lives[buffer.name] = max([1, *known])
    return lives


def _order_within_iteration(facts: Facts) -> tuple[str, ...]:
    before: dict[str, set[str]] = {op.name: set() for op in facts.graph.ops}
    for e in facts.graph.edges:
        if e.distance == 0:
            before[e.dst].add(e.src)
    return tuple(TopologicalSorter(before).static_order())


def critical_path(facts: Facts) -> int | None:
    """A lower bound on L at this I: the longest path, hand-overs at their cheapest, with the span of its last op.

    Starts are multiples of the time unit, so every step is rounded up to it. None if I is below the recurrence bound: then
    no path is longest.
    """
    unit = facts.options.time_unit_cycles
    earliest = dict.fromkeys(facts.ops, 0)
    edges = [(e.src, e.dst, round_up(e.latency_cycles + facts.cheapest_cycles(e) - e.distance * facts.ii, unit)) for e in facts.graph.edges]
    for _ in range(len(earliest) + 1):
        changed = False
        for src, dst, weight in edges:
            if earliest[src] + weight > earliest[dst]:
                earliest[dst] = earliest[src] + weight
                changed = True
        if not changed:
            return max(at + round_up(facts.ops[name].span_cycles, unit) for name, at in earliest.items())
    return None


def bound_fields(facts: Facts, given: dict[str, int]) -> Iterator[Finding]:
    """``lower_bounds_cycles`` lists the four bounds with their values, and none is above I."""
    right = lower_bounds(facts)
    for name in sorted(set(given) - set(right)):
        yield finding("lower-bounds", name, None, f"there is no such bound; the bounds are {', '.join(BOUNDS)}")
    for name, bound in right.items():
        if name not in given:
            yield finding("lower-bounds", name, None, f"the bound is {bound}, the file does not list it")
        elif given[name] != bound:
            yield finding("lower-bounds", name, None, f"the bound is {bound}, the file says {given[name]}")
        if bound > facts.ii:
            yield finding("lower-bounds", name, None, f"the bound is {bound}, above the initiation interval {facts.ii}")
    shortest = critical_path(facts)
    if shortest is not None and facts.length < shortest:
        yield finding("lower-bounds", "critical-path", None, f"the bound is {shortest}, above the length {facts.length}")
