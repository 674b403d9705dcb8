"""A list scheduler with no look-ahead: good enough to turn a real graph into a legal, far from optimal schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import networkx as nx

from twill.model.graph import Edge, LoopGraph, Op
from twill.model.machine import Machine


def greedy_starts(graph: LoopGraph, machine: Machine, groups: Mapping[str, Sequence[str]], ii: int) -> dict[str, int] | None:
    """Starts of all ops, or None if placing them one by one fails at this I. Loads go last and as late as they can."""
    group = {op: name for name, ops in groups.items() for op in ops}
    used = {unit: [0] * ii for unit in machine.units}
    issuing = {name: [0] * ii for name in groups}

    def cells(op: Op, at: int) -> list[tuple[list[int], int, int, int, int]]:
        held = [(used[r.unit], at + r.offset, r.cycles, r.amount, machine.capacity(r.unit)) for r in op.reservations]
        return [*held, (issuing[group[op.name]], at, op.issue_cycles, 1, 1)]

    def fits(op: Op, at: int) -> bool:
        return all(row[c % ii] + amount <= most for row, begin, n, amount, most in cells(op, at) for c in range(begin, begin + n))

    def put(op: Op, at: int) -> None:
        starts[op.name] = at
        for row, begin, n, amount, _ in cells(op, at):
            for c in range(begin, begin + n):
                row[c % ii] += amount

    def behind(e: Edge) -> int:
        """An MMA of another group may come before one that somebody waits for."""
        if {graph.op(e.src).unit, graph.op(e.dst).unit} & {"tensor"} != {graph.op(e.src).unit}:
            return 0
        others = [r.cycles for w in graph.ops for r in w.reservations if r.unit == w.unit == "tensor" and group[w.name] != group[e.src]]
        return max(others, default=0)

    def gap(e: Edge) -> int:
        cost = e.same_group_cycles if group[e.src] == group[e.dst] else e.cross_group_cycles
        return e.latency_cycles + cost + behind(e) - e.distance * ii

    starts: dict[str, int] = {}
    inside = nx.DiGraph()
    inside.add_nodes_from(op.name for op in graph.ops)
    inside.add_edges_from((e.src, e.dst) for e in graph.edges if e.distance == 0)
    order = [graph.op(name) for name in nx.lexicographical_topological_sort(inside)]
    for op in (op for op in order if not op.variable_latency):
        ready = max((starts[e.src] + gap(e) for e in graph.edges if e.dst == op.name and e.src in starts), default=0)
        at = next((t for t in range(max(0, ready), max(0, ready) + ii, 4) if fits(op, t)), None)
        if at is None:
            return None
        put(op, at)
    for op in (op for op in order if op.variable_latency):
        due = min(starts[e.dst] - gap(e) for e in graph.edges if e.src == op.name and e.dst in starts)
        at = next((t for t in range(due, due - ii, -4) if fits(op, t)), None)
        if at is None:
            return None
        put(op, at)
    if any(starts[e.dst] < starts[e.src] + gap(e) for e in graph.edges):
        return None
    first = min(starts.values())
    return {name: at - first for name, at in starts.items()}
