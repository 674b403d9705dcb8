"""Orders given from outside: the tightest schedule keeps to them, and the best order is found again from itself."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from twill import schedules
from twill.check import checked
from twill.check.protocol import Order, parse_order
from twill.cli.cost import tightest_schedule
from twill.errors import UsageError
from twill.model.machine import load_machine
from twill.model.schedule import Schedule
from twill.solver.ordered import Ordered, Place, tightest

ORDERS = Path(__file__).parents[2] / "docs" / "examples" / "orders"


def _order(name: str) -> Order:
    return parse_order((ORDERS / f"{name}.json").read_text(), name)


def _roles(schedule: Schedule) -> dict[str, list[Place]]:
    """The order of a schedule: in one period its ops act for the iterations that their stages say."""
    stage = {op.name: op.stage for op in schedule.ops}
    return {g.name: [Place(op, -stage[op]) for op in g.ops] for g in schedule.groups}


def _tightest(schedule: Schedule, roles: dict[str, list[Place]]) -> Ordered:
    return tightest(schedule.graph, load_machine(schedule.machine.name), schedule.options, roles)


@pytest.mark.parametrize("name", ["sm100_attn_fwd_d128", "sm100_attn_fwd_d64", "sm90_attn_fwd_d256", "sm100_attn_bwd_d96"])
def test_the_order_of_the_best_schedule_is_as_good_as_the_best_schedule(name: str) -> None:
    best = schedules.load(name)
    found = _tightest(best, _roles(best))
    assert found.schedule is not None
    again = checked(found.schedule, load_machine(best.machine.name)).schedule
    assert (again.ii_cycles, again.margin_cycles, again.length_cycles) == (best.ii_cycles, best.margin_cycles, best.length_cycles)
    assert found.proved
    # the record says nothing that holds only for this order
    assert again.proof.ii.by != "refutation"
    assert not again.proof.rank_proved


@pytest.mark.parametrize("name", ["fa4_d128", "fa4_causal_d128", "fa4_d64", "fa3_d128"])
def test_a_schedule_keeps_to_its_order(name: str) -> None:
    order = _order(name)
    found = tightest_schedule(order)
    ops = {op.name: op for op in found.ops}
    issue = {op.name: op.issue_cycles for op in found.graph.ops}
    for role in order.roles:
        steps = [s for s in role.steps if s.op]
        assert len({ops[s.op].group for s in steps if s.op}) == 1
        for a, b in itertools.pairwise([*steps, steps[0].model_copy(update={"ahead": steps[0].ahead + 1})]):
            assert a.op is not None and b.op is not None
            begin = ops[a.op].start_cycle + a.ahead * found.ii_cycles
            assert ops[b.op].start_cycle + b.ahead * found.ii_cycles >= begin + issue[a.op]
    homes = [{ops[s.op].group for s in role.steps if s.op} for role in order.roles]
    assert len(set.union(*homes)) == len(order.roles)


def test_ours_and_fa4() -> None:
    """Blackwell's forward: what docs/results.md says of FA4's order beside ours."""
    ours = {d: schedules.load(f"sm100_attn_fwd_d{d}").ii_cycles for d in (64, 128)}
    assert tightest_schedule(_order("fa4_d64")).ii_cycles > 1.09 * ours[64]
    assert tightest_schedule(_order("fa4_d128")).ii_cycles > 1.01 * ours[128]
    assert tightest_schedule(_order("fa4_causal_d128")).ii_cycles == ours[128]


def test_a_worse_order_costs_more_and_an_impossible_one_is_refused() -> None:
    best = schedules.load("sm100_attn_fwd_d128")
    roles = _roles(best)
    mma = [p.op for p in roles["mma"]]
    ahead = {p.op: p.ahead for p in roles["mma"]}
    # both first chunks before both second ones: P of one sub-tile holds up the other
    worse = ["PV_a0", "PV_b0", "PV_a1", "PV_b1", "QK_a", "QK_b"]
    assert sorted(worse) == sorted(mma)
    slower = _tightest(best, roles | {"mma": [Place(op, ahead[op]) for op in worse]})
    assert slower.schedule is not None
    assert slower.schedule.ii_cycles > best.ii_cycles
    # the second chunk of P V before the first of the same iteration
    late = next(p for p in roles["mma"] if p.op == "PV_a0")
    impossible = [Place("PV_a1", late.ahead), Place("PV_a0", late.ahead)]
    assert _tightest(best, {"mma": impossible}) == Ordered(None, True)


def test_what_cannot_be_meant_is_refused() -> None:
    best = schedules.load("sm100_attn_fwd_d128")
    with pytest.raises(UsageError, match="no op 'QK_z'"):
        _tightest(best, {"mma": [Place("QK_z")]})
    with pytest.raises(UsageError, match="QK_a is listed twice"):
        _tightest(best, {"mma": [Place("QK_a")], "other": [Place("QK_a")]})
    order = _order("fa4_d64")
    both = order.roles[1].model_copy(update={"steps": order.roles[1].steps + order.roles[2].steps})
    together = order.model_copy(update={"roles": (both,)})
    with pytest.raises(UsageError, match="the rules of the model forbid it"):
        tightest_schedule(together)
