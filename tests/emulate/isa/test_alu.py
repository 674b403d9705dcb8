"""Integer arithmetic, lane by lane against values worked out here; what is not known is refused."""

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
        ("neg.s32 %r3, %r1;", -SA),
        ("abs.s32 %r3, %r1;", abs(SA)),
        ("mul.wide.s32 %rd21, %r1, %r2; neg.s64 %rd20, %rd21; shr.u64 %rd22, %rd20, 9; cvt.u32.u64 %r3, %rd22;", (-SA * SB) >> 9),
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
        ("mul.wide.s32 %rd20, %r1, %r2; shr.u64 %rd21, %rd20, 13; cvt.u32.u64 %r3, %rd21;", (SA * SB) >> 13),
        ("mov.b64 %rd20, {%r1, %r2}; mov.b64 {%r4, %r3}, %rd20;", UB),
    ],
)  # fmt: skip
def test_integers(code: str, expected: object) -> None:
    np.testing.assert_array_equal(_run(code), _cut(expected))


def test_unknown_modifiers_are_refused_by_name() -> None:
    with pytest.raises(EmulationError, match=r"add\.sat\.s32 \(line \d+\)"):
        execute("add.sat.s32 %r1, %r2, %r3;")
