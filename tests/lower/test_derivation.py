"""What is derived: waits, depths, counts, what is left out and why."""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path

import pytest
from check.samples import attention_schedule, builder_schedule, ring_schedule, shared_group_schedule

from twill.check import checked
from twill.errors import EXIT_REFUSED, LowerError
from twill.lower import Arrive, Execute, Role, Wait, WaitOwn, WarpProgram, listing, lower
from twill.model.machine import load_machine

from .conftest import fa3_order, mmas, shipped
from .requirements import required
from .simulator import simulate
from .small import small_program

GOLDEN = Path(__file__).parent / "golden"


def role(program: WarpProgram, name: str) -> Role:
    return next(r for r in program.roles if r.name == name)


def around(program: WarpProgram, op: str) -> tuple[list[object], list[object]]:
    """Instructions between the op before and an op, and between it and the next."""
    body = next(r.body for r in program.roles if any(isinstance(x, Execute) and x.op == op for x in r.body))
    at = [n for n, x in enumerate(body) if isinstance(x, Execute)]
    here = next(n for n in at if body[n].op == op)  # type: ignore[union-attr]
    before = max((n for n in at if n < here), default=-1)
    after = min((n for n in at if n > here), default=len(body))
    return list(body[before + 1 : here]), list(body[here + 1 : after])


@pytest.mark.parametrize("name", ["sm90_attn_fwd_d128", "small"])
def test_golden(name: str) -> None:
    _, program = small_program() if name == "small" else shipped(name)
    assert listing(program) == (GOLDEN / f"{name}.txt").read_text()


def test_ring_with_two_readers_takes_two_arrivals() -> None:
    _, program = small_program()
    empty = program.barrier("X_empty")
    arrivals = [(r.name, x) for r in program.roles for x in r.body if isinstance(x, Arrive) and x.barrier == "X_empty"]
    assert arrivals == [("left", Arrive("X_empty", 0, 4)), ("right", Arrive("X_empty", 0, 4))]
    assert (empty.arrivals, empty.slots) == (8, 3)
    assert (program.barrier("X_full").tx_bytes, program.barrier("X_full").arrivals) == (96, 1)


@pytest.mark.parametrize("kind", ["smem", "order"])
def test_small_pipeline_runs(kind: str) -> None:
    schedule, program = small_program(kind)
    for trips, seed in product((0, 1, 2, 3, 5, 20), range(6)):
        run = simulate(program, trips, set(), seed)
        assert all(run.before(u, v) for _, u, v in required(schedule, trips))


def test_producer_without_back_pressure_is_paced() -> None:
    """Nothing but the edge joins A and C, so the parity of its barrier would be confused if A ran ahead."""
    _, program = small_program("order")
    pace = program.barrier("C_paces_A")
    assert pace.guards == ("pace A by C",)
    assert Wait("C_paces_A", 0, 3) in role(program, "left").body


def test_wait_depths_on_hopper() -> None:
    """S is ready with PV of the iteration before still running; P may be written once PV has read it."""
    program = fa3_order()
    before_max, _ = around(program, "MAX_a")
    assert before_max == [
        WaitOwn(1, 0, (1,), ("edge QK_a->MAX_a", "release K by QK_a")),
        Arrive("K_empty", 0, 4),
    ]
    before_convert, _ = around(program, "CVT_a")
    assert before_convert == [WaitOwn(0, 1, (), ("registers P_a by PV_a", "release V by PV_a")), Arrive("V_empty", 1, 4)]


def test_wait_depth_shrinks_where_nothing_is_in_flight() -> None:
    """In iteration 0 no PV has been issued, so one pending MMA would be QK itself."""
    program = fa3_order()
    depths = [x.pending for x, _ in role(program, "softmax_a").trace(3) if isinstance(x, WaitOwn) and x.stage == 0]
    assert depths == [0, 1, 1]
    assert [x.pending for x, _ in role(program, "softmax_a").trace(1) if isinstance(x, WaitOwn)] == [0, 0]


def test_the_two_waits_that_flash_attention_4_omits() -> None:
    """S is overwritten without a wait, as PV waited for P; O is rescaled without a wait, as S of i + 1 is behind PV of i."""
    _, program = shipped("sm100_attn_fwd_d128")
    out = dict(program.redundant)
    for x in "ab":
        path = out[f"release SP_{x} by MAX_{x}"]
        assert "->PV_" in path and path.endswith(f"then QK_{x}[i+1] issued (order of mma)")
        path = out[f"edge PV_{x}1->RESC_{x}@1"]
        assert f"QK_{x}[i+1] begins (tensor pipe)" in path and f"(edge MAX_{x}->RESC_{x})" in path
        assert f"slot factor_{x} by RESC_{x}" in out
    guarded = {g for b in program.barriers for g in b.guards}
    assert not guarded & set(out)
    assert guarded == {
        "edge LK->QK_a", "edge LV->PV_a0", "release V by PV_b1",
        *(f"edge {e}" for x in "ab" for e in (
            f"QK_{x}->MAX_{x}", f"EXP_{x}0->PV_{x}0", f"EXP_{x}1->PV_{x}1", f"MAX_{x}->RESC_{x}", f"RESC_{x}->PV_{x}0",
        )),
    }  # fmt: skip


def test_mma_in_tensor_memory_commits() -> None:
    _, program = shipped("sm100_attn_fwd_d128")
    _, after = around(program, "QK_a")
    assert Arrive("SP_a_full", 0, 1, "after", "QK_a") in after
    assert not any(isinstance(x, WaitOwn) for r in program.roles for x in r.body)


def test_named_barrier_takes_both_sides() -> None:
    _, program = shipped("sm100_attn_fwd_d128")
    named = [b for b in program.barriers if b.kind == "named"]
    assert [(b.name, b.named_id, b.arrivals, b.slots) for b in named] == [("MAX_a_to_RESC_a", 1, 8, 1), ("MAX_b_to_RESC_b", 2, 8, 1)]
    before, _ = around(program, "RESC_a")
    assert before[-2:] == [Arrive("MAX_a_to_RESC_a", 0, 4), Wait("MAX_a_to_RESC_a", 0, 0)]


def test_overlaid_buffers_take_turns() -> None:
    """dQ has the columns of dP: it comes after dK, which has read dS there, in the order of their role; the next dP waits for it."""
    _, program = shipped("sm100_attn_bwd_d128")
    assert dict(program.redundant)["overlay dQ after dPdS by DK"] == "DK[i] done, then DQ[i] begins (tensor pipe)"
    assert all(g.startswith("overlay dPdS after dQ by DQLD") for g in program.barrier("dQ_left_for_DP").guards)


@pytest.mark.parametrize("sample", ["h200", "b200", "builder", "shared"])
def test_schedules_that_are_not_optimal(sample: str) -> None:
    made = {"builder": builder_schedule, "shared": shared_group_schedule}
    schedule, machine = made[sample]() if sample in made else attention_schedule(sample)
    program = lower(checked(schedule, machine))
    for trips, seed in product((0, 1, 2, 3, 5), range(3)):
        run = simulate(program, trips, mmas(schedule), seed)
        assert all(run.before(u, v) for _, u, v in required(schedule, trips))


def test_handover_slots_that_do_not_fit() -> None:
    with pytest.raises(LowerError, match=r"hand-over slots y .* reserves 100") as caught:
        lower(checked(*ring_schedule()))
    assert caught.value.exit_code == EXIT_REFUSED


def test_fast_and_deterministic() -> None:
    schedule, program = shipped("sm90_attn_bwd_d128")
    begin = time.perf_counter()
    again = lower(checked(schedule, load_machine(schedule.machine.name)))
    assert time.perf_counter() - begin < 1
    assert again == program
