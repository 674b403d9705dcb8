"""The 16 named barriers of a block. More in test_synchronization.py."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.program import execute
from twill.emulate.machine.schedulers import SCHEDULERS

OUT = np.zeros(32, np.uint32)
HANDOVER = """
mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; and.b32 %r3, %r1, 31; shl.b32 %r4, %r3, 2; mov.b32 %r5, smem; add.s32 %r6, %r5, %r4;
mul.wide.u32 %rd20, %r3, 4; add.s64 %rd21, %rd1, %rd20;
setp.ne.s32 %p1, %r2, 0; @%p1 bra READ;
add.s32 %r7, %r3, 9; st.shared.b32 [%r6], %r7; bar.arrive 5, 64; bra OVER;
READ: barrier.cta.sync.aligned 5, 64; ld.shared.b32 %r8, [%r6]; st.global.b32 [%rd21], %r8;
OVER:
"""


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_who_arrives_hands_over_to_who_waits(scheduler: str) -> None:
    out = execute(HANDOVER, [OUT], threads=64, shared=256, scheduler=scheduler)
    assert not out.findings.items
    np.testing.assert_array_equal(out.array(0, np.uint32), np.arange(32) + 9)


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (("bar.arrive 5, 64;", ""), {"deadlock"}),
        (("bar.arrive 5, 64;", "bar.arrive 6, 64;"), {"deadlock"}),
        (("bar.arrive 5, 64;", "bar.arrive 5, 32;"), {"barrier", "deadlock"}),
        (("barrier.cta.sync.aligned 5, 64;", ""), {"race", "uninitialised read"}),
        (("bar.arrive 5, 64;", "bar.arrive 5, 33;"), {"barrier"}),
        (("bar.arrive 5, 64;", "mov.b32 %r9, 16; bar.arrive %r9, 64; bar.arrive 5, 64;"), {"barrier"}),
    ],
)
def test_faults(change: tuple[str, str], kinds: set[str]) -> None:
    assert change[0] in HANDOVER
    assert execute(HANDOVER.replace(*change), [OUT], threads=64, shared=256, scheduler="late").kinds & kinds
