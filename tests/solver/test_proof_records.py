"""Proof records that the checker used to refuse, and explanations that used to take minutes."""

from __future__ import annotations

import pytest

from twill.check import check_schedule
from twill.model.machine import load_machine
from twill.model.registry import GraphRequest, build_graph
from twill.solver.problem import RULES
from twill.solver.solve import default_options, explain, solve

CASES = [
    ("b300", "linear_attn", GraphRequest(head_dim=72), {"groups": 7}),
    ("b200", "attn_fwd", GraphRequest(head_dim=160, head_dim_v=160), {"time_unit_cycles": 128}),
]


@pytest.mark.parametrize(("machine_name", "graph_name", "request_", "options"), CASES)
def test_a_length_that_the_windows_alone_refute_is_a_refutation(
    machine_name: str, graph_name: str, request_: GraphRequest, options: dict[str, int]
) -> None:
    """Ops that rules keep apart pay their hand-over: a longer critical path than the bound of the formulation."""
    machine = load_machine(machine_name)
    graph = build_graph(graph_name, machine, request_)
    outcome = solve(graph, machine, default_options(graph, machine, **options))
    assert outcome.status == "optimal"
    schedule = outcome.schedules[0]
    assert check_schedule(schedule, machine).ok
    assert schedule.proof.length.by == "refutation"


def test_an_explanation_names_what_a_refutation_needs() -> None:
    machine = load_machine("b200")
    graph = build_graph("attn_fwd", machine, GraphRequest())
    options = default_options(graph, machine)
    best = solve(graph, machine, options).schedules[0].ii_cycles
    core = explain(graph, machine, options, best - 1)
    assert core is not None
    assert core.minimal
    assert "memory" in core.rules
    assert explain(graph, machine, options, best) is None
    for rule in core.rules:
        # of the rules of the core alone: another may stand in for one of them
        off = tuple(sorted(r.name for r in RULES.values() if r.default and (r.name == rule or r.name not in core.rules)))
        without = options.model_copy(update={"without": off, "max_ii_cycles": best - 1})
        assert solve(graph, machine, without).schedules, f"{rule} is not needed"
