"""Changed orders of a schedule: the check refuses them, the emulator catches what runs, or they are legal. A sample of all."""

from __future__ import annotations

from functools import cache

import pytest
from twill.schedules import load

from twill.check import CheckedSchedule, checked
from twill.check.protocol import check_protocol
from twill.emulate.numbers import Shape
from twill.emulate.order_campaign import judge, sample, verdict
from twill.emulate.orders import OrderMutant, order_mutants
from twill.lower import WarpProgram, lower
from twill.model.machine import load_machine


@cache
def _case(name: str) -> tuple[CheckedSchedule, WarpProgram, tuple[OrderMutant, ...]]:
    schedule = load(name)
    found = checked(schedule, load_machine(schedule.machine.name))
    program = lower(found)
    return found, program, tuple(order_mutants(program))


def test_every_drop_and_every_swap() -> None:
    _, program, mutants = _case("sm100_attn_fwd_d128")
    steps = sum(len(r.body) for r in program.roles)
    dropped = [m for m in mutants if m.family.endswith("dropped")]
    assert len(dropped) == steps
    assert len(mutants) - len(dropped) <= steps - len(program.roles)
    for m in mutants:
        changed = [(a, b) for a, b in zip(program.roles, m.program.roles, strict=True) if a != b]
        assert [a.name for a, _ in changed] == [m.role]
        ((old, new),) = changed
        if m in dropped:
            assert len(new.body) == len(old.body) - 1
        else:
            assert sorted(map(repr, new.body)) == sorted(map(repr, old.body))
            assert sum(x != y for x, y in zip(old.body, new.body, strict=True)) == 2


@pytest.mark.parametrize(("name", "accepted"), [("sm100_attn_fwd_d64", 23), ("sm100_attn_fwd_d128", 17), ("sm103_attn_fwd_d128", 17)])
def test_the_check_refuses_all_but_swaps(name: str, accepted: int) -> None:
    """Nothing can be left out; swaps that pass move a wait, an arrival or a row sum where nothing depends on it."""
    found, _, mutants = _case(name)
    passed = [m for m in mutants if check_protocol(m.program, found.schedule.graph).ok]
    assert {m.family for m in passed} == {"neighbours swapped"}
    assert len(passed) == accepted


@pytest.mark.timeout(900)
def test_a_sample_as_kernels() -> None:
    """What the check refuses shows when it runs; what it accepts is right under every scheduler."""
    pytest.importorskip("cutlass", reason="kernels are compiled by CuTe DSL: install 'twill-gpu[kernels]'")
    pytest.importorskip("filelock")
    found, program, mutants = _case("sm100_attn_fwd_d64")
    by_text = {(m.role, m.family, m.text): m for m in mutants}
    chosen = [
        by_text["softmax_a", "operation dropped", "EXP_a1"],
        by_text["mma", "wait dropped", "wait V_full"],
        by_text["mma", "neighbours swapped", "PV_b0, wait EXP_b1_to_PV_b1"],
        by_text["mma", "operation dropped", "QK_a"],
    ]
    judged = list(judge(found, program, chosen, Shape(1, 130, 800, 1, 1, 64, 64, False, "bf16"), run_refused=True))
    wrong, raced, legal, unprintable = judged
    assert verdict(wrong) == verdict(raced) == "refused by the check"
    assert wrong.ran and "wrong value" in wrong.kinds
    assert raced.ran and {"race", "uninitialised read"} & set(raced.kinds)
    assert verdict(legal) == "legal" and legal.ran and not legal.same
    assert unprintable.refusal and not unprintable.ran


def test_a_sample_is_spread_evenly() -> None:
    mutants = _case("sm100_attn_fwd_d64")[2]
    assert len(sample(mutants, 60)) == 60
    assert {m.role for m in sample(mutants, 60)} == {m.role for m in mutants}
    assert sample(mutants, 1000) == mutants
