"""Lowered programs run to the end, in every interleaving tried, and keep every order that the schedule's graph asks for."""

from __future__ import annotations

from itertools import product

import pytest
from twill.schedules import names

from twill.lower import Wait, WaitOwn

from .conftest import mmas, shipped
from .requirements import required
from .simulator import Deadlock, PhaseError, simulate, without

TRIPS = (0, 1, 2, 3, 5)


@pytest.mark.parametrize("name", names())
def test_shipped_schedules(name: str) -> None:
    schedule, program = shipped(name)
    for trips in TRIPS:
        for seed in range(4):
            run = simulate(program, trips, mmas(schedule), seed)
            assert sorted(run.executed) == sorted(product((op.name for op in schedule.ops), range(trips)))
            unordered = [pair for pair in required(schedule, trips) if not run.before(pair[1], pair[2])]
            assert not unordered


@pytest.mark.parametrize("name", ["sm90_attn_fwd_d128", "sm100_attn_fwd_d128", "sm90_attn_bwd_d128", "sm100_attn_bwd_d128"])
def test_every_wait_is_needed(name: str) -> None:
    schedule, program = shipped(name)
    for role in program.roles:
        for position, x in enumerate(role.body):
            # waits that give registers back order no data: see test_held
            if isinstance(x, Wait | WaitOwn) and not _for_registers(schedule, x):
                assert _fails(schedule, without(program, role, position)), f"{role.name}: {x}"


def _for_registers(schedule, x: Wait | WaitOwn) -> bool:  # type: ignore[no-untyped-def]
    orders = {f"edge {e.label}" for e in schedule.graph.edges if e.kind == "order"}
    return isinstance(x, WaitOwn) and bool(x.guards) and all(g.startswith("registers held by ") or g in orders for g in x.guards)


def _fails(schedule, program) -> bool:  # type: ignore[no-untyped-def]
    for trips, seed in product((3, 6), range(3)):
        try:
            run = simulate(program, trips, mmas(schedule), seed)
        except (Deadlock, PhaseError):
            return True
        if any(not run.before(u, v) for _, u, v in required(schedule, trips)):
            return True
    return False
