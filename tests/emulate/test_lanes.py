"""Arithmetic, conversions, shuffles and divergence, lane by lane against values worked out here."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.program import execute, lane_address
from twill.emulate.errors import EmulationError

LANES = np.arange(32)
A = (LANES * 0x01234567 + 0xFFFFFFF0).astype(np.uint32)
B = (LANES.astype(np.int64) * 0x0F0F0F0D - 77).astype(np.uint32)
SA, SB = A.view(np.int32).astype(object), B.view(np.int32).astype(object)
UA, UB = A.astype(object), B.astype(object)
SETUP = lane_address("%rd10", "%rd1") + lane_address("%rd11", "%rd2") + lane_address("%rd12", "%rd3")
LOAD = SETUP + "ld.global.b32 %r1, [%rd11]; ld.global.b32 %r2, [%rd12];\n"


def _run(code: str, a: np.ndarray = A, b: np.ndarray = B) -> np.ndarray:
    out = execute(LOAD + code + "\nst.global.b32 [%rd10], %r3;", [np.zeros(32, np.uint32), a, b])
    assert not out.findings.items, out.findings.items
    return out.array(0, np.uint32)


def _cut(values: object) -> np.ndarray:
    return np.array([int(v) & 0xFFFFFFFF for v in values], np.uint32)


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _bytes(a: int, b: int, chosen: tuple[int, ...]) -> int:
    source = (int(a) | int(b) << 32).to_bytes(8, "little")
    return int.from_bytes(bytes(source[i] for i in chosen), "little")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("add.s32 %r3, %r1, %r2;", UA + UB),
        ("sub.s32 %r3, %r1, %r2;", UA - UB),
        ("add.s32 %r3, %r1, -7;", UA - 7),
        ("mul.lo.s32 %r3, %r1, %r2;", UA * UB),
        ("mul.hi.s32 %r3, %r1, %r2;", (SA * SB) >> 32),
        ("mul.hi.u32 %r3, %r1, -1431655765;", (UA * 2863311531) >> 32),
        ("mad.lo.s32 %r3, %r1, -24, %r2;", UA * -24 + UB),
        ("shl.b32 %r3, %r1, 5;", UA << 5),
        ("shl.b32 %r3, %r1, 32;", UA * 0),
        ("shr.u32 %r3, %r1, 9;", UA >> 9),
        ("shr.s32 %r3, %r1, 9;", SA >> 9),
        ("shr.s32 %r3, %r1, 40;", SA >> 40),
        ("and.b32 %r9, %r2, 63; shr.u32 %r3, %r1, %r9;", [a >> (b & 63) for a, b in zip(UA, UB, strict=True)]),
        ("xor.b32 %r3, %r1, %r2;", UA ^ UB),
        ("not.b32 %r3, %r1;", ~UA),
        ("min.s32 %r3, %r1, %r2;", np.minimum(SA, SB)),
        ("max.u32 %r3, %r1, %r2;", np.maximum(UA, UB)),
        ("min.relu.s32 %r3, %r1, %r2;", np.maximum(np.minimum(SA, SB), 0)),
        ("div.s32 %r3, %r1, 24;", [_truncated(a, 24) for a in SA]),
        ("rem.s32 %r3, %r1, -24;", [a - 24 * _truncated(a, 24) for a in SA]),
        ("div.u32 %r3, %r1, 24;", UA // 24),
        ("bfe.u32 %r3, %r1, 3, 11;", (UA >> 3) & 2047),
        ("popc.b32 %r3, %r1;", [int(a).bit_count() for a in UA]),
        ("clz.b32 %r3, %r1;", [32 - int(a).bit_length() for a in UA]),
        ("prmt.b32 %r3, %r1, %r2, 0x7531;", [_bytes(a, b, (1, 3, 5, 7)) for a, b in zip(UA, UB, strict=True)]),
        ("lop3.b32 %r3, %r1, %r2, 255, 0x6a;", (UA & UB) ^ 255),
        ("setp.lt.s32 %p1, %r1, %r2; selp.b32 %r3, %r1, %r2, %p1;", np.minimum(SA, SB)),
        ("setp.hi.u32 %p1, %r1, %r2; selp.b32 %r3, 1, 0, %p1;", [int(a > b) for a, b in zip(UA, UB, strict=True)]),
        ("setp.lt.s32 %p1|%p2, %r1, 0; selp.b32 %r3, 1, 0, %p2;", [int(a >= 0) for a in SA]),
        ("cvt.u16.u32 %rs1, %r1; cvt.s32.s16 %r3, %rs1;", [(int(a) & 0xFFFF ^ 0x8000) - 0x8000 for a in UA]),
        ("cvt.s32.s8 %r3, %r1;", [(int(a) & 0xFF ^ 0x80) - 0x80 for a in UA]),
        ("mul.wide.s32 %rd20, %r1, %r2; shr.u64 %rd21, %rd20, 13; cvt.u32.u64 %r3, %rd21;", (SA * SB) >> 13),
        ("mov.b64 %rd20, {%r1, %r2}; mov.b64 {%r4, %r3}, %rd20;", UB),
        ("cvt.s64.s32 %rd20, %r1; mad.lo.s64 %rd21, %rd20, 3, %rd20; cvt.u32.u64 %r3, %rd21;", SA * 4),
        ("shfl.sync.bfly.b32 %r3, %r1, 5, 31, -1;", UA[LANES ^ 5]),
        ("shfl.sync.up.b32 %r3, %r1, 3, 0, -1;", [UA[i - 3] if i >= 3 else UA[i] for i in LANES]),
        ("shfl.sync.down.b32 %r3, %r1, 30, 31, -1;", [UA[i + 30] if i < 2 else UA[i] for i in LANES]),
        ("shfl.sync.idx.b32 %r3, %r1, 7, 31, -1;", [UA[7]] * 32),
        ("setp.lt.s32 %p1, %r1, 0; vote.sync.ballot.b32 %r3, %p1, -1;", [sum(1 << i for i in range(32) if SA[i] < 0)] * 32),
        ("elect.sync %r4|%p1, -1; selp.b32 %r3, %r4, 99, %p1;", [0] + [99] * 31),
        ("redux.sync.max.s32 %r3, %r1, -1;", [max(SA)] * 32),
    ],
)  # fmt: skip
def test_integers(code: str, expected: object) -> None:
    np.testing.assert_array_equal(_run(code), _cut(expected))


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
        ("cvt.rn.f32.s32 %r3, 7;", np.full(32, 7.0)),
    ],
)  # fmt: skip
def test_floats(code: str, expected: np.ndarray) -> None:
    got = _run(code, X.view(np.uint32), Y.view(np.uint32)).view(np.float32)
    np.testing.assert_array_equal(got, expected.astype(np.float32))


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


def test_lanes_that_part_meet_again() -> None:
    code = """
    mov.u32 %r5, %tid.x; and.b32 %r6, %r5, 3; mov.b32 %r3, 0; mov.b32 %r7, 0;
    setp.lt.u32 %p1, %r5, 10; @%p1 bra SMALL;
    add.s32 %r3, %r3, 1000; bra LOOP;
    SMALL: add.s32 %r3, %r3, 5;
    LOOP: add.s32 %r3, %r3, %r7; add.s32 %r7, %r7, 1; setp.le.u32 %p2, %r7, %r6; @%p2 bra LOOP;
    shfl.sync.bfly.b32 %r8, %r3, 1, 31, -1; add.s32 %r3, %r3, %r8;
    """
    one = np.array([(5 if i < 10 else 1000) + sum(range((i & 3) + 1)) for i in range(32)])
    np.testing.assert_array_equal(_run(code), one + one[LANES ^ 1])


def test_predicated_instructions_touch_only_their_lanes() -> None:
    code = "mov.u32 %r5, %tid.x; mov.b32 %r3, 1; setp.gt.u32 %p1, %r5, 29; @%p1 mov.b32 %r3, 2; @!%p1 add.s32 %r3, %r3, 6;"
    np.testing.assert_array_equal(_run(code), np.where(LANES > 29, 2, 7))


def test_an_instruction_for_all_lanes_that_some_miss_is_found() -> None:
    code = """
    mov.u32 %r5, %tid.x; setp.lt.u32 %p1, %r5, 3; @%p1 bra OTHER;
    shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1; bra OUT;
    OTHER: shfl.sync.bfly.b32 %r3, %r1, 2, 31, -1;
    OUT:
    """
    assert "warp" in execute(LOAD + code, [np.zeros(32, np.uint32), A, B]).kinds


def test_unknown_modifiers_are_refused_by_name() -> None:
    with pytest.raises(EmulationError, match=r"add\.sat\.s32 \(line \d+\)"):
        execute("add.sat.s32 %r1, %r2, %r3;")
