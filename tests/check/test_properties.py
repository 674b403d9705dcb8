"""Event points against cycle-by-cycle simulation of unrolled iterations, bounds against enumeration."""

from __future__ import annotations

import networkx as nx
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from twill.check import check_schedule
from twill.check.bounds import critical_path, lower_bounds
from twill.check.facts import facts_of
from twill.check.periodic import Span, first_common_cycle, peak
from twill.check.registers import pressure
from twill.model.graph import Buffer, Edge, LoopGraph, Op, Reader, RegisterValue, Reservation
from twill.model.machine import Machine
from twill.model.schedule import Options, Schedule

from .authoring import bounds, handmade_machine, pressures, recurrence_bound, write_schedule
from .authoring import critical_path as enumerated_path

PERIODS = st.integers(1, 30)
SPANS = st.lists(
    st.builds(Span, owner=st.sampled_from("abcdef"), start=st.integers(-40, 90), length=st.integers(0, 80), amount=st.integers(1, 100)),
    max_size=8,
)


def unrolled(spans: list[Span], period: int) -> list[int]:
    """Sum of amounts in one period of the steady state: iterations are played one after another, cycle by cycle."""
    past = 1 + max((s.start + s.length for s in spans), default=0) // period
    ahead = 1 + max((-s.start for s in spans), default=0) // period
    window = [0] * period
    for iteration in range(-past - 1, ahead + 2):
        for s in spans:
            for cycle in range(s.start + iteration * period, s.start + s.length + iteration * period):
                if 0 <= cycle < period:
                    window[cycle] += s.amount
    return window


@given(SPANS, PERIODS)
def test_peak_is_that_of_the_unrolled_loop(spans: list[Span], period: int) -> None:
    top = peak(spans, period)
    window = unrolled(spans, period)
    assert top.amount == max(window)
    assert window[top.cycle] == top.amount
    holders = {s.owner for s in spans if max(unrolled([s], period)) > 0 and unrolled([s], period)[top.cycle] > 0}
    assert set(top.owners) == holders
    assert set(top.beginners) <= holders
    assert bool(top.beginners) == bool(holders)


@given(SPANS, PERIODS)
def test_two_spans_meet_when_the_unrolled_loop_says_so(spans: list[Span], period: int) -> None:
    assume(len(spans) >= 2)
    a, b = spans[:2]
    one, other = unrolled([a], period), unrolled([b], period)
    common = [c for c in range(period) if one[c] and other[c]]
    cycle = first_common_cycle(a, b, period)
    assert (cycle is not None) == bool(common)
    assert cycle is None or cycle in common


Loop = tuple[LoopGraph, int, dict[str, int], dict[str, str]]
NAMES = ("A", "B", "C", "D")


@st.composite
def loops(draw: st.DrawFn) -> Loop:
    """Up to four ops with random reservations, a register value and a buffer, at random starts in random groups."""
    names = NAMES[: draw(st.integers(2, 4))]
    ops = []
    for name in names:
        amount, offset = st.integers(1, 100), st.integers(0, 6)
        held = st.builds(Reservation, unit=st.sampled_from(["tensor", "alu"]), cycles=st.integers(1, 25), amount=amount, offset=offset)
        issue = draw(st.integers(1, 12))
        ops.append(
            Op(name=name, kind="x", unit="alu", latency_cycles=draw(st.integers(1, issue)), issue_cycles=issue,
               reservations=tuple(draw(st.lists(held, max_size=2))))
        )  # fmt: skip
    op, hold, distance = st.sampled_from(names), st.integers(0, 30), st.integers(0, 2)
    reader = st.builds(Reader, op=op, hold_cycles=hold, distance=distance, cross_group_cycles=st.integers(0, 9))
    readers = st.lists(reader, min_size=1, max_size=3).map(tuple)
    values = [
        RegisterValue(
            name=f"v{i}", producer=draw(op), registers=draw(st.integers(1, 20)), readers=draw(readers), persistent=draw(st.booleans())
        )
        for i in range(draw(st.integers(0, 3)))
    ]
    writers = st.lists(op, min_size=1, max_size=2, unique=True).map(tuple)
    buffers = [
        Buffer(
            name=f"b{i}",
            memory=draw(st.sampled_from(["smem", "tmem"])),
            size=draw(st.integers(1, 64)),
            writers=draw(writers),
            readers=draw(readers),
        )
        for i in range(draw(st.integers(0, 3)))
    ]
    edges = []
    for _ in range(draw(st.integers(0, 6))):
        src, dst = draw(op), draw(op)
        far = draw(st.integers(0 if names.index(src) < names.index(dst) else 1, 2))
        costs = {
            "latency_cycles": draw(st.integers(0, 20)),
            "same_group_cycles": draw(st.integers(0, 5)),
            "cross_group_cycles": draw(st.integers(0, 9)),
        }
        edges.append(Edge(src=src, dst=dst, kind="order", distance=far, **costs))
    graph = LoopGraph(name="any", machine="handmade", ops=tuple(ops), edges=tuple(edges), buffers=tuple(buffers), values=tuple(values))
    starts = {name: draw(st.integers(0, 60)) for name in names}
    group = {name: draw(st.sampled_from(["g", "h"])) for name in names}
    return graph, draw(st.integers(1, 40)), starts, group


def written(loop: Loop, machine: Machine, stages: int = 1) -> Schedule:
    graph, ii, starts, group = loop
    groups = {g: tuple(op for op in group if group[op] == g) for g in sorted(set(group.values()))}
    placed = {b.name: (0, stages) for b in graph.buffers}
    return write_schedule(graph, machine, ii=ii, starts=starts, groups=groups, placed=placed, options=Options(groups=2, max_copies=99))


def failing(schedule: Schedule, machine: Machine, rule: str) -> set[str]:
    return {f.op for f in check_schedule(schedule, machine).findings if f.rule == rule}


def each_cycle(graph: LoopGraph, starts: dict[str, int], ii: int, iterations: int = 12) -> dict[str, list[int]]:
    """What a steady period in the middle of ``iterations`` iterations holds of each unit."""
    end = 200 + iterations * ii + 200
    used = {unit: [0] * end for unit in ("tensor", "alu")}
    for i in range(iterations):
        for op in graph.ops:
            for r in op.reservations:
                for c in range(r.cycles):
                    used[r.unit][starts[op.name] + r.offset + i * ii + c] += r.amount
    return used


@settings(deadline=None)
@given(loops())
def test_capacity_is_that_of_twelve_iterations_played(loop: Loop) -> None:
    graph, ii, starts, _ = loop
    machine = handmade_machine()
    iterations = 3 + 100 // ii
    played = each_cycle(graph, starts, ii, iterations)
    over = {unit for unit, cycles in played.items() if max(cycles) > machine.capacity(unit)}
    found = [f for f in check_schedule(written(loop, machine), machine).findings if f.rule == "capacity"]
    assert {unit for unit in played if any(f" of unit {unit}," in f.message for f in found)} == over
    for f in found:
        assert f.cycle is not None and 0 <= f.cycle < ii


@settings(deadline=None)
@given(loops())
def test_concurrency_is_that_of_iterations_played(loop: Loop) -> None:
    graph, ii, starts, group = loop
    machine = handmade_machine()
    bad = set()
    for g in set(group.values()):
        busy: dict[int, int] = {}
        for i in range(3 + 100 // ii):
            for op in graph.ops:
                if group[op.name] == g:
                    for c in range(op.issue_cycles):
                        at = starts[op.name] + i * ii + c
                        busy[at] = busy.get(at, 0) + 1
        if max(busy.values()) > 1:
            bad.add(g)
    found = failing(written(loop, machine), machine, "concurrency")
    assert {op if op in ("g", "h") else group[op] for op in found} == bad


@settings(deadline=None)
@given(loops(), st.integers(1, 5))
def test_stages_are_enough_when_no_two_iterations_meet_in_one(loop: Loop, stages: int) -> None:
    graph, ii, starts, group = loop
    machine = handmade_machine()
    short = set()
    for b in graph.buffers:
        owner: dict[tuple[int, int], int] = {}
        for i in range(3 * stages):
            begin = min(starts[w] for w in b.writers) + i * ii
            for r in b.readers:
                away = any(group[w] != group[r.op] for w in b.writers)
                end = starts[r.op] + (i + r.distance) * ii + r.hold_cycles + (r.cross_group_cycles if away else 0)
                for cycle in range(begin, end):
                    if owner.setdefault((i % stages, cycle), i) != i:
                        short.add(b.name)
    assert failing(written(loop, machine, stages), machine, "memory") & {b.name for b in graph.buffers if b.memory == "smem"} == {
        b.name for b in graph.buffers if b.name in short and b.memory == "smem"
    }


@settings(deadline=None)
@given(loops())
def test_overlaid_memory_is_that_of_every_cycle(loop: Loop) -> None:
    """Buffers of one stage at address 0: placement refuses exactly the pairs that some cycle has both of."""
    graph, ii, starts, group = loop
    machine = handmade_machine()
    occupied: dict[str, set[int]] = {}
    for b in graph.buffers:
        if b.memory == "tmem":
            begin = min(starts[w] for w in b.writers)
            ends = [
                starts[r.op]
                + r.distance * ii
                + r.hold_cycles
                + (r.cross_group_cycles if any(group[w] != group[r.op] for w in b.writers) else 0)
                for r in b.readers
            ]
            occupied[b.name] = {c % ii for c in range(begin, max(begin + 1, *ends))}
    names = list(occupied)
    meeting = {a for i, a in enumerate(names) for b in names[i + 1 :] if occupied[a] & occupied[b]}
    found = failing(written(loop, machine), machine, "placement")
    assert found & set(names) == meeting


@settings(deadline=None)
@given(loops())
def test_pressure_is_that_of_every_cycle(loop: Loop) -> None:
    graph, ii, starts, group = loop
    facts = facts_of(written(loop, handmade_machine()), handmade_machine())
    assert {g: top.amount for g, top in pressure(facts).items()} == pressures(graph, starts, group, ii)


@settings(deadline=None)
@given(loops())
def test_bounds_are_those_of_enumeration(loop: Loop) -> None:
    graph, ii, _, _ = loop
    machine = handmade_machine()
    schedule = written(loop, machine)
    facts = facts_of(schedule, machine)
    assert lower_bounds(facts) == bounds(graph, machine, schedule.options)
    if ii >= recurrence_bound(graph, schedule.options):
        assert critical_path(facts) == enumerated_path(graph, schedule.options, ii)
    else:
        assert critical_path(facts) is None


@settings(deadline=None)
@given(loops())
def test_dependence_is_every_edge_of_every_iteration(loop: Loop) -> None:
    graph, ii, starts, group = loop
    machine = handmade_machine()
    late = set()
    for e in graph.edges:
        for i in range(e.distance, e.distance + 3):
            result = starts[e.src] + (i - e.distance) * ii + e.latency_cycles
            seen = result + (e.same_group_cycles if group[e.src] == group[e.dst] else e.cross_group_cycles)
            if starts[e.dst] + i * ii < seen:
                late.add(e.dst)
    schedule = written(loop, machine)
    assert failing(schedule, machine, "dependence") | failing(schedule, machine, "hand-over") == late


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 50), st.integers(0, 3)), max_size=12))
def test_recurrence_bound_is_exact(arcs: list[tuple[int, int, int, int]]) -> None:
    """Against enumeration of all simple cycles, parallel edges included."""
    ops = tuple(Op(name=f"N{i}", kind="x", unit="alu", latency_cycles=1, issue_cycles=1) for i in range(5))
    edges = tuple(Edge(src=f"N{u}", dst=f"N{v}", kind="order", latency_cycles=w, distance=d) for u, v, w, d in arcs)
    inside = nx.DiGraph([(e.src, e.dst) for e in edges if e.distance == 0])
    assume(nx.is_directed_acyclic_graph(inside))
    graph = LoopGraph(name="any", machine="handmade", ops=ops, edges=edges)
    starts = {op.name: i for i, op in enumerate(ops)}
    schedule = write_schedule(graph, handmade_machine(), ii=5, starts=starts, groups={"g": tuple(starts)})
    assert lower_bounds(facts_of(schedule, handmade_machine()))["recurrence"] == recurrence_bound(graph, schedule.options)
