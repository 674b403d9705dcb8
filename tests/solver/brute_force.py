"""Exhaustive search for tiny graphs: every start vector, every partition into groups, judged cycle by cycle.

Reads docs/formulation.md as literally as it can and shares no code with twill.solver or twill.check. Meant for at most 5 ops
and initiation intervals of a few cycles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from twill.model.graph import Buffer, Edge, LoopGraph
from twill.model.machine import Machine
from twill.model.schedule import Options

Starts = Mapping[str, int]
Groups = Mapping[str, int]


@dataclass(frozen=True)
class Best:
    ii_cycles: int
    margin_cycles: int
    length_cycles: int
    starts: Starts
    groups: Groups


def optimum(graph: LoopGraph, machine: Machine, options: Options) -> Best | None:
    """The smallest I, then the largest margin, then the smallest L; None if no I up to ``options.max_ii_cycles`` has a schedule."""
    assert options.max_ii_cycles is not None
    unit = options.time_unit_cycles
    partitions = [g for g in _partitions([op.name for op in graph.ops]) if broken_by_groups(graph, machine, options, g) is None]
    for ii in range(unit, options.max_ii_cycles + 1, unit):
        vectors = [(length_of(graph, options, starts), starts) for starts in _start_vectors(graph, machine, options, ii)]
        vectors.sort(key=lambda v: v[0])
        best: Best | None = None
        for (length, starts), groups in product(vectors, partitions):
            margin = margin_of(graph, machine, options, ii, starts, groups)
            if best is not None and (margin, -length) <= (best.margin_cycles, -best.length_cycles):
                continue
            if broken_rule(graph, machine, options, ii, starts, groups) is None:
                best = Best(ii, margin, length, starts, groups)
        if best is not None:
            return best
    return None


def _queue(graph: LoopGraph, machine: Machine, name: str) -> int:
    """Cycles for which an op keeps its queued unit from its issue on; 0 if it is not queued."""
    op = graph.op(name)
    if not op.asynchronous or op.variable_latency or not machine.queued(op.unit):
        return 0
    return max([0, *(r.offset + r.cycles for r in op.reservations if r.unit == op.unit)])


def patience(graph: LoopGraph, machine: Machine, options: Options, ii: int, starts: Starts, groups: Groups) -> list[int]:
    """For every wait for a queued op that has a queued op of its unit in another group: the cycles left beyond the longest of these."""
    left = []
    for e in graph.edges:
        if not _queue(graph, machine, e.src) or _queue(graph, machine, e.dst):
            continue
        unit = graph.op(e.src).unit
        others = [_queue(graph, machine, w.name) for w in graph.ops if w.unit == unit and groups[w.name] != groups[e.src]]
        if any(others):
            ready = starts[e.src] + e.latency_cycles + _crossing(e, options, groups) + max(others)
            left.append(starts[e.dst] + e.distance * ii - ready)
    return left


def margin_of(graph: LoopGraph, machine: Machine, options: Options, ii: int, starts: Starts, groups: Groups) -> int:
    """In cycles, the tiny machine having no step; negative if the rule queueing is broken."""
    most = max(_queue(graph, machine, op.name) for op in graph.ops)
    return min([most, *patience(graph, machine, options, ii, starts, groups)]) if _on(options, "queueing") else most


def length_of(graph: LoopGraph, options: Options, starts: Starts) -> int:
    """The smallest L, a multiple of the time unit, that holds all ops."""
    end = max(starts[op.name] + op.span_cycles for op in graph.ops)
    return -(-end // options.time_unit_cycles) * options.time_unit_cycles


def broken_rule(graph: LoopGraph, machine: Machine, options: Options, ii: int, starts: Starts, groups: Groups) -> str | None:
    """The name of a rule that the schedule breaks, or None if it is legal."""
    unit = options.time_unit_cycles
    if min(starts.values()) != 0 or any(s % unit for s in starts.values()) or ii % unit:
        return "completion"
    if length_of(graph, options, starts) > options.max_copies * ii:
        return "completion"
    for e in graph.edges:
        if starts[e.dst] + e.distance * ii < starts[e.src] + e.latency_cycles + _crossing(e, options, groups):
            return "dependence"
    if _on(options, "queueing") and any(left < 0 for left in patience(graph, machine, options, ii, starts, groups)):
        return "queueing"
    return (
        broken_by_groups(graph, machine, options, groups)
        or _broken_by_units(graph, machine, options, ii, starts)
        or _broken_by_issue(graph, options, ii, starts, groups)
        or _broken_by_registers(graph, machine, options, ii, starts, groups)
        or _broken_by_buffers(graph, machine, options, ii, starts, groups)
    )


def _on(options: Options, rule: str) -> bool:
    return rule not in options.without


def _crossing(e: Edge, options: Options, groups: Groups) -> int:
    if groups[e.src] != groups[e.dst] and _on(options, "hand-over"):
        return e.cross_group_cycles
    return e.same_group_cycles


def _times(begin: int, end: int, cycle: int, ii: int) -> int:
    """How often ``cycle`` of the period lies in [begin, end): the number of j with begin <= cycle + j I < end."""
    return sum(1 for t in range(begin, end) if t % ii == cycle)


def broken_by_groups(graph: LoopGraph, machine: Machine, options: Options, groups: Groups) -> str | None:
    """Rules that the partition alone can break."""
    used = sorted(set(groups.values()))
    members = {g: [op for op in graph.ops if groups[op.name] == g] for g in used}
    if _on(options, "variable-latency") and any(len({op.variable_latency for op in ops}) > 1 for ops in members.values()):
        return "variable-latency"
    if _on(options, "exposed-wait"):
        touching = {v.producer for v in graph.values} | {r.op for v in graph.values for r in v.readers}
        for e in graph.edges:
            v = graph.op(e.dst)
            waits = graph.op(e.src).variable_latency and v.asynchronous and not v.variable_latency and v.name not in touching
            if waits and any(not op.asynchronous for op in members[groups[v.name]]):
                return "exposed-wait"
    if _on(options, "warp-budget"):
        warps = [max(op.warps for op in ops) for ops in members.values()]
        shared = sum(w for w in warps if w % 4)
        total = sum(w for w in warps if w % 4 == 0) + (shared + 3) // 4 * 4
        if total > machine.registers.max_warps.value or len(used) > options.groups:
            return "warp-budget"
    if _on(options, "register-tiles") and any(groups[v.producer] != groups[r.op] for v in graph.values for r in v.readers):
        return "register-tiles"
    if _on(options, "blocking") and _blocked(graph, groups):
        return "blocking"
    if "local-registers" in options.with_rules and any(e.kind == "registers" and groups[e.src] != groups[e.dst] for e in graph.edges):
        return "local-registers"
    return None


def _blocked(graph: LoopGraph, groups: Groups) -> bool:
    """Whether a waiting op shares its group with free work that no path leads to."""
    waiting = {
        e.dst for e in graph.edges if e.kind in ("smem", "tmem") and graph.op(e.src).asynchronous and not graph.op(e.dst).asynchronous
    }
    inside = [(e.src, e.dst) for e in graph.edges if e.distance == 0]
    for w in waiting:
        reached = {w}
        while more := {b for a, b in inside if a in reached} - reached:
            reached |= more
        for x in graph.ops:
            if not x.asynchronous and x.name not in waiting and x.name not in reached and groups[x.name] == groups[w]:
                return True
    return False


def _broken_by_units(graph: LoopGraph, machine: Machine, options: Options, ii: int, starts: Starts) -> str | None:
    if not _on(options, "capacity"):
        return None
    for name, unit in machine.units.items():
        total = sum(r.amount * r.cycles for op in graph.ops for r in op.reservations if r.unit == name)
        if unit.elastic and total > machine.capacity(name) * ii:
            return "capacity"
    for unit, cycle in product([name for name, u in machine.units.items() if not u.elastic], range(ii)):
        held = 0
        for op in graph.ops:
            if op.name in starts:
                for r in op.reservations:
                    if r.unit == unit:
                        begin = starts[op.name] + r.offset
                        held += r.amount * _times(begin, begin + r.cycles, cycle, ii)
        if held > machine.capacity(unit):
            return "capacity"
    return None


def _broken_by_issue(graph: LoopGraph, options: Options, ii: int, starts: Starts, groups: Groups) -> str | None:
    if not _on(options, "concurrency"):
        return None
    for g in set(groups.values()):
        ops = [op for op in graph.ops if groups[op.name] == g]
        if sum(op.issue_cycles for op in ops) > ii:
            return "concurrency"
        for cycle in range(ii):
            if sum(_times(starts[op.name], starts[op.name] + op.issue_cycles, cycle, ii) > 0 for op in ops) > 1:
                return "concurrency"
    return None


def _broken_by_registers(graph: LoopGraph, machine: Machine, options: Options, ii: int, starts: Starts, groups: Groups) -> str | None:
    m = machine.registers
    request: dict[int, int] = {}
    for g in set(groups.values()):
        held = [0] * ii
        for v in graph.values:
            home = groups[v.producer] == g
            if home and v.persistent:
                held = [h + v.registers for h in held]
            elif home:
                ends = [starts[v.producer] + graph.op(v.producer).latency_cycles]
                ends += [starts[r.op] + r.distance * ii + r.hold_cycles for r in v.readers if groups[r.op] == g]
                held = [h + v.registers * _times(starts[v.producer], max(ends), c, ii) for c, h in enumerate(held)]
            else:
                for r in v.readers:
                    if groups[r.op] == g:
                        end = starts[r.op] + graph.op(r.op).issue_cycles
                        held = [h + v.registers * _times(starts[r.op], end, c, ii) for c, h in enumerate(held)]
        need = max(held) + m.overhead_per_thread.value if max(held) else m.issuer_per_thread.value
        step = int(m.granularity.value)
        request[g] = max(-(-int(need) // step) * step, int(m.per_thread_min.value))
        most = min(m.per_thread_max.value, options.registers or m.per_thread_max.value)
        if _on(options, "register-limit") and request[g] > most:
            return "register-limit"
    if _on(options, "register-file"):
        warps = {g: max(op.warps for op in graph.ops if groups[op.name] == g) for g in request}
        shared = [g for g in request if warps[g] % 4]
        total = sum(32 * warps[g] * request[g] for g in request if g not in shared)
        if shared:
            total += 128 * ((sum(warps[g] for g in shared) + 3) // 4) * max(request[g] for g in shared)
        if total > m.file.value:
            return "register-file"
    return None


@dataclass(frozen=True)
class _Placed:
    buffer: Buffer
    stages: int
    occupied: tuple[bool, ...]


def _broken_by_buffers(graph: LoopGraph, machine: Machine, options: Options, ii: int, starts: Starts, groups: Groups) -> str | None:
    for name, memory in machine.memories.items():
        capacity = machine.memory_size(name) - graph.reserved.get(name, 0)
        placed = [_life(b, options, ii, starts, groups) for b in graph.buffers if b.memory == name]

        def rounded(p: _Placed, step: int = memory.alignment) -> int:
            return p.stages * (-(-p.buffer.size // step) * step)

        if _on(options, "memory"):
            if not memory.overlay and sum(rounded(p) for p in placed) > capacity:
                return "memory"
            if memory.overlay and any(sum(rounded(p) for p in placed if p.occupied[c]) > capacity for c in range(ii)):
                return "memory"
        if _on(options, "placement") and not _place(placed, [], capacity, memory.alignment, memory.overlay):
            return "placement"
    return None


def _life(b: Buffer, options: Options, ii: int, starts: Starts, groups: Groups) -> _Placed:
    """The fewest stages of a buffer (any number will do without the rule memory) and the cycles that it occupies."""
    if b.persistent:
        return _Placed(b, 1, (True,) * ii)
    begin = min(starts[w] for w in b.writers)
    end = max(
        starts[r.op]
        + r.distance * ii
        + r.hold_cycles
        + (r.cross_group_cycles if _on(options, "hand-over") and any(groups[w] != groups[r.op] for w in b.writers) else 0)
        for r in b.readers
    )
    end = max(end, begin + 1)
    stages = max(1, -(-(end - begin) // ii)) if _on(options, "memory") else 1
    return _Placed(b, stages, tuple(stages > 1 or _times(begin, end, c, ii) > 0 for c in range(ii)))


def _place(todo: Sequence[_Placed], done: Sequence[tuple[_Placed, int]], capacity: int, step: int, overlay: bool) -> bool:
    if not todo:
        return True
    new = todo[0]

    def extent(p: _Placed) -> int:
        return p.stages * (-(-p.buffer.size // step) * step)

    for offset in range(0, capacity - extent(new) + 1, step):
        for old, at in done:
            apart = at + extent(old) <= offset or offset + extent(new) <= at
            single = new.stages == old.stages == 1 and not (new.buffer.persistent or old.buffer.persistent)
            never = not any(a and b for a, b in zip(new.occupied, old.occupied, strict=True))
            if not (apart or (overlay and single and never)):
                break
        else:
            if _place(todo[1:], [*done, (new, offset)], capacity, step, overlay):
                return True
    return False


def _partitions(names: Sequence[str]) -> Iterator[Groups]:
    """All partitions into groups, numbered by their first op."""

    def grow(i: int, groups: dict[str, int], count: int) -> Iterator[Groups]:
        if i == len(names):
            yield dict(groups)
            return
        for g in range(count + 1):
            groups[names[i]] = g
            yield from grow(i + 1, groups, max(count, g + 1))
        del groups[names[i]]

    yield from grow(0, {}, 0)


def _start_vectors(graph: LoopGraph, machine: Machine, options: Options, ii: int) -> Iterator[Starts]:
    """Start vectors that no group can repair are left out: dependences at their cheapest, and units, are looked at as ops are added."""
    last = options.max_copies * ii

    def possible(starts: Starts) -> bool:
        for e in graph.edges:
            if e.src in starts and e.dst in starts:
                cheapest = e.same_group_cycles
                if e.src != e.dst and _on(options, "hand-over"):
                    cheapest = min(cheapest, e.cross_group_cycles)
                if starts[e.dst] + e.distance * ii < starts[e.src] + e.latency_cycles + cheapest:
                    return False
        return _broken_by_units(graph, machine, options, ii, starts) is None

    def grow(i: int, starts: dict[str, int]) -> Iterator[Starts]:
        if i == len(graph.ops):
            if min(starts.values()) == 0:
                yield dict(starts)
            return
        op = graph.ops[i]
        for t in range(0, last - op.span_cycles + 1, options.time_unit_cycles):
            starts[op.name] = t
            if possible(starts):
                yield from grow(i + 1, starts)
        starts.pop(op.name, None)

    yield from grow(0, {})
