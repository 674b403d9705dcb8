"""The cases of the paper (Soi et al., OSDI 2026) at head dim 128: what the schedules look like, and that nothing is better.

The figures that the costs decide (I, registers) are asserted only where the paper or FlashAttention-4 has such a figure.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from twill.check import check_schedule
from twill.model.graphs.toy import toy
from twill.model.machine import load_machine
from twill.solver.solve import default_options, solve

from .reading import best, busy, hidden, mates, op, outcome, partition, side_by_side, stage, start

SUBTILES = ("a", "b")


def other(x: str) -> str:
    return "b" if x == "a" else "a"


# the toy


def test_toy() -> None:
    machine = load_machine("toy")
    graph = toy(machine)
    schedule = solve(graph, machine).schedules[0]
    assert schedule.status == "optimal"
    assert (schedule.ii_cycles, schedule.length_cycles) == (2, 4)
    assert [o.start_cycle for o in schedule.ops] == [0, 2, 3]
    assert check_schedule(schedule, machine).ok
    in_order = solve(graph, machine, default_options(graph, machine, max_copies=1)).schedules[0]
    assert in_order.ii_cycles == 3


# Blackwell forward


def test_blackwell_forward_has_the_five_groups_of_fa4() -> None:
    s = best("attn_fwd", "b200")
    assert partition(s) == {
        frozenset({"LK", "LV"}),
        frozenset({"QK_a", "PV_a0", "PV_a1", "QK_b", "PV_b0", "PV_b1"}),
        frozenset({"MAX_a", "EXP_a0", "EXP_a1", "SUM_a"}),
        frozenset({"MAX_b", "EXP_b0", "EXP_b1", "SUM_b"}),
        frozenset({"RESC_a", "RESC_b"}),
    }
    assert {g.name: (g.warps, g.registers_per_thread) for g in s.groups} == {
        "load": (1, 48), "mma": (1, 48), "softmax_a": (4, 168), "softmax_b": (4, 168), "rescale": (4, 72),
    }  # fmt: skip


def test_blackwell_forward_issues_mmas_in_the_order_of_fa4() -> None:
    s = best("attn_fwd", "b200")
    order = list(next(g.ops for g in s.groups if g.name == "mma"))
    turned = [order[k:] + order[:k] for k in range(len(order))]
    assert ["PV_a0", "PV_a1", "QK_a", "PV_b0", "PV_b1", "QK_b"] in turned


def test_blackwell_forward_hoists_the_first_qk_of_each_subtile() -> None:
    s = best("attn_fwd", "b200")
    for x in SUBTILES:
        # the prologue runs QK and the row maximum of the first tile; PV follows an iteration later, after the next QK was issued
        assert stage(s, f"QK_{x}") == 0
        assert {stage(s, f"PV_{x}{c}") for c in (0, 1)} == {1}


def test_blackwell_forward_overlaps_softmax_with_the_mmas_of_the_other_subtile() -> None:
    s = best("attn_fwd", "b200")
    for x in SUBTILES:
        y = other(x)
        assert sum(side_by_side(s, f"EXP_{x}{c}", mma) for c in (0, 1) for mma in (f"QK_{y}", f"PV_{y}0", f"PV_{y}1")) > 0
    # the sub-tiles take turns at the exp unit, but for the stores of P at the end of a chunk
    at_once = sum(side_by_side(s, f"EXP_a{c}", f"EXP_b{d}") for c, d in itertools.product((0, 1), repeat=2))
    assert at_once < 0.1 * sum(op(s, f"EXP_a{c}").issue_cycles for c in (0, 1))


def test_blackwell_forward_comes_as_near_to_the_tensor_bound_as_fa4_measured() -> None:
    # FA4: 71 % of the peak measured on a B200; here of the model's bound
    assert 0.70 < best("attn_fwd", "b200").utilization["tensor"] < 0.74


def refuted(expected: set[str], **changed: Any) -> tuple[str, ...]:
    """No schedule with the I of the best one; the minimal core names exactly these rules, in words too."""
    ii = best("attn_fwd", "b200").ii_cycles
    found = outcome("attn_fwd", "b200", max_ii_cycles=ii, **changed)
    assert found.status == "infeasible"
    assert found.core is not None
    assert set(found.core.rules) == expected
    assert found.core.ii == ii
    assert len(found.core.words) == len(expected)
    return found.core.words


def test_unsat_fewer_warps() -> None:
    words = refuted({"variable-latency", "exposed-wait", "blocking", "register-tiles", "warp-budget"}, groups=4)
    assert any("RESC_a" in w and w.startswith("blocking: a wait") for w in words)
    assert any(w.startswith("warp-budget: the block has a limited number") for w in words)


def test_unsat_fewer_warps_even_if_waits_may_hold_up_other_work() -> None:
    # three groups leave one for all synchronous work, which cannot hold the scores of both sub-tiles at once
    found = outcome("attn_fwd", "b200", groups=3, without=("blocking",), max_ii_cycles=best("attn_fwd", "b200").ii_cycles)
    assert found.status == "infeasible"
    assert found.core is not None
    assert set(found.core.rules) == {"variable-latency", "exposed-wait", "register-limit", "warp-budget"}


def test_three_groups_do_if_the_softmax_groups_issue_their_mmas_too() -> None:
    # as long as nobody minds that their MMAs are in no order
    free = ("blocking", "exposed-wait", "queueing")
    s = best("attn_fwd", "b200", groups=3, without=free)
    assert s.ii_cycles <= best("attn_fwd", "b200").ii_cycles < best("attn_fwd", "b200", groups=3, without=free[:2]).ii_cycles
    for x in SUBTILES:
        assert mates(s, f"EXP_{x}0") >= {f"QK_{x}", f"PV_{x}0", f"PV_{x}1", f"RESC_{other(x)}"}


def test_four_groups_do_if_each_softmax_group_rescales_the_other_accumulator() -> None:
    s = best("attn_fwd", "b200", groups=4, without=("blocking",))
    assert s.ii_cycles == best("attn_fwd", "b200").ii_cycles
    assert s.length_cycles > best("attn_fwd", "b200").length_cycles
    for x in SUBTILES:
        assert mates(s, f"RESC_{other(x)}") == {f"MAX_{x}", f"EXP_{x}0", f"EXP_{x}1", f"SUM_{x}", f"RESC_{other(x)}"}


def test_unsat_no_subtiling() -> None:
    words = refuted({"memory"}, tile="256x128", subtiles=1)
    assert "tmem" in words[0]


def test_without_subtiles_there_is_no_schedule_at_all() -> None:
    found = outcome("attn_fwd", "b200", tile="256x128", subtiles=1)
    assert found.status == "infeasible"
    assert found.core is not None
    assert "register-file" in found.core.rules


def test_unsat_no_register_data_between_warps() -> None:
    words = refuted({"blocking", "local-registers"}, with_rules=("local-registers",))
    assert words[-1] == "local-registers: no register data crosses warp groups"


def test_unsat_no_register_data_between_warps_by_time_alone() -> None:
    # a softmax group that must rescale its own accumulator has no time for it while S and P hold TMEM
    refuted({"memory", "concurrency", "local-registers"}, with_rules=("local-registers",), without=("blocking",))
    s = best("attn_fwd", "b200", with_rules=("local-registers",), without=("blocking",))
    assert s.ii_cycles > 1.2 * best("attn_fwd", "b200").ii_cycles
    for x in SUBTILES:
        assert mates(s, f"RESC_{x}") == {f"MAX_{x}", f"EXP_{x}0", f"EXP_{x}1", f"SUM_{x}", f"RESC_{x}"}


@pytest.mark.parametrize("rule", ["memory", "concurrency"])
def test_that_core_is_minimal(rule: str) -> None:
    ii = best("attn_fwd", "b200").ii_cycles
    found = outcome("attn_fwd", "b200", with_rules=("local-registers",), without=tuple(sorted(("blocking", rule))), max_ii_cycles=ii)
    assert found.status == "optimal"


# Hopper forward, as in the paper: two consumers, rescaling in every iteration

TWO, ALWAYS = ("128x128", 2), (("rescale", "always"),)


def test_hopper_forward_has_a_load_warp_and_two_consumers() -> None:
    s = best("attn_fwd", "h200", *TWO, settings=ALWAYS)
    consumers = {frozenset(f"{name}_{x}" for name in ("QK", "MAX", "EXP", "SUM", "CVT", "RESC", "PV")) for x in SUBTILES}
    assert partition(s) == {frozenset({"LK", "LV"}), *consumers}
    calm = best("attn_fwd", "h200", *TWO, settings=ALWAYS, without=("queueing",))
    assert calm.proof.ii.bound == "resource"
    assert calm.utilization["tensor"] == 1.0
    assert calm.ii_cycles < s.ii_cycles, "results that may be late take their time"


def test_hopper_forward_is_skewed() -> None:
    s = best("attn_fwd", "h200", *TWO, settings=ALWAYS)
    for x in SUBTILES:
        y = other(x)
        assert hidden(s, f"EXP_{x}", (f"QK_{y}", f"PV_{y}")) > 0.5, f"while {x} does exp, {y} holds the tensor core"
        assert stage(s, f"QK_{x}") < stage(s, f"PV_{x}"), "QK of the next tile comes before PV"
    assert side_by_side(s, "EXP_a", "EXP_b") == 0


def test_hopper_forward_with_three_consumers_is_in_the_order_of_flash_attention_3() -> None:
    # the order that was fastest on an H200: QK of the next tile, rescale and PV of this one, then the softmax of the next beside PV
    s = best("attn_fwd", "h200")
    assert dict(s.graph.parameters)["tile"] == "192x80"
    tensor_bound = s.lower_bounds_cycles["resource"]
    assert s.ii_cycles == tensor_bound
    assert s.margin_cycles == 320
    for x in "abc":
        ops = next(g.ops for g in s.groups if f"QK_{x}" in g.ops)
        turned = (*ops[ops.index(f"QK_{x}") :], *ops[: ops.index(f"QK_{x}")])
        assert [o for o in turned if o[:2] in ("QK", "PV", "MA", "EX")] == [f"QK_{x}", f"PV_{x}", f"MAX_{x}", f"EXP_{x}"]
        assert stage(s, f"PV_{x}") > stage(s, f"QK_{x}")


# Hopper backward

CONSUMER = ("QK", "DP", "EXP", "CVT", "DS", "DSST", "DV", "DK")


def test_hopper_backward_has_a_load_warp_and_two_consumers() -> None:
    s = best("attn_bwd", "h200")
    assert len(s.groups) == 3
    assert frozenset({"LQ", "LDO"}) in partition(s)
    for x in SUBTILES:
        assert mates(s, f"QK_{x}") >= {f"{name}_{x}" for name in CONSUMER}
        # each makes and stages one half of dQ
        assert len(mates(s, f"QK_{x}") & {"DQ_a", "DQ_b"}) == len(mates(s, f"QK_{x}") & {"DQST_a", "DQST_b"}) == 1


def synchronous_span(machine_tile: tuple[str | None, int | None], x: str, **options: Any) -> tuple[int, int]:
    """(cycles from the first MMA of a consumer's iteration to the end of the last synchronous op of that iteration, I)."""
    s = best("attn_bwd", "h200", *machine_tile, **options)
    mine = [n for n in mates(s, f"EXP_{x}") if not op(s, n).asynchronous]
    return max(busy(s, n)[1] for n in mine) - start(s, f"QK_{x}"), s.ii_cycles


@pytest.mark.parametrize("x", SUBTILES)
def test_hopper_backward_does_not_overlap_iterations(x: str) -> None:
    # in the paper's model all element-wise work of an iteration, dQ staging included, is over before the scores of the next are begun
    span, ii = synchronous_span((None, None), x, without=("queueing",))
    assert span <= ii


def test_hopper_backward_overlaps_iterations_where_results_may_be_late() -> None:
    # not overlapping any costs 4 % then
    s = best("attn_bwd", "h200")
    assert s.proof.ii.bound == "resource"
    assert any(synchronous_span((None, None), x)[0] > s.ii_cycles for x in SUBTILES)
    assert best("attn_bwd", "h200", max_copies=2).ii_cycles > 1.03 * s.ii_cycles


def test_hopper_backward_is_skewed() -> None:
    s = best("attn_bwd", "h200")
    for x in SUBTILES:
        y = other(x)
        assert hidden(s, f"EXP_{x}", tuple(n for n in mates(s, f"QK_{y}") if op(s, n).unit == "tensor")) > 0.5


def test_registers_are_what_keeps_hopper_backward_from_overlapping_iterations() -> None:
    # one consumer alone would gain by overlapping, and does so as soon as registers are free
    alone = ("80x64", 1)
    span, ii = synchronous_span(alone, "a", groups=2)
    free_span, free_ii = synchronous_span(alone, "a", groups=2, without=("register-limit",))
    assert span <= ii
    assert free_ii < 0.9 * ii
    assert free_span > free_ii
    s = best("attn_bwd", "h200", *alone, groups=2, without=("register-limit",))
    assert max(g.registers_per_thread for g in s.groups) > 255


def test_hopper_backward_has_not_one_granule_of_registers_to_spare() -> None:
    s = best("attn_bwd", "h200")
    most = max(g.registers_per_thread for g in s.groups)
    assert most == 240
    found = outcome("attn_bwd", "h200", registers=most - 8, max_ii_cycles=s.ii_cycles)
    assert found.status == "infeasible"
    assert found.core is not None
    assert "register-limit" in found.core.rules


# Blackwell backward

STAGING = {"DQLD0", "DQLD1", "DQST0", "DQST1", "DQST2", "DQST3"}


def staging_groups(s: Any) -> list[set[str]]:
    """Groups that stage dQ and do nothing else but issue."""
    found = []
    for group in partition(s):
        working = {n for n in group if not op(s, n).asynchronous}
        if working and working <= STAGING:
            found.append(working)
    return found


@pytest.mark.parametrize("options", [{}, {"groups": 4}, {"registers": 160}, {"registers": 160, "groups": 4}], ids=str)
def test_blackwell_backward_has_loads_mmas_and_an_exp_group_for_each_subtile(options: dict[str, int]) -> None:
    s = best("attn_bwd", "b200", **options)
    assert frozenset({"LQ", "LDO"}) in partition(s)
    assert mates(s, "QK") >= {"QK", "DP", "DV", "DK"}
    assert all(op(s, n).asynchronous for n in mates(s, "QK"))
    assert {"EXP_a", "DS_a"} <= mates(s, "EXP_a")
    assert {"EXP_b", "DS_b"} <= mates(s, "EXP_b")
    assert mates(s, "EXP_a") != mates(s, "EXP_b")


def test_blackwell_backward_with_four_groups_ping_pongs_exp_and_staging() -> None:
    s = best("attn_bwd", "b200", groups=4)
    assert len(s.groups) == 4
    assert not staging_groups(s)
    for x in SUBTILES:
        mine, theirs = (mates(s, f"EXP_{z}") & STAGING for z in (x, other(x)))
        assert len(mine) == len(theirs) == 3
        assert sum(side_by_side(s, f"EXP_{x}", n) for n in theirs) > 0, f"while {x} does exp, the other stages dQ"
    # more than 136, which is what FA4 gives its groups
    assert max(g.registers_per_thread for g in s.groups) == 200


@pytest.mark.parametrize("options", [{}, {"registers": 160}], ids=str)
def test_blackwell_backward_with_more_groups_has_one_for_staging(options: dict[str, int]) -> None:
    s = best("attn_bwd", "b200", **options)
    assert len(s.groups) == 5
    assert len(staging_groups(s)) == 1
    # FA4 stages all of dQ there; here one exp group takes half of it, the other none
    assert sorted(len(mates(s, f"EXP_{x}") & STAGING) for x in SUBTILES) == [0, 3]


def test_blackwell_backward_with_few_registers() -> None:
    s = best("attn_bwd", "b200", registers=160)
    assert max(g.registers_per_thread for g in s.groups) == 136


def test_blackwell_backward_fewer_registers_or_groups_cost_time() -> None:
    fewer: tuple[dict[str, int], ...] = ({}, {"groups": 4}, {"registers": 160}, {"registers": 160, "groups": 4})
    intervals = [best("attn_bwd", "b200", **options).ii_cycles for options in fewer]
    assert intervals == sorted(set(intervals))
