"""Conversions between widths and kinds of numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.isa.test_alu import SA, UA, A, _cut, _run
from twill.emulate.numbers import from_bits, to_bits


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("cvt.u16.u32 %rs1, %r1; cvt.s32.s16 %r3, %rs1;", [(int(a) & 0xFFFF ^ 0x8000) - 0x8000 for a in UA]),
        ("cvt.s32.s8 %r3, %r1;", [(int(a) & 0xFF ^ 0x80) - 0x80 for a in UA]),
        ("cvt.s64.s32 %rd20, %r1; mad.lo.s64 %rd21, %rd20, 3, %rd20; cvt.u32.u64 %r3, %rd21;", SA * 4),
    ],
)  # fmt: skip
def test_integers(code: str, expected: object) -> None:
    np.testing.assert_array_equal(_run(code), _cut(expected))


def test_rounding_down_and_to_half() -> None:
    down = _run(
        "mov.b64 %rd20, {%r1, %r1}; mov.b64 %rd21, {%r2, %r2}; add.rm.f32x2 %rd22, %rd20, %rd21; mov.b64 {%r3, %r4}, %rd22;",
        np.full(32, 0x3F800000, np.uint32), np.full(32, 0xB0800000, np.uint32),
    )  # fmt: skip
    assert down[0] == 0x3F7FFFFF, "1 - 2^-30 rounds to 1 to nearest, and below it when rounded down"
    half = _run("cvt.rn.bf16x2.f32 %r3, %r1, %r2;", np.full(32, 0x3F808000, np.uint32), np.full(32, 0x3F818000, np.uint32))
    assert half[0] == 0x3F803F82, "ties go to even; the first source is the high half"
    odd = _run("cvt.rn.f16x2.f32 %r3, %r1, %r2;", np.full(32, 0x477FF000, np.uint32), np.full(32, 0x3F800000, np.uint32))
    assert odd[0] == 0x7C003C00, "65520 overflows to infinity in fp16"


@pytest.mark.parametrize(("kind", "dtype"), [("bf16", "bf16"), ("f16", "fp16")])
def test_one_half_and_back(kind: str, dtype: str) -> None:
    x = np.linspace(-9, 7, 32).astype(np.float32)
    got = _run(f"cvt.rn.{kind}.f32 %rs1, %r1; cvt.u32.u16 %r3, %rs1;", x.view(np.uint32))
    bits = to_bits(x, dtype)  # type: ignore[arg-type]
    np.testing.assert_array_equal(got, bits)
    back = _run(f"cvt.u16.u32 %rs1, %r1; cvt.f32.{kind} %r3, %rs1;", bits.astype(np.uint32)).view(np.float32)
    np.testing.assert_array_equal(back, from_bits(bits, dtype))  # type: ignore[arg-type]
    positive = _run(f"cvt.rn.relu.{kind}.f32 %rs1, %r1; cvt.u32.u16 %r3, %rs1;", x.view(np.uint32))
    np.testing.assert_array_equal(positive, np.where(x > 0, bits, 0))


def test_integers_to_floats_and_back() -> None:
    got = _run("cvt.rn.f32.s32 %r3, %r1;").view(np.float32)
    np.testing.assert_array_equal(got, A.view(np.int32).astype(np.float32))
    np.testing.assert_array_equal(_run("cvt.rn.f32.s32 %r3, 7;").view(np.float32), np.full(32, 7, np.float32))
    down = _run("cvt.rz.f32.u32 %r3, %r1;").view(np.float32).astype(np.float64)
    assert (down <= A).all()
    assert (A - down < 256).all()
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e10, -1e10, np.nan] + [3.7] * 23, np.float32)
    for mode, rounded in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
        wide = np.clip(np.nan_to_num(rounded(x.astype(np.float64)), nan=0), -(2**31), 2**31 - 1).astype(np.int64)
        np.testing.assert_array_equal(_run(f"cvt.{mode}.s32.f32 %r3, %r1;", x.view(np.uint32)), wide.astype(np.uint32))


def test_integers_to_doubles() -> None:
    """The high word of the double."""
    got = _run("cvt.rn.f64.s32 %rd20, %r1; mov.b64 {%r4, %r3}, %rd20;")
    np.testing.assert_array_equal(got, A.view(np.int32).astype(np.float64).view(np.uint64) >> np.uint64(32))
