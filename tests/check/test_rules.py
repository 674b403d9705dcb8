"""Hand-made schedules whose every number was worked out on paper, and what breaks them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from twill.check import CheckedSchedule, CheckReport, Finding, check_schedule, checked
from twill.check.bounds import critical_path, lower_bounds
from twill.check.facts import SWITCHABLE, facts_of
from twill.check.queues import margin_cycles
from twill.check.registers import pressure, registers_per_thread
from twill.check.storage import lifetime
from twill.errors import EXIT_REFUSED, CheckFailed, TwillError
from twill.model.graph import Buffer, Edge, LoopGraph, Op, Reader, Reservation
from twill.model.machine import Machine
from twill.model.schedule import Options, Schedule

from .authoring import handmade_machine, write_schedule
from .samples import (
    LEGAL,
    RING_GROUPS,
    RING_PLACED,
    RING_STARTS,
    attention_schedule,
    builder_schedule,
    overlay_graph,
    overlay_schedule,
    ring_graph,
    ring_schedule,
    shared_group_schedule,
)  # fmt: skip


def rules(report: CheckReport) -> set[str]:
    return {f.rule for f in report.findings}


def only(report: CheckReport, rule: str) -> Finding:
    found = [f for f in report.findings if f.rule == rule]
    assert len(found) == 1, report
    return found[0]


def edited(schedule: Schedule, change: Callable[[dict[str, Any]], None]) -> Schedule:
    data = schedule.model_dump(mode="json")
    change(data)
    return Schedule.model_validate(data)


@pytest.mark.parametrize("sample", LEGAL)
def test_legal_schedule_is_accepted(sample: str) -> None:
    schedule, machine = LEGAL[sample]()
    report = check_schedule(schedule, machine)
    assert report.ok, str(report)
    assert str(report) == "legal"
    assert checked(schedule, machine).schedule == schedule


def test_numbers_of_the_ring() -> None:
    schedule, machine = ring_schedule()
    facts = facts_of(schedule, machine)
    # tensor 100 * 50 / 100; AD feeds itself; TMEM: 64 * (100 + 10 + 60) / (128 - 64); AD issues for 60
    assert lower_bounds(facts) == {"resource": 50, "recurrence": 60, "memory": 170, "issue": 60}
    # LD 200 + 30, MM 100 + 10, AD 60 + 0, ST 40
    assert critical_path(facts) == 440
    x, _, t, _ = schedule.graph.buffers
    assert lifetime(facts, x) == (0, 230 + 100 + 30)
    assert lifetime(facts, t) == (230, 360 + 60 + 30)
    # acc 16 always, y 32 only while AD computes it; ST holds a copy of y
    assert {g: top.amount for g, top in pressure(facts).items()} == {"load": 0, "mma": 0, "one": 48, "two": 32}
    # 30 -> 32; 48 + 20 = 68 -> 72; 32 + 20 = 52 -> 56
    assert registers_per_thread(facts) == {"load": 32, "mma": 32, "one": 72, "two": 56}
    assert schedule.rank.model_dump() == {
        "groups": 4,
        "held_up": 0,
        "handovers": 3,
        "waits": 3,
        "register_peak": 48,
        "slack_cycles": 2 * 220 - 360,
    }
    assert schedule.utilization == {"tensor": 0.2273, "alu": 0.2273, "smem": 0.1136}
    assert [(h.edge, h.cost_cycles) for h in schedule.handovers] == [("LD->MM", 30), ("MM->AD", 30), ("AD->ST", 90)]


def test_numbers_without_hand_over() -> None:
    schedule, machine = shared_group_schedule()
    facts = facts_of(schedule, machine)
    t = schedule.graph.buffers[2]
    assert lifetime(facts, t) == (230, 340 + 60)  # the reader's release costs nothing either
    assert critical_path(facts) == schedule.length_cycles == 440
    # y lives [340, 340 + 100) beside acc; I = 170 = the memory bound
    assert registers_per_thread(facts)["math"] == 72
    assert schedule.proof.ii.bound == "memory"
    assert [h.cost_cycles for h in schedule.handovers] == [30, 10]


def test_value_that_outlives_the_period_counts_twice() -> None:
    graph = ring_graph()
    far = graph.values[1].model_copy(update={"readers": (Reader(op="ST", hold_cycles=40, distance=1),)})
    graph = graph.model_copy(update={"values": (graph.values[0], far)})
    groups = {"load": ("LD",), "mma": ("MM",), "math": ("AD", "ST")}
    schedule = write_schedule(
        graph, handmade_machine(), ii=220, starts={"LD": 0, "MM": 230, "AD": 360, "ST": 430}, groups=groups, placed=RING_PLACED
    )
    assert check_schedule(schedule, handmade_machine()).ok
    # y lives from 360 to 430 + 220 + 40 = 690, 330 cycles: twice in [140, 250) of each period
    facts = facts_of(schedule, handmade_machine())
    assert pressure(facts)["math"].amount == 16 + 2 * 32
    assert pressure(facts)["math"].cycle == 360 % 220


def test_stage_shorter_than_lifetime_is_refused() -> None:
    schedule, machine = ring_schedule()
    report = check_schedule(edited(schedule, lambda d: d["buffers"][0].update(stages=1)), machine)
    f = only(report, "memory")
    assert (f.op, f.cycle) == ("X", 0)
    assert "360 cycles" in f.message and "needs 2 stages, it has 1" in f.message


def test_hand_over_message_gives_the_numbers() -> None:
    schedule, machine = ring_schedule()
    report = check_schedule(edited(schedule, lambda d: d["ops"][2].update(start_cycle=359)), machine)
    f = only(report, "hand-over")
    assert f.message == (
        "hand-over: AD at cycle 359: MM->AD (tmem, group mma to group one) needs 360 = 230 + latency 100 + hand-over 30; "
        "AD starts at 359, 1 cycles too early"
    )


def test_overlaid_buffers_may_not_meet_by_a_single_cycle() -> None:
    schedule, machine = overlay_schedule()
    later = write_schedule(
        overlay_graph(), machine, ii=379, starts={"M1": 0, "R1": 120, "M2": 190, "R2": 310},
        groups={"mma": ("M1", "M2"), "read": ("R1", "R2")}, placed={"A": (0, 1), "B": (32, 1)},
    )  # fmt: skip
    assert check_schedule(schedule, machine).ok
    report = check_schedule(later, machine)
    assert rules(report) == {"memory", "placement"}
    assert only(report, "placement").cycle == 0  # B of the iteration before still lives when A is written again
    assert only(report, "memory").message.count("192") == 1


def test_overlay_that_does_not_fit_may_not_leave_the_memory() -> None:
    schedule, machine = overlay_schedule(placed_b=96)
    f = only(check_schedule(schedule, machine), "placement")
    assert f.op == "B" and "[96, 160)" in f.message


def test_stages_are_aligned_one_by_one() -> None:
    """X has 96 bytes and lies every 100: two stages in front of W at 190 overlap it."""
    schedule, machine = ring_schedule()
    close = edited(schedule, lambda d: (d["buffers"][0].update(offset=0), d["buffers"][1].update(offset=190)))
    assert only(check_schedule(close, machine), "placement").op == "X"
    apart = edited(schedule, lambda d: (d["buffers"][0].update(offset=0), d["buffers"][1].update(offset=200)))
    assert check_schedule(apart, machine).ok


def test_register_file_fills_shared_warpgroups() -> None:
    """Two groups of one warp take 128 * 32; with 4 * 32 * (72 + 56) that is 20480."""
    schedule, _ = ring_schedule()
    for size, wrong in ((20480, set()), (20479, {"register-file"})):
        machine = handmade_machine(file=size)
        report = check_schedule(write_ring(machine), machine)
        assert rules(report) == wrong, report
    assert "20480 registers needed" in only(report, "register-file").message
    assert schedule.groups[0].registers_per_thread == 32


def write_ring(machine: Machine, options: Options | None = None) -> Schedule:
    return write_schedule(ring_graph(), machine, ii=220, starts=RING_STARTS, groups=RING_GROUPS, placed=RING_PLACED, options=options)


def test_warp_budget_counts_whole_warpgroups() -> None:
    for most, wrong in ((12, set()), (11, {"warp-budget"})):
        machine = handmade_machine(max_warps=most)
        assert rules(check_schedule(write_ring(machine), machine)) == wrong


def test_register_limit_of_machine_and_option() -> None:
    machine = handmade_machine(per_thread_max=71)
    f = only(check_schedule(write_ring(machine), machine), "register-limit")
    assert (f.op, f.cycle) == ("one", 360 - 220)
    assert "72 registers per thread; the machine allows 71" in f.message
    options = Options(groups=4, max_copies=4, registers=64, without=("register-tiles",))
    assert (
        "the option allows 64"
        in only(check_schedule(write_ring(handmade_machine(), options), handmade_machine()), "register-limit").message
    )


@pytest.mark.parametrize("rule", SWITCHABLE)
def test_rules_switched_off_are_not_enforced(rule: str) -> None:
    """A schedule that breaks just one rule is legal once that rule is off."""
    graph, machine, starts, placed, ii = ring_graph(), handmade_machine(), dict(RING_STARTS), dict(RING_PLACED), 220
    groups: dict[str, tuple[str, ...]] = dict(RING_GROUPS)
    groups_allowed = 4
    if rule == "hand-over":
        starts["AD"] = 345
    elif rule == "queueing":
        graph, groups["other"], starts["M9"] = with_another_mma(graph), ("M9",), 300
        groups_allowed = 5
    elif rule == "capacity":
        graph = graph.model_copy(update={"ops": tuple(_greedy_for_alu(op) for op in graph.ops)})
        starts["ST"] = 590
    elif rule == "memory":
        ii = 215
    elif rule == "placement":
        placed["T"] = (16, 1)
    elif rule == "variable-latency":
        groups = {"io": ("LD", "MM"), "one": ("AD",), "two": ("ST",)}
    elif rule == "exposed-wait":
        groups = {"load": ("LD",), "mixed": ("MM", "ST"), "one": ("AD",)}
    elif rule == "blocking":
        idle = Op(name="Z", kind="add", unit="alu", latency_cycles=10, issue_cycles=10)
        graph = graph.model_copy(update={"ops": (*graph.ops, idle)})
        groups["one"], starts["Z"] = ("AD", "Z"), 470
    elif rule == "concurrency":
        groups = {"load": ("LD",), "mma": ("MM",), "math": ("AD", "ST")}
        starts["ST"] = 610
    elif rule == "register-limit":
        machine = handmade_machine(per_thread_max=64)
    elif rule == "register-file":
        machine = handmade_machine(file=20000)
    elif rule == "warp-budget":
        groups_allowed = 3
    crossing = () if rule == "register-tiles" else ("register-tiles",)
    for without in ((), (rule,)):
        options = Options(groups=groups_allowed, max_copies=4, without=(*crossing, *without))
        schedule = write_schedule(graph, machine, ii=ii, starts=starts, groups=groups, placed=placed, options=options)
        assert rules(check_schedule(schedule, machine)) == (set() if without else {rule})


def with_another_mma(graph: LoopGraph) -> LoopGraph:
    """M9, which needs nothing and which nobody needs, keeps the tensor core for 30 cycles."""
    held = (Reservation(unit="tensor", cycles=30, amount=100),)
    m9 = Op(name="M9", kind="mma", unit="tensor", latency_cycles=30, issue_cycles=10, asynchronous=True, warps=1, reservations=held)
    return graph.model_copy(update={"ops": (*graph.ops, m9)})


@pytest.mark.parametrize(("ad", "home", "margin"), [(390, "other", 0), (397, "other", 7), (360, "mma", 50)])
def test_margin_is_what_is_left_behind_another_mma(ad: int, home: str, margin: int) -> None:
    """MM is ready for AD at 360; in another group M9 may come first, in its own it cannot: 50 cycles are all that counts."""
    groups = dict(RING_GROUPS)
    groups[home] = (*groups.get(home, ()), "M9")
    starts = {**RING_STARTS, "M9": 300, "AD": ad, "ST": ad + 150}
    machine, options = handmade_machine(), Options(groups=5, max_copies=4, without=("register-tiles",))
    placed = {**RING_PLACED, "T": (0, 1)}
    schedule = write_schedule(
        with_another_mma(ring_graph()), machine, ii=260, starts=starts, groups=groups, placed=placed, options=options
    )  # fmt: skip
    assert check_schedule(schedule, machine).ok
    assert schedule.margin_cycles == margin_cycles(facts_of(schedule, machine)) == margin


def test_queueing_message_gives_the_numbers() -> None:
    starts, groups = {**RING_STARTS, "M9": 300}, {**RING_GROUPS, "other": ("M9",)}
    machine, options = handmade_machine(), Options(groups=5, max_copies=4, without=("register-tiles",))
    schedule = write_schedule(
        with_another_mma(ring_graph()), machine, ii=220, starts=starts, groups=groups, placed=RING_PLACED, options=options
    )  # fmt: skip
    f = only(check_schedule(schedule, machine), "queueing")
    assert f.message == "queueing: AD at cycle 360: MM->AD: MM may be late by 30 cycles, behind M9 of group other; 0 are left"


def _greedy_for_alu(op: Op) -> Op:
    return op.model_copy(
        update={"reservations": tuple(r.model_copy(update={"amount": 60}) if r.unit == "alu" else r for r in op.reservations)}
    )


def test_blocking_spares_what_needs_the_result() -> None:
    """ST needs AD, which waits for MM; Z needs AD only through the iteration before, which is not enough."""
    later = Edge(src="AD", dst="Z", kind="order", distance=1, latency_cycles=60)
    idle = Op(name="Z", kind="add", unit="alu", latency_cycles=10, issue_cycles=10)
    graph = ring_graph()
    graph = graph.model_copy(update={"ops": (*graph.ops, idle), "edges": (*graph.edges, later)})
    groups = {"load": ("LD",), "mma": ("MM",), "math": ("AD", "ST", "Z")}
    starts = {"LD": 0, "MM": 230, "AD": 360, "ST": 420, "Z": 470}
    schedule = write_schedule(graph, handmade_machine(), ii=220, starts=starts, groups=groups, placed=RING_PLACED)
    f = only(check_schedule(schedule, handmade_machine()), "blocking")
    assert f.message == "blocking: Z at cycle 470: is held up in group math by AD, waiting for an asynchronous op that Z does not need"


def test_refutation_is_refused_when_the_schedule_contradicts_it() -> None:
    ops = tuple(Op(name=name, kind="add", unit="alu", latency_cycles=10, issue_cycles=10) for name in "AB")
    graph = LoopGraph(name="one", machine="handmade", ops=ops)

    def claim(ii: int) -> Schedule:
        schedule = write_schedule(graph, handmade_machine(), ii=ii, starts={"A": 0, "B": 10}, groups={"g": ("A", "B")})

        def say(d: dict[str, Any]) -> None:
            d["proof"]["ii"] = {"value_cycles": ii, "by": "refutation", "refuted_cycles": ii - 1}
            d["proof"]["length"] = {"value_cycles": 20, "by": "refutation", "refuted_cycles": 19}
            d["status"] = "optimal"

        return edited(schedule, say)

    assert check_schedule(claim(20), handmade_machine()).ok
    f = only(check_schedule(claim(21), handmade_machine()), "proof")
    assert f.op == "proof.ii" and "20 was not refuted" in f.message


def test_length_refutation_is_refused_when_the_ops_fit() -> None:
    schedule, machine = ring_schedule()

    def say(d: dict[str, Any]) -> None:
        d["length_cycles"] = 600
        d["proof"]["length"] = {"value_cycles": 600, "by": "refutation", "refuted_cycles": 599}

    f = only(check_schedule(edited(schedule, say), machine), "proof")
    assert f.op == "proof.length" and "end by 550" in f.message


def test_proved_rank_leaves_no_free_memory() -> None:
    schedule, machine = builder_schedule()
    proved = edited(schedule, lambda d: d["proof"].update(rank_proved=True))
    assert check_schedule(proved, machine).ok

    def one_less(d: dict[str, Any]) -> None:
        d["buffers"][0]["stages"] -= 1
        d["rank"]["slack_cycles"] -= schedule.ii_cycles

    f = only(check_schedule(edited(proved, one_less), machine), "rank")
    assert f.op == "slack_cycles" and "X 14 stages" in f.message
    assert check_schedule(edited(schedule, one_less), machine).ok


def test_start_that_skipped_the_schema_is_refused() -> None:
    schedule, machine = ring_schedule()
    bad = schedule.model_copy(update={"ops": (schedule.ops[0].model_copy(update={"start_cycle": -1}), *schedule.ops[1:])})
    f = only(check_schedule(bad, machine), "schema")
    assert f.op == "ops.0.start_cycle" and "-1" in f.message
    assert rules(check_schedule(schedule.model_copy(update={"ii_cycles": 0}), machine)) == {"schema"}


def test_another_machine_is_refused() -> None:
    schedule, _ = ring_schedule()
    found = {f.op for f in check_schedule(schedule, handmade_machine(max_warps=16)).findings if f.rule == "machine"}
    assert found == {"machine.hash"}


def test_buffer_that_is_read_later_counts_the_iterations_between() -> None:
    graph = ring_graph()
    x = graph.buffers[0].model_copy(update={"readers": (Reader(op="MM", hold_cycles=100, distance=2, cross_group_cycles=30),)})
    graph = graph.model_copy(update={"buffers": (x, *graph.buffers[1:])})
    for stages, good in ((3, False), (4, True)):
        placed = RING_PLACED | {"X": (500, stages)}
        schedule = write_schedule(graph, handmade_machine(), ii=220, starts=RING_STARTS, groups=RING_GROUPS, placed=placed)
        report = check_schedule(schedule, handmade_machine())
        assert report.ok == good, report  # lives 360 + 2 * 220 = 800 cycles of 220


def test_checked_schedules_come_from_checked_only() -> None:
    schedule, machine = ring_schedule()
    good = checked(schedule, machine)
    assert (good.schedule, good.machine) == (schedule, machine)
    with pytest.raises(TypeError, match="checked"):
        CheckedSchedule(schedule, machine)
    with pytest.raises(TypeError, match="checked"):
        replace(good, schedule=schedule)
    with pytest.raises(FrozenInstanceError):
        good.schedule = schedule  # type: ignore[misc]


def test_check_failed_names_the_first_findings() -> None:
    schedule, machine = ring_schedule()
    bad = edited(schedule, lambda d: d.update(ops=[{**op, "stage": 9, "unit": "fpu"} for op in d["ops"]]))
    with pytest.raises(CheckFailed) as caught:
        checked(bad, machine)
    assert isinstance(caught.value, TwillError)
    assert caught.value.exit_code == EXIT_REFUSED
    text = str(caught.value)
    assert "8 findings" in text and "derived-fields: LD at cycle 0: stage is 0" in text and "and 3 more" in text and "next step" in text


def test_checking_is_quick() -> None:
    """50 ops at I = 3000 in well under 0.3 s: the two attention schedules, best of three."""
    for name in ("h200", "b200"):
        schedule, machine = attention_schedule(name)
        best = float("inf")
        for _ in range(3):
            begin = time.perf_counter()
            check_schedule(schedule, machine)
            best = min(best, time.perf_counter() - begin)
        assert best < 0.1
    schedule, machine = wide_schedule()
    assert (len(schedule.ops), schedule.ii_cycles) == (60, 3000)
    begin = time.perf_counter()
    assert check_schedule(schedule, machine).ok
    assert time.perf_counter() - begin < 0.3


def wide_schedule() -> tuple[Schedule, Machine]:
    """60 ops in six chains of ten that feed themselves, with a TMEM buffer and a register value between neighbours."""
    machine = handmade_machine(max_warps=64, file=10**6)
    chain = ring_graph().edges[1]
    ops, edges, buffers, starts, groups = [], [], [], {}, {}
    for c in range(6):
        names = [f"OP_{c}_{i}" for i in range(10)]
        groups[f"g{c}"] = tuple(names)
        for i, name in enumerate(names):
            ops.append(Op(name=name, kind="add", unit="alu", latency_cycles=200, issue_cycles=200))
            starts[name] = 210 * i
            edges.append(chain.model_copy(update={"src": name, "dst": names[(i + 1) % 10], "latency_cycles": 200, "distance": int(i == 9)}))
        buffers.append(Buffer(name=f"B{c}", memory="smem", size=100, writers=(names[0],), readers=(Reader(op=names[5], hold_cycles=200),)))
    graph = LoopGraph(name="wide", machine="handmade", ops=tuple(ops), edges=tuple(edges), buffers=tuple(buffers))
    placed = {f"B{c}": (100 * c, 1) for c in range(6)}
    return write_schedule(
        graph, machine, ii=3000, starts=starts, groups=groups, placed=placed, options=Options(groups=6, max_copies=2)
    ), machine


def test_checker_stands_alone() -> None:
    """Neither z3 nor any solver code is loaded."""
    code = (
        "import sys, twill.check; print([m for m in sys.modules if m.split('.')[0] in ('z3', 'ortools') or m.startswith('twill.solver')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
