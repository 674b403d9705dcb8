"""The solver against exhaustive search on random tiny graphs."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from twill.model.graph import Buffer, LoopGraph, Op, Reader, Reservation
from twill.model.schedule import Options
from twill.model.validate import validate_graph

from .brute_force import broken_rule, length_of, optimum
from .tiny import TINY, graphs, mirrored, options, pipelines

solver = pytest.importorskip("twill.solver.solve", reason="twill.solver.solve is not there yet")

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def agree(graph: LoopGraph, choice: Options) -> None:
    """Same I, margin and L, or both none; and what the solver wrote is legal, groups and all."""
    validate_graph(graph, TINY)
    best = optimum(graph, TINY, choice)
    outcome = solver.solve(graph, TINY, choice)
    if best is None:
        assert not outcome.schedules
        assert outcome.status != "optimal"
        return
    schedule = outcome.schedules[0]
    assert outcome.status == schedule.status == "optimal"
    assert (schedule.ii_cycles, schedule.margin_cycles, schedule.length_cycles) == (best.ii_cycles, best.margin_cycles, best.length_cycles)
    starts = {op.name: op.start_cycle for op in schedule.ops}
    number = {group.name: i for i, group in enumerate(schedule.groups)}
    groups = {op.name: number[op.group] for op in schedule.ops}
    assert broken_rule(graph, TINY, choice, schedule.ii_cycles, starts, groups) is None
    assert length_of(graph, choice, starts) == schedule.length_cycles


@FEW
@given(graphs(), options())
def test_same_optimum_as_exhaustive_search(graph: LoopGraph, choice: Options) -> None:
    agree(graph, choice)


@settings(FEW, max_examples=40)
@given(pipelines(), options(most_length=16, least_groups=3, least_copies=2))
def test_groups_that_must_differ(graph: LoopGraph, choice: Options) -> None:
    agree(graph, choice)


@settings(FEW, max_examples=30)
@given(mirrored(), options(most_length=8))
def test_symmetries_lose_no_optimum(graph: LoopGraph, choice: Options) -> None:
    agree(graph, choice)


def test_the_first_of_two_writers_begins_a_life_at_once() -> None:
    """Found by the tests above: a start that may lie before all writers lets the end lie before its reader is done."""
    names = ("P_a", "Q_a", "P_b", "Q_b")
    ops = tuple(
        Op(name=n, kind="made_up", unit="x", latency_cycles=1, issue_cycles=1, warps=1)
        if n[0] == "P"
        else Op(
            name=n,
            kind="made_up",
            unit="x",
            latency_cycles=0,
            issue_cycles=0,
            warps=1,
            reservations=(Reservation(unit="x", cycles=1, amount=1),),
        )
        for n in names
    )
    buffers = tuple(
        Buffer(name=f"b_{x}", memory="tmem", size=5, writers=(f"P_{x}", f"Q_{x}"), readers=(Reader(op=f"P_{x}", hold_cycles=0),))
        for x in "ab"
    )
    graph = LoopGraph(name="two_writers", machine="tiny", ops=ops, buffers=buffers, symmetries=((names[:2], names[2:]),))
    agree(graph, Options(groups=1, max_copies=1, max_ii_cycles=8))
