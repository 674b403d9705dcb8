"""Words in memory by which warps tell each other something: counted up, looked at, slept on; right, and wrong in ways that are found."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.program import Outcome, execute
from twill.emulate.machine.schedulers import SCHEDULERS

OUT = np.zeros(32, np.uint32)

COUNTED = """
mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; setp.ne.s32 %p1, %r2, 0;
and.b32 %r4, %r1, 31; shl.b32 %r5, %r4, 2; mov.b32 %r6, smem; add.s32 %r7, %r6, %r5;
@%p1 bra READY;
mov.b32 %r9, 0; st.shared.b32 [smem], %r9;
READY: bar.sync 0;
@%p1 bra CONSUMER;
add.s32 %r8, %r4, 100;
st.shared.b32 [%r7+128], %r8;
setp.eq.s32 %p2, %r4, 0;
bar.warp.sync -1;
@%p2 red.release.cta.shared::cta.add.u32 [smem], 1;
bra OVER;
CONSUMER:
LOOK: ld.acquire.cta.shared.b32 %r10, [smem];
setp.ge.s32 %p3, %r10, 1;
@%p3 bra SEEN;
nanosleep.u32 100;
bra LOOK;
SEEN:
ld.shared.b32 %r9, [%r7+128];
mul.wide.u32 %rd9, %r4, 4; add.s64 %rd10, %rd1, %rd9;
st.global.b32 [%rd10], %r9;
OVER:
"""


def _run(code: str, scheduler: str = "eager") -> Outcome:
    return execute(code, [OUT], threads=64, shared=512, scheduler=scheduler)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_who_acquires_a_word_sees_what_came_before_its_release(scheduler: str) -> None:
    out = _run(COUNTED, scheduler)
    assert not out.findings.items
    np.testing.assert_array_equal(out.array(0, np.uint32), np.arange(32) + 100)


def test_a_word_that_is_only_stored_orders_nothing() -> None:
    plain = COUNTED.replace("@%p2 red.release.cta.shared::cta.add.u32 [smem], 1;", "mov.b32 %r11, 1; @%p2 st.shared.b32 [smem], %r11;")
    assert "race" in _run(plain).kinds


def test_whoever_does_not_look_races() -> None:
    head, _, tail = COUNTED.partition("LOOK:")
    assert _run(head + tail.partition("SEEN:")[2]).kinds & {"race", "uninitialised read"}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_sleeping_for_what_nobody_says_is_a_deadlock(scheduler: str) -> None:
    out = _run(COUNTED.replace("setp.ge.s32 %p3, %r10, 1;", "setp.ge.s32 %p3, %r10, 2;"), scheduler)
    (found,) = [f for f in out.findings.items if f.kind == "deadlock"]
    assert "sleeps until a word that it has looked at may have changed" in found.text


def test_a_word_is_exchanged_if_it_is_what_is_expected() -> None:
    code = """
mov.u32 %r1, %tid.x; mov.b32 %r2, 7;
atom.relaxed.gpu.global.cas.b32 %r3, [%rd1], %r1, %r2;
mul.wide.u32 %rd9, %r1, 4; add.s64 %rd10, %rd2, %rd9; st.global.b32 [%rd10], %r3;
"""
    out = execute(code, [np.full(1, 3, np.uint32), OUT], outputs=(1,))
    assert out.array(0, np.uint32).tolist() == [7]
    # lane 3 finds 3 and leaves 7; lane 7 finds 7 and leaves it
    assert out.array(1, np.uint32).tolist() == [3, 3, 3, 3] + [7] * 28
