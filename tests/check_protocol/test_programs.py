"""Two programs written by hand and all lowered ones pass, compute attention in every interleaving, and are costed."""

from __future__ import annotations

import numpy as np
import pytest

from twill import schedules
from twill.check import checked
from twill.check.protocol import check_protocol
from twill.check.protocol.interpreter import ProtocolHang, interpret, schedulers
from twill.cli.request import machine_of_schedule
from twill.lower import lower
from twill.lower.program import WarpProgram
from twill.model.graph import LoopGraph

from .programs import blackwell, blackwell_graph, hopper, hopper_graph
from .tiles import AttentionTiles

EXACT = 1e-12
HAND_WRITTEN = {"hopper": (hopper, hopper_graph), "blackwell": (blackwell, blackwell_graph)}


def wrong_run(program: WarpProgram, graph: LoopGraph, trip_counts: tuple[int, ...], seeds: int) -> str:
    """The first run that hangs or does not give attention, in words; "" if all do."""
    for trip_count in trip_counts:
        tiles = AttentionTiles(graph, trip_count)
        right = tiles.reference() if trip_count else None
        for late_reads in (False, True):
            for name, scheduler in schedulers([r.name for r in program.roles], seeds).items():
                try:
                    registers = interpret(program, graph, trip_count, tiles, scheduler, late_reads=late_reads)
                except ProtocolHang as hang:
                    return f"T={trip_count}, {name}: {hang}"
                if right is not None and not np.abs(tiles.result(graph, registers, trip_count) - right).max() < EXACT:
                    return f"T={trip_count}, {name}: wrong numbers"
    return ""


@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_hand_written_programs(name: str) -> None:
    make, graph = HAND_WRITTEN[name]
    report = check_protocol(make(), graph())
    assert report.findings == ()
    assert wrong_run(make(), graph(), (0, 1, 2, 3, 7), seeds=10) == ""


def test_cycle_ratio_of_fa3_order_is_the_chain_of_one_consumer() -> None:
    report = check_protocol(hopper(), hopper_graph(), ii_cycles=2284)
    op = {o.name: o for o in hopper_graph().ops}
    occupancy = op["QK_a"].reservations[0].cycles
    chain = ("MAX_a", "EXP_a", "SUM_a", "CVT_a", "RESC_a")
    # QK is issued, PV runs behind it: its issue follows; S is ready 629 after QK; then the softmax, all in one role
    softmax = sum(op[x].latency_cycles for x in chain)
    assert report.cycle_ratio_cycles == max(softmax + op["QK_a"].latency_cycles, softmax + occupancy + op["PV_a"].issue_cycles)
    assert "I is 2284" in str(report)


def test_cycle_ratio_of_fa4_order_is_what_the_solver_finds() -> None:
    """The hand-written order is the optimal one: same critical cycle, I 2839."""
    report = check_protocol(blackwell(), blackwell_graph())
    assert report.cycle_ratio_cycles == schedules.load("sm100_attn_fwd_d128").ii_cycles
    assert any("PV_" in step for step in report.critical_cycle)


@pytest.mark.parametrize("name", schedules.names())
def test_lowered_schedules(name: str) -> None:
    schedule = schedules.load(name)
    program = lower(checked(schedule, machine_of_schedule(schedule.machine.name, None)))
    report = check_protocol(program, schedule.graph, ii_cycles=schedule.ii_cycles)
    assert report.findings == ()
    assert report.cycle_ratio_cycles
    if "fwd" in name:
        assert report.cycle_ratio_cycles <= schedule.ii_cycles
        assert wrong_run(program, schedule.graph, (0, 1, 2, 6), seeds=2) == ""
