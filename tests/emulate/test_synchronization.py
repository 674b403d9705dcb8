"""Barriers, fences and races: each small program is right, and wrong in one way that must be found."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.program import Outcome, execute, lane_address
from twill.emulate.machine.schedulers import SCHEDULERS

OUT = np.zeros(32, np.uint32)

PRODUCER_CONSUMER = """
mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; setp.ne.s32 %p1, %r2, 0;
@%p1 bra READY;
elect.sync %r3|%p2, -1;
@%p2 mbarrier.init.shared.b64 [smem], 1;
READY: bar.sync 0;
and.b32 %r4, %r1, 31; shl.b32 %r5, %r4, 2; mov.b32 %r6, smem; add.s32 %r7, %r6, %r5;
@%p1 bra CONSUMER;
add.s32 %r8, %r4, 100;
st.shared.b32 [%r7+128], %r8;
elect.sync %r3|%p2, -1;
@%p2 mbarrier.arrive.shared.b64 %rd20, [smem];
bra OVER;
CONSUMER:
WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [smem], 0;
@!%p3 bra WAIT;
ld.shared.b32 %r9, [%r7+128];
"""
WRITE = (
    lane_address("%rd10", "%rd1").replace("%r399, %tid.x;", "%r399, %tid.x; and.b32 %r399, %r399, 31;")
    + "st.global.b32 [%rd10], %r9;\nOVER:\n"
)


def _run(code: str, scheduler: str = "eager", **given: int) -> Outcome:
    return execute(code + WRITE, [OUT], threads=64, shared=512, scheduler=scheduler, **given)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_barrier_orders_a_write_before_a_read(scheduler: str) -> None:
    out = _run(PRODUCER_CONSUMER, scheduler)
    assert not out.findings.items
    np.testing.assert_array_equal(out.array(0, np.uint32), np.arange(32) + 100)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_without_the_wait_it_is_a_race_in_any_order(scheduler: str) -> None:
    head, _, tail = PRODUCER_CONSUMER.partition("WAIT:")
    without = head + tail.partition("@!%p3 bra WAIT;")[2]
    out = _run(without, scheduler)
    assert out.kinds & {"race", "uninitialised read"}
    if "race" in out.kinds:
        (race,) = [f for f in out.findings.items if f.kind == "race"]
        assert "warp" in race.text
        assert "PTX line" in race.text


def test_a_try_whose_result_nobody_looks_at_is_no_wait() -> None:
    assert _run(PRODUCER_CONSUMER.replace("@!%p3 bra WAIT;", ""), "late").kinds & {"race", "uninitialised read"}


def test_without_the_arrival_it_is_a_deadlock_with_all_that_is_known() -> None:
    out = _run(PRODUCER_CONSUMER.replace("@%p2 mbarrier.arrive.shared.b64 %rd20, [smem];", ""))
    (found,) = out.findings.items
    assert found.kind == "deadlock"
    assert "waits for parity 0 of the barrier at shared memory offset 0" in found.text
    assert "1 of 1 arrivals" in found.text
    assert "warp 0, block (0, 0, 0): has ended" in found.text


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (("[smem], 0;", "[smem], 1;"), {"race", "uninitialised read", "deadlock"}),
        (("mbarrier.init.shared.b64 [smem], 1", "mbarrier.init.shared.b64 [smem], 2"), {"deadlock"}),
        (("@%p2 mbarrier.arrive", "mbarrier.arrive"), {"barrier"}),
        (("READY: bar.sync 0;", "READY:"), {"race", "barrier"}),
        (("bar.sync 0;", "bar.sync 0, 96;"), {"deadlock"}),
        (("mbarrier.arrive.shared.b64 %rd20, [smem]", "mbarrier.arrive.expect_tx.shared.b64 %rd20, [smem], 64"), {"deadlock"}),
        (("st.shared.b32 [%r7+128]", "st.shared.b32 [%r7+512]"), {"out of bounds"}),
        (("[%r7+128], %r8", "[%r7+256], %r8"), {"uninitialised read"}),
    ],
)
def test_faults(change: tuple[str, str], kind: set[str]) -> None:
    assert change[0] in PRODUCER_CONSUMER
    assert _run(PRODUCER_CONSUMER.replace(*change)).kinds & kind


def test_a_deadlock_points_at_the_barrier_that_misses_an_arrival() -> None:
    (found,) = _run(PRODUCER_CONSUMER.replace("[smem], 1;", "[smem], 3;")).findings.items
    second = found.text.splitlines()[1]
    assert second.startswith("  look at the barrier at shared memory offset 0,")
    assert "still expects 2 of 3 arrivals" in second


def test_a_second_use_of_a_buffer_needs_its_own_order() -> None:
    """A producer that does not wait until the consumer has read: write after read."""
    twice = PRODUCER_CONSUMER.replace("bra OVER;\nCONSUMER:", "st.shared.b32 [%r7+128], %r4;\nbra OVER;\nCONSUMER:")
    out = _run(twice, "late")
    assert "race" in out.kinds


def test_a_widened_load_reads_only_what_is_used() -> None:
    code = """
    mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 4; mov.b32 %r3, smem; add.s32 %r4, %r3, %r2;
    st.shared.b32 [%r4], %r1; st.shared.b32 [%r4+8], %r1;
    ld.shared.v4.b32 {%r5, %r6, %r7, %r8}, [%r4]; add.s32 %r9, %r5, %r7;
    """
    assert not execute(code + WRITE, [OUT], shared=512).findings.items
    assert execute(code + "add.s32 %r9, %r9, %r6;" + WRITE, [OUT], shared=512).kinds == {"uninitialised read"}


def test_named_barriers_name_what_does_not_fit() -> None:
    code = "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32; @%p1 bra A; bar.sync 3, 96; bra B; A: bar.sync 3, 64; B:"
    out = execute(code, [OUT], threads=64)
    assert any("threads" in f.text for f in out.findings.items if f.kind == "barrier")
    arrive = "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32; @%p1 bra A; bar.arrive 3, 64; bra B; A: bar.sync 3, 64; B:"
    assert not execute(arrive, [OUT], threads=64).findings.items


def test_registers_are_taken_only_from_what_is_free() -> None:
    code = """
    mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 128; @%p1 bra A;
    setmaxnreg.inc.sync.aligned.u32 240; bra B;
    A: setmaxnreg.dec.sync.aligned.u32 24; B:
    """
    assert not execute(code, [OUT], threads=384).findings.items
    out = execute(code.replace("u32 24;", "u32 104;"), [OUT], threads=384)
    assert "deadlock" in out.kinds
    # what 384 threads are launched with, 168 each, is all that they have: 65536 registers are more
    assert "deadlock" in execute(code.replace("u32 24;", "u32 32;"), [OUT], threads=384).kinds


def test_coverage_counts_the_segments_run() -> None:
    code = "mov.b32 %r1, 0; LOOP: add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, 50; @%p1 bra LOOP;"
    assert execute(code, [OUT]).coverage.segments == 1 + 50 + 1
