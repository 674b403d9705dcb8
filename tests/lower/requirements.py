"""What a run must respect, straight from the schedule: every pair of op instances that must be ordered, for a trip count.

Written without twill.lower: edges, every reuse of a buffer stage or register, and address conflicts of overlaid buffers by
looking at who occupies an address when.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from twill.model.schedule import Schedule

Pair = tuple[str, tuple[str, int], tuple[str, int]]


def required(schedule: Schedule, trip_count: int) -> Iterator[Pair]:
    """(why, earlier, later): the earlier op is done before the later one begins."""
    inside = range(trip_count)
    for why, u, i, v, j in _all(schedule, trip_count):
        if i in inside and j in inside and (u, i) != (v, j):
            yield why, (u, i), (v, j)


def _all(schedule: Schedule, trip_count: int) -> Iterator[tuple[str, str, int, str, int]]:
    graph, ii = schedule.graph, schedule.ii_cycles
    start = {op.name: op.start_cycle for op in schedule.ops}
    group = {op.name: op.group for op in schedule.ops}
    latency = {op.name: op.latency_cycles for op in graph.ops}
    stages = {b.name: b.stages for b in schedule.buffers}
    for e in graph.edges:
        for i in range(trip_count):
            yield f"edge {e.label}", e.src, i - e.distance, e.dst, i
            if e.kind == "registers" and group[e.src] != group[e.dst]:
                # a slot of the hand-over may be used again only when it is read; nothing needs more than 4
                yield f"slot {e.label}", e.dst, i + e.distance - 4, e.src, i
    for b in (b for b in graph.buffers if not b.persistent):
        for w in b.writers:
            for r in b.readers:
                for i in range(trip_count):
                    yield f"reuse {b.name}", r.op, i + r.distance - stages[b.name], w, i
    for value in (v for v in graph.values if not v.persistent):
        mine = [r for r in value.readers if group[r.op] == group[value.producer]]
        life = max((start[r.op] + r.distance * ii + r.hold_cycles for r in mine), default=0)
        life = max(life, start[value.producer] + latency[value.producer]) - start[value.producer]
        copies = max(1, math.ceil(life / ii))
        for r in mine:
            for i in range(trip_count):
                yield f"registers {value.name}", r.op, i + r.distance - copies, value.producer, i
    yield from _overlays(schedule, trip_count)


def _overlays(schedule: Schedule, trip_count: int) -> Iterator[tuple[str, str, int, str, int]]:
    placed = {b.name: b for b in schedule.buffers}
    start = {op.name: op.start_cycle for op in schedule.ops}
    single = [b for b in schedule.graph.buffers if not b.persistent and placed[b.name].stages == 1 and b.memory == "tmem"]
    for a in single:
        for b in single:
            p, q = placed[a.name], placed[b.name]
            if a.name == b.name or p.offset + p.size <= q.offset or q.offset + q.size <= p.offset:
                continue
            for i in range(trip_count):
                for j in range(trip_count):
                    if _occupied(start, schedule, a.writers, i) < _occupied(start, schedule, b.writers, j):
                        yield from ((f"overlay {b.name} on {a.name}", r.op, i + r.distance, w, j) for r in a.readers for w in b.writers)


def _occupied(start: dict[str, int], schedule: Schedule, writers: tuple[str, ...], i: int) -> int:
    return min(start[w] for w in writers) + i * schedule.ii_cycles
