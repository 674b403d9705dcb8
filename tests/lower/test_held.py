"""Registers in program order: MMAs that are over give theirs back before others are taken, and no more are held than were asked for."""

from __future__ import annotations

import pytest

from twill.check import checked
from twill.cli.request import machine_of_schedule
from twill.lower.dependences import dependences
from twill.lower.held import Place, _limit, _missing, _walk
from twill.lower.own_waits import OwnWait, _with, own_waits
from twill.lower.redundancy import reduce
from twill.lower.roles import Loop, expand
from twill.lower.storage import handover_slots

from .conftest import shipped

NAMES = ["sm90_attn_bwd_d64", "sm90_attn_bwd_d96", "sm90_attn_bwd_d128", "sm90_attn_fwd_d128"]


def _places(waits: tuple[OwnWait, ...]) -> list[Place]:
    return [(w.op, w.position, w.stage) for w in waits]


def _waits(name: str) -> tuple[Loop, list[Place], list[Place]]:
    """The loop, the waits that dependences need, and those of its program."""
    schedule, _ = shipped(name)
    loop = expand(checked(schedule, machine_of_schedule(schedule.machine.name, None)))
    _, kept, _ = reduce(loop, dependences(loop, handover_slots(loop)))
    own = [d for d in kept if loop.waits_own(d.src)]
    return loop, _places(_with(loop, own, ())), _places(own_waits(loop, kept))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_asked_for_is_enough(name: str) -> None:
    loop, _, waits = _waits(name)
    for role, ops in loop.order.items():
        if any(loop.waits_own(op) for op in ops):
            assert max(held for held, _ in _walk(loop, role, waits)) <= _limit(loop, role)


def test_without_waits_for_registers_some_are_held_longer() -> None:
    loop, without, waits = _waits("sm90_attn_bwd_d128")
    assert set(waits) - set(without)
    assert any(_missing(loop, role, without) is not None for role in loop.order)
    assert all(_missing(loop, role, waits) is None for role in loop.order if role != "load")


def test_registers_of_the_backward_by_hand() -> None:
    """dK and dV 128; S and dP of 64 x 80 are 40 each; P and dS in pairs 20 each; a part of dQ^T is 40."""
    loop, _, waits = _waits("sm90_attn_bwd_d128")
    role = loop.role("QK_a")
    held = dict(zip(loop.order[role], (total for total, _ in _walk(loop, role, waits)), strict=True))
    assert held["EXP_a"] == 128 + 40 + 40
    assert held["DV_a"] <= 128 + 20 + 20 + 40
