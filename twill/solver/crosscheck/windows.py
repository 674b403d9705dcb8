"""What can be said about one initiation interval without search: longest paths, energy, and stages of buffers.

Longest paths run over the ops and one more node, the origin: time 0 of iteration 0. Memory closes cycles: a buffer of at
most n stages lets its reader trail its writer by no more than n I.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twill.model.graph import Buffer
from twill.solver.crosscheck.rules import Problem

__all__ = ["ORIGIN", "Windows", "round_up", "windows"]

ORIGIN = ""
NEVER = -(10**12)


def round_up(value: int, step: int) -> int:
    """The smallest multiple of ``step`` that is not below ``value``."""
    return -(-value // step) * step


@dataclass(frozen=True, slots=True)
class Windows:
    """``gap[u][v]`` is the least M(v) - M(u); ``stages_max`` the most stages a buffer can have, where memory says so."""

    gap: Mapping[str, Mapping[str, int]]
    life_min: Mapping[str, int]
    stages_max: Mapping[str, int]


def windows(problem: Problem, ii: int, length: int) -> Windows | None:
    """Windows of all ops at initiation interval ``ii`` and length at most ``length``; None if there is no schedule at all."""
    if not _energy_fits(problem, ii):
        return None
    gap = _edges(problem, ii, length)
    stages: dict[str, int] = {}
    while True:
        if not _close(gap):
            return None
        life = {b.name: _least_life(problem, gap, b, ii) for b in problem.graph.buffers}
        found = _most_stages(problem, life, ii, length)
        if found is None:
            return None
        if found == stages:
            return Windows(gap, life, stages)
        stages = found
        _bound_lifetimes(problem, gap, stages, ii)


def _energy_fits(problem: Problem, ii: int) -> bool:
    if problem.rule("capacity"):
        for unit in problem.machine.units:
            work = sum(r.amount * r.cycles for op in problem.graph.ops for r in op.reservations if r.unit == unit)
            if work > problem.machine.capacity(unit) * ii:
                return False
    return not problem.rule("concurrency") or all(op.issue_cycles <= ii for op in problem.graph.ops)


def _edges(problem: Problem, ii: int, length: int) -> dict[str, dict[str, int]]:
    nodes = [ORIGIN, *problem.ops]
    gap = {u: {v: 0 if u == v else NEVER for v in nodes} for u in nodes}
    for op in problem.graph.ops:
        gap[ORIGIN][op.name] = 0
        gap[op.name][ORIGIN] = round_up(op.span_cycles - length, problem.unit)
    for e in problem.graph.edges:
        least = round_up(e.latency_cycles + problem.cheapest_cycles(e) - e.distance * ii, problem.unit)
        gap[e.src][e.dst] = max(gap[e.src][e.dst], least)
    return gap


def _close(gap: dict[str, dict[str, int]]) -> bool:
    """Longest paths in place; False if a cycle is longer than 0."""
    for k, from_k in gap.items():
        for row in gap.values():
            head = row[k]
            if head == NEVER:
                continue
            for v, tail in from_k.items():
                if head + tail > row[v]:
                    row[v] = head + tail
    return all(row[u] <= 0 for u, row in gap.items())


def _release_cycles(problem: Problem, buffer: Buffer, writer: str, index: int) -> int:
    reader = buffer.readers[index]
    return reader.hold_cycles + (reader.cross_group_cycles if frozenset((writer, reader.op)) in problem.apart else 0)


def _least_life(problem: Problem, gap: Mapping[str, Mapping[str, int]], buffer: Buffer, ii: int) -> int:
    if buffer.persistent:
        return ii
    return max(
        gap[w][r.op] + r.distance * ii + _release_cycles(problem, buffer, w, i)
        for w in buffer.writers
        for i, r in enumerate(buffer.readers)
    )


def _most_stages(problem: Problem, life: Mapping[str, int], ii: int, length: int) -> dict[str, int] | None:
    """The most stages that the other buffers leave to each one; None if even the fewest do not fit."""
    most: dict[str, int] = {}
    if not problem.rule("memory"):
        return most
    for name, memory in problem.machine.memories.items():
        capacity = problem.capacity(name)
        buffers = [b for b in problem.graph.buffers if b.memory == name]
        fewest = {b.name: 1 if b.persistent else max(1, -(-life[b.name] // ii)) for b in buffers}
        size = {b.name: round_up(fewest[b.name] * b.size, memory.alignment) for b in buffers}
        for_good = {b.name for b in buffers if not memory.overlay or b.persistent or fewest[b.name] > 1}
        fixed = sum(size[n] for n in for_good)
        brief = [b for b in buffers if b.name not in for_good and life[b.name] > 0]
        if fixed * ii + sum(size[b.name] * life[b.name] for b in brief) > capacity * ii:
            return None
        if any(fixed + size[b.name] > capacity for b in brief):
            return None
        for b in buffers:
            if b.persistent:
                most[b.name] = 1
                continue
            others = fixed - (size[b.name] if b.name in for_good else 0)
            others += max((size[o.name] for o in brief if o is not b), default=0)
            n = fewest[b.name]
            ceiling = max(
                n, length // ii + 2 + max((r.distance for r in b.readers), default=0) + max(r.hold_cycles for r in b.readers) // ii
            )
            while n < ceiling and others + round_up((n + 1) * b.size, memory.alignment) <= capacity:
                n += 1
            if n < ceiling:
                most[b.name] = n
    return most


def _bound_lifetimes(problem: Problem, gap: dict[str, dict[str, int]], stages: Mapping[str, int], ii: int) -> None:
    for b in problem.graph.buffers:
        if b.persistent or b.name not in stages:
            continue
        for w in b.writers:
            for i, r in enumerate(b.readers):
                least = r.distance * ii + _release_cycles(problem, b, w, i) - stages[b.name] * ii
                gap[r.op][w] = max(gap[r.op][w], round_up(least, problem.unit))
