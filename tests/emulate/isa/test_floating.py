"""Floating point against numpy, NaN and subnormal values included."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.isa.test_alu import _run
from twill.emulate.numbers import from_bits, to_bits

X = np.linspace(-3, 1, 32).astype(np.float32)
Y = (2.0 ** np.linspace(-30, 20, 32)).astype(np.float32)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("add.f32 %r3, %r1, %r2;", X + Y),
        ("sub.f32 %r3, %r1, %r2;", X - Y),
        ("mul.f32 %r3, %r1, 0f3FB8AA3B;", X * np.float32(1.4426950408889634)),
        ("max.f32 %r3, %r1, %r2;", np.maximum(X, Y)),
        ("max.f32 %r3, %r1, 0f7FC00000;", X),
        ("neg.f32 %r3, %r1;", -X),
        ("fma.rn.f32 %r3, %r1, %r1, 0fC0000000;", (X.astype(np.float64) ** 2 - 2).astype(np.float32)),
        ("ex2.approx.ftz.f32 %r3, %r1;", np.exp2(X)),
        ("mul.f32 %r4, %r1, 0f42C80000; ex2.approx.ftz.f32 %r3, %r4;", np.where(X * 100 < -126, 0, np.exp2(X * np.float32(100)))),
        ("rcp.approx.ftz.f32 %r3, %r2;", 1 / Y),
        ("lg2.approx.ftz.f32 %r3, %r2;", np.log2(Y)),
        ("setp.gt.f32 %p1, %r1, 0f00000000; selp.f32 %r3, %r1, 0fFF800000, %p1;", np.where(X > 0, X, -np.inf)),
        ("mov.b64 %rd20, {%r1, %r2}; mul.rn.f32x2 %rd21, %rd20, %rd20; mov.b64 {%r4, %r3}, %rd21;", Y * Y),
        ("mov.b64 %rd20, {%r1, %r2}; fma.rn.f32x2 %rd21, %rd20, %rd20, %rd20; mov.b64 {%r3, %r4}, %rd21;",
         (X.astype(np.float64) * X + X).astype(np.float32)),
        ("div.rn.f32 %r3, %r1, %r2;", X / Y),
        ("sqrt.rn.f32 %r3, %r2;", np.sqrt(Y)),
        ("rcp.rn.f32 %r3, %r2;", 1 / Y),
        ("copysign.f32 %r3, %r1, %r2;", np.copysign(Y, X)),
        ("min.NaN.f32 %r3, %r1, 0f7FC00000;", np.full(32, np.nan)),
        ("mul.ftz.f32 %r3, %r1, 0f00800000;", np.where(np.abs(X) < 1, np.float32(0) * X, X * np.float32(2.0**-126))),
    ],
)  # fmt: skip
def test_floats(code: str, expected: np.ndarray) -> None:
    got = _run(code, X.view(np.uint32), Y.view(np.uint32)).view(np.float32)
    np.testing.assert_array_equal(got, expected.astype(np.float32))


HALVES = (np.arange(64) - 30).astype(np.float64) / 8


@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize("operation", ["add", "sub", "mul", "fma"])
def test_two_halves(kind: str, operation: str) -> None:
    dtype = "fp16" if kind == "f16" else "bf16"
    a, b = to_bits(HALVES, dtype), to_bits(HALVES[::-1] + 0.3, dtype)  # type: ignore[arg-type]
    third = ", %r1" if operation == "fma" else ""
    got = _run(f"{operation}.rn.{kind}x2 %r3, %r1, %r2{third};", a.view(np.uint32), b.view(np.uint32)).view(np.uint16)
    x, y = from_bits(a, dtype), from_bits(b, dtype)  # type: ignore[arg-type]
    exact = {"add": x + y, "sub": x - y, "mul": x * y, "fma": x * y + x}[operation]
    np.testing.assert_array_equal(got, to_bits(exact, dtype))  # type: ignore[arg-type]


def test_two_exponentials_of_halves() -> None:
    a = to_bits(-np.abs(HALVES), "fp16")
    got = _run("ex2.approx.f16x2 %r3, %r1;", a.view(np.uint32)).view(np.uint16)
    np.testing.assert_array_equal(got, to_bits(np.exp2(from_bits(a, "fp16")), "fp16"))


def test_a_product_of_halves_onto_a_float() -> None:
    a = to_bits(HALVES[:32], "bf16").astype(np.uint32)
    y = np.linspace(0, 1, 32).astype(np.float32)
    got = _run("cvt.u16.u32 %rs1, %r1; fma.rn.f32.bf16 %r3, %rs1, %rs1, %r2;", a, y.view(np.uint32)).view(np.float32)
    np.testing.assert_array_equal(got, (HALVES[:32] ** 2 + y.astype(np.float64)).astype(np.float32))
