"""Which structure each rule causes: it is there with the rule and gone without it."""

from __future__ import annotations

import functools
from typing import Any

from twill.check import check_schedule
from twill.model.machine import load_machine
from twill.model.registry import GraphRequest, build_graph
from twill.model.schedule import Schedule
from twill.solver.solve import default_options, solve

REGISTER_FILE = 65536
MOST_REGISTERS = 255


@functools.cache
def best(graph: str, machine: str, tile: str | None = None, subtiles: int | None = None, **options: Any) -> Schedule:
    on = load_machine(machine)
    request = GraphRequest(tile=tile, subtiles=subtiles)
    if (graph, machine, tile) == ("attn_fwd", "h200", None):
        request = GraphRequest(tile="128x128", subtiles=2, settings={"rescale": "always"})
    if (graph, machine, tile) == ("attn_fwd", "b200", None):
        request = GraphRequest(settings={"rescale": "always"})
    loop = build_graph(graph, on, request)
    found = solve(loop, on, default_options(loop, on, **options), timeout_s=120)
    assert found.status == "optimal"
    assert check_schedule(found.schedules[0], on).findings == ()
    return found.schedules[0]


def mates(s: Schedule, name: str) -> set[str]:
    return set(next(g.ops for g in s.groups if name in g.ops))


def test_hand_over() -> None:
    free = best("attn_fwd", "b200", without=("hand-over",))
    assert free.ii_cycles < best("attn_fwd", "b200").ii_cycles
    same = {(f"{e.src}->{e.dst}" + (f"@{e.distance}" if e.distance else "")): e.same_group_cycles for e in free.graph.edges}
    assert all(h.cost_cycles == same[h.edge] for h in free.handovers)


def test_queueing_makes_results_late() -> None:
    s, free = best("attn_fwd", "h200"), best("attn_fwd", "h200", without=("queueing",))
    assert free.ii_cycles == free.lower_bounds_cycles["resource"] < s.ii_cycles
    issues = {o.name: o.start_cycle for o in s.ops}
    for x, y in ("ab", "ba"):
        ahead = max(r.cycles for r in s.graph.op(f"PV_{y}").reservations)
        assert issues[f"MAX_{x}"] - issues[f"QK_{x}"] - s.graph.op(f"QK_{x}").latency_cycles >= ahead


def test_capacity() -> None:
    both = best("attn_fwd", "h200", without=("capacity", "queueing"))
    assert both.utilization["tensor"] > 1.0
    assert both.ii_cycles < best("attn_fwd", "h200").lower_bounds_cycles["resource"]


def test_memory() -> None:
    s = best("attn_fwd", "b200")
    assert best("attn_fwd", "b200", without=("memory",)).ii_cycles < s.lower_bounds_cycles["memory"] < s.ii_cycles


def test_placement() -> None:
    # no shipped loop needs it: a placement was found for every schedule that fits by count
    s, free = best("attn_fwd", "b200"), best("attn_fwd", "b200", without=("placement",))
    assert (s.ii_cycles, s.length_cycles) == (free.ii_cycles, free.length_cycles)


def test_variable_latency_makes_the_load_group() -> None:
    for graph, machine, loads in (
        ("attn_fwd", "b200", {"LK", "LV"}),
        ("attn_fwd", "h200", {"LK", "LV"}),
        ("attn_bwd", "h200", {"LQ", "LDO"}),
    ):
        assert mates(best(graph, machine), min(loads)) == loads
        free = best(graph, machine, without=("variable-latency",))
        assert len(free.groups) == len(best(graph, machine).groups) - 1
        assert all(mates(free, load) - loads for load in loads)


def test_exposed_wait_and_queueing_each_make_the_mma_group() -> None:
    s = best("attn_fwd", "b200")
    for without in ((), ("exposed-wait",), ("queueing",)):
        mmas = {"QK_a", "PV_a0", "PV_a1", "QK_b", "PV_b0", "PV_b1"}
        assert mates(best("attn_fwd", "b200", without=without), "QK_a") == mmas
    free = best("attn_fwd", "b200", without=("exposed-wait", "queueing"))
    assert {"QK_a", "MAX_a", "EXP_a0"} <= mates(free, "QK_a")
    assert {"QK_b", "MAX_b", "EXP_b0"} <= mates(free, "QK_b")
    assert free.ii_cycles < s.ii_cycles, "the separate group pays for its hand-overs"


def test_blocking_makes_the_rescale_group_where_groups_are_scarce() -> None:
    assert mates(best("attn_fwd", "b200"), "RESC_a") == {"RESC_a", "RESC_b"}
    free = best("attn_fwd", "b200", without=("blocking",), groups=4)
    assert "EXP_a0" in mates(free, "RESC_b")
    assert "EXP_b0" in mates(free, "RESC_a")


def test_concurrency_keeps_rescale_out_of_the_softmax_of_its_subtile() -> None:
    with_it = best("attn_fwd", "b200", without=("blocking",))
    assert all("EXP_a0" not in mates(with_it, f"RESC_{x}") or x == "b" for x in "ab")
    free = best("attn_fwd", "b200", without=("blocking", "concurrency"))
    assert any({f"EXP_{x}0", f"MAX_{x}"} <= mates(free, f"RESC_{x}") for x in "ab")
    assert len(free.groups) < len(with_it.groups)
    assert free.ii_cycles == with_it.ii_cycles


def test_register_limit_keeps_iterations_apart() -> None:
    s = best("attn_bwd", "h200", "80x64", 1, groups=2)
    free = best("attn_bwd", "h200", "80x64", 1, groups=2, without=("register-limit",))
    assert max(g.registers_per_thread for g in s.groups) <= MOST_REGISTERS < max(g.registers_per_thread for g in free.groups)
    assert free.ii_cycles < s.ii_cycles


def test_register_file_keeps_dq_with_the_consumers() -> None:
    s = best("attn_bwd", "h200")
    assert {"QK_a", "QK_b"} & mates(s, "DQST_b")
    free = best("attn_bwd", "h200", without=("register-file",))
    assert not {"QK_a", "QK_b"} & (mates(free, "DQST_b") & mates(free, "DQST_a"))
    assert len(free.groups) == len(s.groups) + 1
    full = [32 * g.warps * g.registers_per_thread for g in free.groups if g.warps % 4 == 0]
    assert sum(full) > REGISTER_FILE


def test_register_tiles_keep_p_with_its_reader() -> None:
    s = best("attn_bwd", "b200")
    assert all({r.op for r in v.readers} <= mates(s, v.producer) for v in s.graph.values)
    free = best("attn_bwd", "b200", without=("register-tiles",))
    assert any({r.op for r in v.readers} - mates(free, v.producer) for v in free.graph.values)
    assert free.ii_cycles < s.ii_cycles


def test_warp_budget_limits_groups() -> None:
    on = load_machine("b200")
    loop = build_graph("attn_fwd", on)
    assert solve(loop, on, default_options(loop, on, groups=4)).status == "infeasible"
    free = best("attn_fwd", "b200", groups=4, without=("warp-budget",))
    assert len(free.groups) == 5
    assert free.ii_cycles == best("attn_fwd", "b200").ii_cycles


def test_local_registers_bring_rescale_to_the_row_maximum() -> None:
    s = best("attn_fwd", "b200", with_rules=("local-registers",), without=("blocking",))
    assert {"MAX_a", "RESC_a"} <= mates(s, "EXP_a0")
    assert {"MAX_b", "RESC_b"} <= mates(s, "EXP_b0")
    assert "RESC_a" not in mates(best("attn_fwd", "b200"), "MAX_a")
