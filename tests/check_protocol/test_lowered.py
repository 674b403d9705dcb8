"""Lowered schedules are simulated in the order of their programs; the queue of the tensor core and bursts of FMA have their effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from twill import schedules
from twill.check import checked
from twill.check.protocol import Order, cost_order, lowered_order, parse_order
from twill.errors import UsageError
from twill.lower import lower
from twill.lower.program import Execute, WarpProgram
from twill.model.machine import Machine, load_machine
from twill.model.schedule import Schedule, parse_schedule

ROOT = Path(__file__).parents[2]
FORWARD = (
    "sm90_attn_fwd_d64",
    "sm90_attn_fwd_d96",
    "sm90_attn_fwd_d128",
    "sm90_attn_fwd_d192_dv128",
    "sm90_attn_fwd_d256",
    "sm100_attn_fwd_d128",
)


def _program(schedule: Schedule) -> WarpProgram:
    return lower(checked(schedule, load_machine(schedule.machine.name)))


def _cycles(name: str) -> float:
    schedule = parse_schedule((ROOT / "tests/emit/schedules" / f"{name}.json").read_text(), name)
    return cost_order(lowered_order(schedule, _program(schedule))).period_cycles


def _hand_written(name: str) -> Order:
    return parse_order((ROOT / f"docs/examples/orders/{name}.json").read_text(), name)


def _without(*figures: str) -> Machine:
    machine = load_machine("h200")
    return machine.model_copy(update={"costs": {k: v for k, v in machine.costs.items() if k not in figures}})


@pytest.mark.parametrize("name", FORWARD)
def test_every_op_in_the_order_of_its_role(name: str) -> None:
    schedule = schedules.load(name)
    program = _program(schedule)
    order = lowered_order(schedule, program)
    tma = {op.name for op in schedule.graph.ops if op.unit == "tma"}
    expected = {r.name: [x.op for x in r.body if isinstance(x, Execute) and x.op not in tma] for r in program.roles}
    assert {r.name: [s.op for s in r.steps if s.op] for r in order.roles} == {k: v for k, v in expected.items() if v}


@pytest.mark.parametrize("name", FORWARD)
def test_no_faster_than_its_tensor_core(name: str) -> None:
    schedule = schedules.load(name)
    found = cost_order(lowered_order(schedule, _program(schedule)))
    given = dict(schedule.graph.parameters)
    rows, keys = (int(x) for x in str(given["tile"]).split("x"))
    flops = 2 * rows * keys * (int(str(given["head_dim"])) + int(str(given["head_dim_v"])))
    bare = flops / load_machine(schedule.machine.name).cost("mma_flops_per_cycle")
    assert bare <= found.period_cycles <= 1.6 * schedule.ii_cycles
    assert found.tensor_share <= 1.0


def test_a_schedule_that_begins_nothing_early_costs_more() -> None:
    assert _cycles("d128_one_copy") > 1.2 * _cycles("d128_fa3_order")


def test_the_queue_of_the_tensor_core_delays_what_follows_a_second_mma() -> None:
    order = _hand_written("fa3_one_warpgroup_d128")
    with_queue, without = cost_order(order), cost_order(order, _without("mma_queue_instructions"))
    assert without.period_cycles + 64 < with_queue.period_cycles
    # where a role waits for its only MMA, it makes no difference when the last instruction was taken
    serial = _hand_written("serial_d128")
    assert cost_order(serial).period_cycles == cost_order(serial, _without("mma_queue_instructions")).period_cycles


def test_only_bursts_stop_the_tensor_core() -> None:
    rescaled, plain = _hand_written("fa3_d128"), _hand_written("fa3_no_rescale_d128")
    machine = load_machine("h200")
    none = machine.costs["mma_stolen_by_fma_burst"].model_copy(update={"value": 0.0})
    calm = machine.model_copy(update={"costs": {**machine.costs, "mma_stolen_by_fma_burst": none}})
    assert cost_order(plain).period_cycles == cost_order(plain, calm).period_cycles
    # two rescales of 64 x 128, 69 cycles of all FMA pipes each
    assert cost_order(rescaled).period_cycles > cost_order(rescaled, calm).period_cycles + 69


def test_other_graphs_are_refused() -> None:
    schedule = schedules.load("sm90_attn_bwd_d64")
    with pytest.raises(UsageError, match="attn_bwd cannot be simulated"):
        lowered_order(schedule, _program(schedule))
