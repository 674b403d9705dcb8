"""A candidate schedule, and everything that follows from its starts and groups.

The quantities are defined in ``docs/formulation.md``; `broken` names what a relaxed formula let through.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from twill.solver.encoding.build import Lazy
from twill.solver.problem import BufferSpec, Problem, ValueSpec
from twill.solver.queues import held_up_pairs, most_margin, rivals, step_cycles, waiting

__all__ = ["Candidate", "broken", "group_needs", "lifetime", "margin", "place", "pressures", "rank_key", "stages_needed"]

MOST_STAGES = 16
"""Of a ring that is given spare SMEM: tiles of a small head dim would fill it with more slots than their barriers have room for."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Starts in cycles and a group number for every op, at one I."""

    ii: int
    starts: tuple[int, ...]
    groups: tuple[int, ...]

    def length(self, p: Problem) -> int:
        """L: the end of the last op, rounded up to the time unit."""
        longest = max(t + op.span for t, op in zip(self.starts, p.ops, strict=True))
        return -(-longest // p.unit_cycles) * p.unit_cycles

    def members(self) -> dict[int, list[int]]:
        """Ops by group."""
        result: dict[int, list[int]] = {}
        for v, g in enumerate(self.groups):
            result.setdefault(g, []).append(v)
        return result


def lifetime(p: Problem, c: Candidate, b: BufferSpec) -> tuple[int, int]:
    """First write and last release of a buffer in iteration 0."""
    start = min(c.starts[w] for w in b.writers)
    end = max(
        c.starts[r.op] + r.distance * c.ii + r.hold + (r.cross if any(c.groups[r.op] != c.groups[w] for w in b.writers) else 0)
        for r in b.readers
    )
    return start, max(start + 1, end)


def margin(p: Problem, c: Candidate) -> int:
    """By how much every result that may be late can be later than the rule queueing demands, in whole steps."""
    least = most_margin(p)
    for e in waiting(p) if p.on("queueing") else ():
        ahead = [p.ops[w].queue for w in rivals(p, e.src) if c.groups[w] != c.groups[e.src]]
        if not ahead:
            continue
        ready = c.starts[e.src] + (e.same if c.groups[e.src] == c.groups[e.dst] else e.cross)
        least = min(least, c.starts[e.dst] + e.distance * c.ii - ready - max(ahead))
    return least // step_cycles(p) * step_cycles(p)


def stages_needed(p: Problem, c: Candidate, b: BufferSpec) -> int:
    """Copies that the live range takes; 1 for a persistent buffer."""
    if b.persistent or not p.on("memory"):
        return 1
    start, end = lifetime(p, c, b)
    return max(1, -(-(end - start) // c.ii))


def _held(p: Problem, c: Candidate, v: ValueSpec) -> tuple[int, int]:
    home = c.groups[v.producer]
    ends = [c.starts[r.op] + r.distance * c.ii + r.hold for r in v.readers if c.groups[r.op] == home]
    return c.starts[v.producer], max([c.starts[v.producer] + p.ops[v.producer].latency, *ends])


def _alive_at(start: int, end: int, at: int, ii: int) -> int:
    """How many copies of [start, end) shifted by multiples of I contain ``at``."""
    if end <= start:
        return 0
    # k with start <= at + k I < end
    return (end - 1 - at) // ii - (start - 1 - at) // ii


def pressures(p: Problem, c: Candidate) -> dict[int, int]:
    """Largest number of registers alive per thread in each group."""
    ranges = {v.name: None if v.persistent else _held(p, c, v) for v in p.values}
    result: dict[int, int] = {}
    for g, members in c.members().items():
        copies = [(v.registers, c.starts[r.op], c.starts[r.op] + p.ops[r.op].issue) for v in p.values if c.groups[v.producer] != g
                  for r in v.readers if c.groups[r.op] == g]  # fmt: skip
        best = 0
        for u in members:
            at = c.starts[u]
            total = 0
            for v in p.values:
                if c.groups[v.producer] == g:
                    held = ranges[v.name]
                    total += v.registers * (1 if held is None else _alive_at(*held, at, c.ii))
            total += sum(n * _alive_at(start, end, at, c.ii) for n, start, end in copies)
            best = max(best, total)
        result[g] = best
    return result


def group_needs(p: Problem, c: Candidate) -> dict[int, int]:
    """``setmaxnreg`` request of each group."""
    r = p.machine.registers
    granule, least = int(r.granularity.value), int(r.per_thread_min.value)
    needs = {}
    for g, pressure in pressures(p, c).items():
        need = pressure + p.overhead if pressure else int(r.issuer_per_thread.value)
        needs[g] = max(least, -(-need // granule) * granule)
    return needs


def group_warps(p: Problem, c: Candidate) -> dict[int, int]:
    """Warps of each group."""
    return {g: max(p.ops[v].warps for v in members) for g, members in c.members().items()}


def file_use(p: Problem, c: Candidate) -> int:
    """Registers that all groups ask of the file."""
    needs, warps = group_needs(p, c), group_warps(p, c)
    total = sum(32 * warps[g] * needs[g] for g in needs if warps[g] % 4 == 0)
    narrow = [g for g in needs if warps[g] % 4]
    if narrow:
        total += 128 * -(-sum(warps[g] for g in narrow) // 4) * max(needs[g] for g in narrow)
    return total


def _occupied(p: Problem, c: Candidate, b: BufferSpec) -> tuple[int, int] | None:
    """Cycles in which a buffer occupies its addresses; None means always."""
    if b.persistent or stages_needed(p, c, b) > 1:
        return None
    return lifetime(p, c, b)


def _apart(x: tuple[int, int] | None, y: tuple[int, int] | None, ii: int) -> bool:
    if x is None or y is None:
        return False
    gap = (y[0] - x[0]) % ii
    return gap >= x[1] - x[0] and ii - gap >= y[1] - y[0]


def place(p: Problem, c: Candidate, memory: str, stages: dict[str, int]) -> dict[str, int] | None:
    """Offsets of all buffers of a memory with these stages; None if there are none (exhaustive search)."""
    buffers = sorted((b for b in p.buffers if b.memory == memory), key=lambda b: (-b.size * stages[b.name], b.name))
    room = p.memory[memory]
    if not p.machine.memories[memory].overlay:
        offsets, at = {}, 0
        for b in (b for b in p.buffers if b.memory == memory):
            offsets[b.name] = at
            at += b.size * stages[b.name]
        return offsets if at <= room else None
    occupied = {b.name: None if stages[b.name] > 1 else _occupied(p, c, b) for b in buffers}
    offsets = {}

    def fits(b: BufferSpec, at: int) -> bool:
        for other in buffers:
            o = offsets.get(other.name)
            if o is None or _apart(occupied[b.name], occupied[other.name], c.ii):
                continue
            if at < o + other.size * stages[other.name] and o < at + b.size * stages[b.name]:
                return False
        return True

    def search(k: int) -> bool:
        if k == len(buffers):
            return True
        b = buffers[k]
        step = p.machine.memories[memory].alignment
        for at in range(0, room - b.size * stages[b.name] + 1, step):
            if fits(b, at):
                offsets[b.name] = at
                if search(k + 1):
                    return True
                del offsets[b.name]
        return False

    return offsets if search(0) else None


def level_grid(p: Problem) -> tuple[int, ...]:
    """Levels of register need to begin with, every other multiple of the granularity."""
    r = p.machine.registers
    granule = int(r.granularity.value)
    return tuple(range(int(r.per_thread_min.value) + 2 * granule, int(r.per_thread_max.value), 2 * granule))


def broken(p: Problem, c: Candidate, lazy: Lazy) -> Lazy | None:
    """What the formula must spell out because this model breaks it; None if the model is a schedule.

    Raises
    ------
    AssertionError : the model breaks a rule that the formula already spells out.
    """
    if p.on("capacity") and not lazy.cumulative and _overbooked(p, c):
        return Lazy(True, lazy.registers, lazy.levels, lazy.placement)
    if p.on("register-limit") and max(group_needs(p, c).values()) > p.register_limit:
        assert not lazy.registers, "a model breaks the register limit that its formula contains"
        return Lazy(lazy.cumulative, True, lazy.levels, lazy.placement)
    if p.on("register-file") and file_use(p, c) > int(p.machine.registers.file.value):
        granule = int(p.machine.registers.granularity.value)
        new = lazy if lazy.levels else Lazy(lazy.cumulative, True, level_grid(p), lazy.placement)
        if new == lazy or not new.levels:
            for need in group_needs(p, c).values():
                new = new.with_level(need - granule)
        assert new != lazy, "a model breaks the register file at levels that its formula contains"
        return new
    if p.on("placement") and any(place(p, c, m, {b.name: stages_needed(p, c, b) for b in p.buffers}) is None for m in p.memory):
        assert not lazy.placement, "a model has no placement although its formula contains one"
        return Lazy(lazy.cumulative, lazy.registers, lazy.levels, True)
    return None


def _overbooked(p: Problem, c: Candidate) -> bool:
    """Whether some unit serves more than its capacity in some cycle."""
    for unit, cap in p.capacity.items():
        if p.machine.units[unit].elastic:
            continue
        uses = [(c.starts[v] + x.offset, x) for v, op in enumerate(p.ops) for x in op.uses if x.unit == unit]
        for at, _ in uses:
            if sum(x.amount * _alive_at(start, start + x.length, at, c.ii) for start, x in uses) > cap:
                return True
    return False


def cross_edges(p: Problem, c: Candidate) -> Iterator[int]:
    """Indices of edges between different groups."""
    return (k for k, e in enumerate(p.edges) if c.groups[e.src] != c.groups[e.dst])


def rank_key(p: Problem, c: Candidate) -> tuple[int, int, int, int, int]:
    """Groups, work held up, hand-overs, waits and register peak: smaller is better, in this order."""
    crossing = [p.edges[k] for k in cross_edges(p, c)]
    return (
        len(set(c.groups)),
        sum(1 for v, x in held_up_pairs(p) if c.groups[v] == c.groups[x] and c.starts[x] >= c.starts[v]),
        len({(e.src, e.dst, e.distance) for e in crossing}),
        len({(e.src, c.groups[e.dst]) for e in crossing}),
        max(pressures(p, c).values(), default=0),
    )


def spare_stages(p: Problem, c: Candidate) -> dict[str, int]:
    """Stages of every buffer, free SMEM given out to prefetch rings: always to the one with the least slack, up to `MOST_STAGES`."""
    stages = {b.name: stages_needed(p, c, b) for b in p.buffers}
    for memory in p.memory:
        rings = [b for b in p.buffers if b.memory == memory and b.prefetch and not b.persistent]
        if p.machine.memories[memory].overlay or not rings or not p.on("memory"):
            continue
        free = p.memory[memory] - sum(b.size * stages[b.name] for b in p.buffers if b.memory == memory)
        while True:
            fitting = [b for b in rings if b.size <= free and stages[b.name] < MOST_STAGES]
            ring = min(fitting, key=lambda b: (slack(p, c, b, stages[b.name]), b.name), default=None)
            worst = min(slack(p, c, b, stages[b.name]) for b in rings)
            if ring is None or slack(p, c, ring, stages[ring.name]) > worst:
                break
            stages[ring.name] += 1
            free -= ring.size
    return stages


def slack(p: Problem, c: Candidate, b: BufferSpec, stages: int) -> int:
    """Cycles by which the producer of a ring may be late before a consumer waits."""
    start, end = lifetime(p, c, b)
    return stages * c.ii - (end - start)


def same_modulo_order(p: Problem, c: Candidate) -> Iterator[tuple[int, int, int]]:
    """(u, v, k) such that k periods lie between the issues of u and v, for every pair of ops that share a unit or group."""
    for u, v in itertools.combinations(range(len(p.ops)), 2):
        shares = c.groups[u] == c.groups[v] or any(a.unit == b.unit for a in p.ops[u].uses for b in p.ops[v].uses)
        if shares:
            yield u, v, (c.starts[v] - c.starts[u]) // c.ii
