"""Orders of events: what each scheduler lets happen first, and what a wait has told."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.program import Outcome, execute
from twill.emulate.machine.schedulers import SCHEDULERS, make

TWO_LOADS = """
elect.sync %r1|%p1, -1; @!%p1 bra READY;
mbarrier.init.shared.b64 [smem+512], 1; mbarrier.init.shared.b64 [smem+520], 1; fence.mbarrier_init.release.cluster;
READY: bar.sync 0;
mov.b32 %r2, smem; mov.b32 %r3, 0; @!%p1 bra ISSUED;
LOOP: shl.b32 %r4, %r3, 3; add.s32 %r5, %r2, %r4; shl.b32 %r6, %r3, 7; add.s32 %r7, %r2, %r6;
mbarrier.arrive.expect_tx.shared.b64 %rd32, [%r5+512], 128;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%rd2], 128, [%r5+512];
add.s32 %r3, %r3, 1; setp.lt.s32 %p2, %r3, 2; @%p2 bra LOOP;
ISSUED:
SECOND: mbarrier.try_wait.parity.shared.b64 %p3, [smem+520], 0; @!%p3 bra SECOND;
mbarrier.test_wait.parity.shared.b64 %p4, [smem+512], 0; selp.b32 %r8, 1, 0, %p4;
FIRST: mbarrier.try_wait.parity.shared.b64 %p3, [smem+512], 0; @!%p3 bra FIRST;
st.global.b32 [%rd1], %r8;
"""


def _run(scheduler: str, code: str = TWO_LOADS) -> Outcome:
    out = execute(code, [np.zeros(1, np.uint32), np.arange(32, dtype=np.uint32)], shared=528, scheduler=scheduler)
    assert not out.findings.items
    return out


def test_the_later_load_may_be_seen_first() -> None:
    """Held back together, the newest goes first: whoever takes the second for the first as well is wrong. (``late`` fails first tries.)"""
    first_was_there = {s: bool(_run(s).array(0, np.uint32)[0]) for s in ("eager", "newest", "held")}
    assert first_was_there == {"eager": True, "newest": False, "held": False}


def test_held_takes_one_line_after_the_other() -> None:
    lines = (11, 22, 33)
    assert [make("held", seed, lines).line for seed in range(4)] == [11, 22, 33, 11]  # type: ignore[attr-defined]
    assert make("held", 5).line == 0, "nothing is in flight in such a kernel"  # type: ignore[attr-defined]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_what_a_wait_tells(scheduler: str) -> None:
    """A second wait for the same phase tells nothing that the first has not told."""
    again = "AGAIN: mbarrier.try_wait.parity.shared.b64 %p3, [smem+512], 0; @!%p3 bra AGAIN;\nst.global.b32 [%rd1], %r8;\n"
    code = TWO_LOADS.replace("st.global.b32 [%rd1], %r8;\n", again)
    out = _run(scheduler, code)
    text = code.splitlines()
    second, again_at = (next(i for i, x in enumerate(text) if x.startswith(name)) for name in ("SECOND:", "AGAIN:"))
    taught = out.coverage.taught
    assert min(taught) + again_at - second not in taught
    assert 2 <= len(taught) <= 3
    assert len(out.coverage.waited) == 2
