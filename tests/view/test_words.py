"""Proofs, bounds and explanations in words."""

from __future__ import annotations

from typing import Any

import pytest

from twill.model.graphs.toy import toy
from twill.model.machine import load_machine
from twill.model.schedule import ProofStep, Schedule
from twill.solver.crosscheck import CrosscheckReport
from twill.solver.solve import default_options, solve
from twill.view.console import plain_text
from twill.view.crosscheck import crosscheck_in_words
from twill.view.explain import infeasible, unknown
from twill.view.parts import label, shorten
from twill.view.summary import summary
from twill.view.words import bottleneck, bounds_in_words, ii_in_words, length_in_words, rounding_in_words


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    machine = load_machine("toy")
    return solve(toy(machine), machine).schedules[0]


def with_ii(schedule: Schedule, ii: int, **step: Any) -> Schedule:
    proof = schedule.proof.model_copy(update={"ii": ProofStep(value_cycles=ii, **step)})
    return schedule.model_copy(update={"ii_cycles": ii, "proof": proof})


def test_each_way_of_knowing(schedule: Schedule) -> None:
    assert ii_in_words(schedule) == "I = 2 cycles, proved: equals the resource bound (tensor)"
    assert length_in_words(schedule) == "L = 4 cycles, proved: 3 is impossible; 2 iterations in flight"
    refuted = with_ii(schedule, 2839, by="refutation", refuted_cycles=2838)
    assert ii_in_words(refuted) == "I = 2839 cycles, proved: 2838 is impossible"
    still_open = with_ii(schedule, 100, by="none", gap_cycles=8)
    assert ii_in_words(still_open) == "I = 100 cycles, not proved: 92 is not ruled out, a gap of 8 cycles"
    for bound, name in (("recurrence", "recurrence bound"), ("memory", "memory bound"), ("issue", "issue bound (S)")):
        assert ii_in_words(with_ii(schedule, 5, by="lower-bound", bound=bound)) == f"I = 5 cycles, proved: equals the {name}"


def test_bottleneck(schedule: Schedule) -> None:
    assert bottleneck(schedule) == "tensor, busy 100.0% of the time"
    refuted = with_ii(schedule, 4, by="refutation", refuted_cycles=3).model_copy(update={"utilization": {"tensor": 0.5, "exp": 0.25}})
    assert bottleneck(refuted) == (
        "no unit alone: the largest single bound is resource with 2 (50.0% of I); the busiest unit is tensor at 50.0%"
    )
    recurrence = with_ii(schedule, 4, by="lower-bound", bound="recurrence").model_copy(update={"utilization": {"tensor": 0.5}})
    assert bottleneck(recurrence) == "the recurrence bound; the busiest unit is tensor at 50.0%"


def test_bounds() -> None:
    bounds = {"resource": 5, "memory": 0, "recurrence": 9}
    assert bounds_in_words(bounds) == ["recurrence 9", "resource 5"]
    assert bounds_in_words(bounds, {"resource": "tensor is busy"}) == ["recurrence 9", "resource 5: tensor is busy"]


def test_rounding_error_is_that_of_the_solver(schedule: Schedule) -> None:
    assert rounding_in_words(schedule) == "exact to the cycle"
    machine = load_machine("toy")
    graph = toy(machine)
    outcome = solve(graph, machine, default_options(graph, machine, time_unit_cycles=4))
    assert outcome.rounding_error == 3.0
    assert rounding_in_words(outcome.schedules[0]) == "rounded up to multiples of 4 cycles, the worst by 300.0%"


def test_open_gap_is_shown(schedule: Schedule) -> None:
    proof = schedule.proof.model_copy(update={"ii": ProofStep(value_cycles=2, by="none", gap_cycles=1), "rank_proved": False})
    text = plain_text(summary(schedule.model_copy(update={"status": "feasible", "proof": proof})))
    assert "toy on toy (sm0): feasible" in text
    assert "a gap of 1 cycles" in text
    assert "not proved best of these: time ran out" in text


def test_infeasible() -> None:
    text = plain_text(infeasible("x on y", ["memory: too big (tmem)", "hand-over: dear"], ["memory", "hand-over"]))
    assert text == (
        "x on y: infeasible\nThere is no schedule.\nIt is forbidden by these together, and by no fewer:\n"
        "  - memory: too big (tmem)\n  - hand-over: dear\n"
        "next step: use a smaller tile or head dimension, or fewer --subtiles\n"
    )


def test_unknown_never_says_infeasible() -> None:
    text = plain_text(unknown("x on y", 7, ["resource 7"], 0.5))
    assert "infeasible" not in text
    assert "0.5 seconds brought neither" in text
    assert "I >= 7 is proved" in text


def test_crosscheck(schedule: Schedule) -> None:
    agreed = CrosscheckReport(accepted=True, ii_feasible=True, smaller_ii="lower-bound", length="open", seconds=1.0)
    assert crosscheck_in_words(agreed, schedule).splitlines() == [
        "crosscheck: CP-SAT accepts the schedule",
        "  I = 1: impossible, by a lower bound alone",
        "  L = 3 at I = 2: not known: out of time",
        "  nothing contradicts the schedule (1.0 s)",
    ]
    refused = CrosscheckReport(accepted=False, ii_feasible=False, smaller_ii="open", length=None, seconds=1.0)
    assert "REFUSES the schedule" in crosscheck_in_words(refused, schedule)
    assert "CONTRADICTED" in crosscheck_in_words(refused, schedule)


@pytest.mark.parametrize(
    ("name", "width", "short"),
    [("EXP_a", 5, "EXP_a"), ("EXP_a", 4, "EXPa"), ("RESCALE_a0", 6, "RES~a0"), ("softmax_b", 7, "soft~xb"), ("LOAD_K", 3, "LOA")],
)
def test_shorten(name: str, width: int, short: str) -> None:
    assert shorten(name, width) == short
    assert len(short) <= width


def test_label() -> None:
    assert label("EXP_a", 1) == "EXP_a·1"
    assert label("EXP_a", 1, 6) == "EXPa·1"
    assert label("EXP_a", 12, 6) == "EXP·12"
