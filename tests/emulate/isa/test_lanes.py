"""Lanes of a warp together: shuffles, votes, elections, reductions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.isa.test_alu import LANES, SA, UA, _cut, _run

SMALL = "mov.u32 %r5, %tid.x; setp.lt.u32 %p1, %r5, 5; @%p1 bra S; mov.b32 %r3, 0; bra OUT; S: "


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("shfl.sync.bfly.b32 %r3, %r1, 5, 31, -1;", UA[LANES ^ 5]),
        ("shfl.sync.up.b32 %r3, %r1, 3, 0, -1;", [UA[i - 3] if i >= 3 else UA[i] for i in LANES]),
        ("shfl.sync.down.b32 %r3, %r1, 30, 31, -1;", [UA[i + 30] if i < 2 else UA[i] for i in LANES]),
        ("shfl.sync.idx.b32 %r3, %r1, 7, 31, -1;", [UA[7]] * 32),
        ("setp.lt.s32 %p1, %r1, 0; vote.sync.ballot.b32 %r3, %p1, -1;", [sum(1 << i for i in range(32) if SA[i] < 0)] * 32),
        ("elect.sync %r4|%p1, -1; selp.b32 %r3, %r4, 99, %p1;", [0] + [99] * 31),
        ("redux.sync.max.s32 %r3, %r1, -1;", [max(SA)] * 32),
        ("setp.lt.s32 %p1, %r1, 0; vote.sync.any.pred %p2, %p1, -1; selp.b32 %r3, 1, 0, %p2;", [int(any(SA < 0))] * 32),
        ("setp.lt.s32 %p1, %r1, 0; vote.sync.all.pred %p2, %p1, -1; selp.b32 %r3, 1, 0, %p2;", [int(all(SA < 0))] * 32),
        ("setp.ge.u32 %p1, %r1, 0; vote.sync.uni.pred %p2, %p1, -1; selp.b32 %r3, 1, 0, %p2;", [1] * 32),
        ("setp.lt.s32 %p1, %r1, 0; vote.sync.uni.pred %p2, %p1, -1; selp.b32 %r3, 1, 0, %p2;", [int(all(SA < 0) or all(SA >= 0))] * 32),
        ("activemask.b32 %r3;", [0xFFFFFFFF] * 32),
        (SMALL + "activemask.b32 %r3; OUT:", [31 if i < 5 else 0 for i in LANES]),
        ("redux.sync.add.s32 %r3, %r1, -1;", [sum(SA)] * 32),
        ("redux.sync.and.b32 %r3, %r1, -1;", [np.bitwise_and.reduce(UA)] * 32),
    ],
)  # fmt: skip
def test_values(code: str, expected: object) -> None:
    np.testing.assert_array_equal(_run(code), _cut(expected))
