"""CP-SAT against exhaustive search, and the report on schedules that are right, wrong or too long."""

from __future__ import annotations

import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twill.errors import UsageError
from twill.model.graph import Buffer, Edge, LoopGraph, Op, Reader, Reservation
from twill.model.schedule import (
    Group,
    MachineRef,
    Options,
    Proof,
    ProofStep,
    Provenance,
    Rank,
    Schedule,
    ScheduledOp,
)
from twill.model.validate import validate_graph

from .brute_force import Best, broken_rule, optimum
from .tiny import TINY, graphs, mirrored, options, pipelines

pytest.importorskip("ortools")
from twill.solver.crosscheck import crosscheck, minimise

FEW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def agree(graph: LoopGraph, choice: Options) -> None:
    validate_graph(graph, TINY)
    best = optimum(graph, TINY, choice)
    found = minimise(graph, TINY, choice, timeout_s=60, workers=1)
    assert found.ii_proved and found.length_proved
    if best is None:
        assert found.witness is None
        return
    w = found.witness
    assert w is not None
    assert (w.ii_cycles, found.margin_cycles, w.length_cycles) == (best.ii_cycles, best.margin_cycles, best.length_cycles)
    assert broken_rule(graph, TINY, choice, w.ii_cycles, w.starts, w.groups) is None
    report = crosscheck(as_schedule(graph, choice, best), TINY, timeout_s=60, workers=1)
    assert report.accepted and report.agrees and report.confirms


@FEW
@given(graphs(), options())
def test_same_optimum_as_exhaustive_search(graph: LoopGraph, choice: Options) -> None:
    agree(graph, choice)


def test_a_buffer_with_two_writers_lives_from_the_first() -> None:
    """Read where it is written, it lives for that one cycle and not for one before: both buffers are there at once, and do not fit."""
    ops = tuple(
        Op(name=n, kind="made_up", unit="x", latency_cycles=1, issue_cycles=1, asynchronous=False, variable_latency=False, warps=1,
           reservations=(), subtile=None, chunk=None) for n in "AB"
    )  # fmt: skip
    read = (Reader(op="A", hold_cycles=0, distance=0, cross_group_cycles=0),)
    buffers = tuple(
        Buffer(name=name, memory="tmem", size=size, writers=("A", "B"), readers=read, persistent=False, prefetch=False)
        for name, size in (("b1", 3), ("b2", 5))
    )
    graph = LoopGraph(name="two_writers", machine="tiny", parameters={}, ops=ops, edges=(), buffers=buffers, values=())
    agree(graph, Options(groups=1, max_copies=1, max_ii_cycles=8))


@settings(FEW, max_examples=100)
@given(pipelines(), options(most_length=16, least_groups=3, least_copies=2))
def test_groups_that_must_differ(graph: LoopGraph, choice: Options) -> None:
    agree(graph, choice)


@settings(FEW, max_examples=60)
@given(mirrored(), options(most_length=8))
def test_symmetry_breaking_loses_no_optimum(graph: LoopGraph, choice: Options) -> None:
    agree(graph, choice)


@settings(FEW, max_examples=60)
@given(st.data(), graphs(most_ops=3), options())
def test_accepts_exactly_the_legal_schedules(data: st.DataObject, graph: LoopGraph, choice: Options) -> None:
    ii = choice.time_unit_cycles * data.draw(st.integers(1, 5), label="I in units")
    start = st.integers(0, 6).map(lambda t: t * choice.time_unit_cycles)
    starts = {op.name: data.draw(start) for op in graph.ops}
    first = min(starts.values())
    starts = {name: t - first for name, t in starts.items()}
    groups = {op.name: data.draw(st.integers(0, 2)) for op in graph.ops}
    length = -(-max(starts[op.name] + op.span_cycles for op in graph.ops) // choice.time_unit_cycles) * choice.time_unit_cycles
    schedule = as_schedule(graph, choice, Best(ii, 0, length, starts, groups))
    report = crosscheck(schedule, TINY, timeout_s=60, workers=1, length=False)
    assert report.accepted == (broken_rule(graph, TINY, choice, ii, starts, groups) is None)


def as_schedule(graph: LoopGraph, choice: Options, best: Best) -> Schedule:
    """A schedule file of which only what crosscheck reads is filled in with care."""
    names = sorted(set(best.groups.values()))
    none = ProofStep(value_cycles=0, by="none")
    return Schedule(
        status="feasible",
        graph=graph,
        machine=MachineRef(name=TINY.name, arch=TINY.arch, target=TINY.target, hash=""),
        options=choice,
        ii_cycles=best.ii_cycles,
        margin_cycles=best.margin_cycles,
        length_cycles=best.length_cycles,
        lower_bounds_cycles={},
        groups=tuple(
            Group(name=f"g{g}", warps=1, registers_per_thread=1, ops=tuple(op for op in best.groups if best.groups[op] == g)) for g in names
        ),
        ops=tuple(
            ScheduledOp(
                name=op.name,
                unit=op.unit,
                start_cycle=best.starts[op.name],
                stage=best.starts[op.name] // best.ii_cycles,
                group=f"g{best.groups[op.name]}",
            )
            for op in graph.ops
        ),
        buffers=(),
        handovers=(),
        rank=Rank(groups=len(names), held_up=0, handovers=0, waits=0, register_peak=0, slack_cycles=0),
        proof=Proof(ii=none, margin=none, length=none, rank_proved=False, model_hash="", solver="", solver_version="", seed=0, queries=0),
        utilization={},
        provenance=Provenance(twill="", command=""),
    )


def toy() -> LoopGraph:
    """The paper's toy: S = QK, P = exp(S), O += PV, one cycle each, one tensor core (x), one exp unit (y)."""

    def op(name: str, unit: str) -> Op:
        held = (Reservation(unit=unit, cycles=1, amount=1),)
        return Op(name=name, kind=name, unit=unit, latency_cycles=1, issue_cycles=1, warps=4, reservations=held)

    return LoopGraph(
        name="toy",
        machine="tiny",
        ops=(op("S", "x"), op("P", "y"), op("O", "x")),
        edges=(
            Edge(src="S", dst="P", kind="order", latency_cycles=1),
            Edge(src="P", dst="O", kind="order", latency_cycles=1),
            Edge(src="O", dst="O", kind="order", latency_cycles=1, distance=1),
        ),
    )


TOY_OPTIONS = Options(groups=3, max_copies=2, max_ii_cycles=8)
TOY_BEST = Best(2, 0, 4, {"S": 0, "P": 2, "O": 3}, {"S": 0, "P": 1, "O": 0})


def test_toy_of_the_paper() -> None:
    found = minimise(toy(), TINY, TOY_OPTIONS, timeout_s=30, workers=1)
    assert found.witness is not None
    assert (found.witness.ii_cycles, found.witness.length_cycles) == (2, 4)
    assert found.bound_cycles == 2 and found.ii_proved and found.length_proved


def test_report_on_the_optimum() -> None:
    report = crosscheck(as_schedule(toy(), TOY_OPTIONS, TOY_BEST), TINY, timeout_s=30, workers=1)
    assert (report.accepted, report.ii_feasible, report.smaller_ii, report.length) == (True, True, "lower-bound", "refuted")
    assert report.confirms and report.agrees


def test_report_refuses_one_wrong_start() -> None:
    wrong = Best(2, 0, 4, TOY_BEST.starts | {"P": 3}, TOY_BEST.groups)
    report = crosscheck(as_schedule(toy(), TOY_OPTIONS, wrong), TINY, timeout_s=30, workers=1)
    assert report.accepted is False and report.ii_feasible is True
    assert not report.agrees


def test_report_finds_a_smaller_ii_and_a_shorter_length() -> None:
    slow = Best(3, 0, 5, {"S": 0, "P": 2, "O": 4}, TOY_BEST.groups)
    report = crosscheck(as_schedule(toy(), TOY_OPTIONS, slow), TINY, timeout_s=30, workers=1)
    assert report.accepted is True
    assert (report.smaller_ii, report.length) == ("found", "found")
    assert report.counterexample is not None and report.counterexample.ii_cycles == 2
    assert broken_rule(toy(), TINY, TOY_OPTIONS, 2, report.counterexample.starts, report.counterexample.groups) is None
    assert report.shorter is not None and report.shorter.length_cycles <= 4
    assert not report.agrees and not report.confirms


def test_no_time_leaves_questions_open() -> None:
    report = crosscheck(as_schedule(toy(), TOY_OPTIONS, TOY_BEST), TINY, timeout_s=0.0)
    assert (report.accepted, report.ii_feasible, report.smaller_ii, report.length) == (None, None, "open", "open")
    assert report.agrees and not report.confirms


def test_missing_ortools_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(UsageError, match=r"pip install 'twill-gpu\[crosscheck\]'"):
        minimise(toy(), TINY, TOY_OPTIONS, timeout_s=1)


def test_unknown_rule_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no rule 'handover'"):
        minimise(toy(), TINY, TOY_OPTIONS.model_copy(update={"without": ("handover",)}), timeout_s=1)
