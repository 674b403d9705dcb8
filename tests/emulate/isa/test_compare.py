"""Comparisons: setp with signs, halves of a pair, and a predicate joined in."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.isa.test_alu import SA, SB, UA, UB, _cut, _run


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("setp.lt.s32 %p1, %r1, %r2; selp.b32 %r3, %r1, %r2, %p1;", np.minimum(SA, SB)),
        ("setp.hi.u32 %p1, %r1, %r2; selp.b32 %r3, 1, 0, %p1;", [int(a > b) for a, b in zip(UA, UB, strict=True)]),
        ("setp.lt.s32 %p1|%p2, %r1, 0; selp.b32 %r3, 1, 0, %p2;", [int(a >= 0) for a in SA]),
        ("setp.lt.s32 %p1, %r1, 0; vote.sync.ballot.b32 %r3, %p1, -1;", [sum(1 << i for i in range(32) if SA[i] < 0)] * 32),
        ("setp.lt.s32 %p1, %r1, 0; setp.gt.and.s32 %p2|%p3, %r2, 0, %p1; selp.b32 %r3, 1, 0, %p2;",
         [int(b > 0 and a < 0) for a, b in zip(SA, SB, strict=True)]),
        ("setp.lt.s32 %p1, %r1, 0; setp.gt.and.s32 %p2|%p3, %r2, 0, %p1; selp.b32 %r3, 1, 0, %p3;",
         [int(b <= 0 and a < 0) for a, b in zip(SA, SB, strict=True)]),
        ("setp.lt.s32 %p1, %r1, 0; setp.ne.xor.u32 %p2, %r2, 7, %p1; selp.b32 %r3, 1, 0, %p2;",
         [int((b != 7) != (a < 0)) for a, b in zip(SA, UB, strict=True)]),
    ],
)  # fmt: skip
def test_integers(code: str, expected: object) -> None:
    np.testing.assert_array_equal(_run(code), _cut(expected))


NAN = np.where(np.arange(32) % 3 == 0, np.nan, np.arange(32) - 10.0).astype(np.float32)
ZERO = np.zeros(32, np.float32)


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [
        ("lt", NAN < 0), ("ltu", (NAN < 0) | np.isnan(NAN)), ("ne", (NAN != 0) & ~np.isnan(NAN)), ("neu", ~(NAN == 0)), ("eq", NAN == 0),
        ("equ", (NAN == 0) | np.isnan(NAN)), ("num", ~np.isnan(NAN)), ("nan", np.isnan(NAN)), ("geu", (NAN >= 0) | np.isnan(NAN)),
    ],
)  # fmt: skip
def test_not_a_number(comparison: str, expected: np.ndarray) -> None:
    """Ordered comparisons are false of it, unordered ones true."""
    got = _run(f"setp.{comparison}.f32 %p1, %r1, %r2; selp.b32 %r3, 1, 0, %p1;", NAN.view(np.uint32), ZERO.view(np.uint32))
    np.testing.assert_array_equal(got, expected.astype(np.uint32))
