"""Loads and stores of lanes: widths, matrices of 8 x 8, and atomics."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.isa.test_alu import LANES, LOAD, A, B, _run
from tests.emulate.program import Outcome, execute

ROW = "mov.u32 %r5, %tid.x; mov.b32 %r6, smem; shl.b32 %r7, %r5, 4; add.s32 %r8, %r6, %r7;\n"
"""Lane l's address of 16 bytes in shared memory in %r8."""


def _shared(code: str) -> Outcome:
    return execute(LOAD + ROW + code + "\nst.global.b32 [%rd10], %r3;", [np.zeros(32, np.uint32), A, B], shared=2048)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("st.shared.b32 [%r8], %r1; ld.shared.u16 %rs1, [%r8+2]; cvt.u32.u16 %r3, %rs1;", A >> 16),
        ("st.shared.b32 [%r8], %r1; ld.shared.u8 %rs1, [%r8+1]; cvt.u32.u16 %r3, %rs1;", A >> 8 & 255),
        ("st.shared.b32 [%r8], %r1; ld.shared.s8 %rs1, [%r8+3]; cvt.s32.s16 %r3, %rs1;", A.view(np.int32) >> 24),
        ("st.shared.v2.b32 [%r8], {%r1, %r2}; ld.shared.b64 %rd20, [%r8]; mov.b64 {%r4, %r3}, %rd20;", B),
        ("st.shared.b32 [%r8], %r1; ld.volatile.shared.b32 %r3, [%r8];", A),
    ],
)
def test_widths(code: str, expected: np.ndarray) -> None:
    out = _shared(code)
    assert not out.findings.items
    np.testing.assert_array_equal(out.array(0, np.uint32), expected.astype(np.uint32))


@pytest.mark.parametrize("transposed", ["", ".trans"])
def test_a_matrix_stored_is_laid_out_in_rows(transposed: str) -> None:
    """Lane l gives row l / 4, columns 2 (l mod 4) and the next; lanes 0 to 7 say where the rows are."""
    code = (
        f"stmatrix.sync.aligned.m8n8.x1{transposed}.shared.b16 [%r8], {{%r1}}; bar.warp.sync -1; and.b32 %r9, %r5, 7; shr.u32 %r10, %r5, 3;"
    )
    code += " shl.b32 %r11, %r9, 4; shl.b32 %r12, %r10, 2; add.s32 %r13, %r6, %r11; add.s32 %r14, %r13, %r12; ld.shared.b32 %r3, [%r14];"
    out = _shared(code)
    assert not out.findings.items
    matrix = A.view(np.uint16).reshape(8, 8)
    matrix = matrix.T if transposed else matrix
    words = np.ascontiguousarray(matrix).view(np.uint32)
    np.testing.assert_array_equal(out.array(0, np.uint32), [words[lane & 7, lane >> 3] for lane in LANES])


@pytest.mark.parametrize(("store", "load"), [("", ""), (".trans", ".trans"), ("", ".trans")])
def test_matrices_come_back(store: str, load: str) -> None:
    code = f"stmatrix.sync.aligned.m8n8.x2{store}.shared.b16 [%r8], {{%r1, %r2}};"
    code += f" bar.warp.sync -1; ldmatrix.sync.aligned.m8n8.x2{load}.shared.b16 {{%r4, %r3}}, [%r8];"
    out = _shared(code)
    assert not out.findings.items
    matrix = B.view(np.uint16).reshape(8, 8)
    expected = matrix if store == load else np.ascontiguousarray(matrix.T)
    np.testing.assert_array_equal(out.array(0, np.uint32), expected.reshape(-1).view(np.uint32))


@pytest.mark.parametrize(
    ("opcode", "before", "after"),
    [
        ("atom.global.add.s32", [7 + i for i in range(32)], 7 + 32),
        ("atom.relaxed.gpu.global.max.s32", [7] * 32, 7),
        ("atom.global.exch.b32", [7] + [1] * 31, 1),
        ("atom.global.inc.u32", [7] + [i % 2 for i in range(31)], 1),
    ],
)
def test_atomics_one_lane_after_the_other(opcode: str, before: list[int], after: int) -> None:
    code = f"mov.b32 %r4, 1; {opcode} %r3, [%rd2], %r4;"
    counter = np.full(1, 7, np.uint32)
    out = execute(LOAD.replace("ld.global.b32 %r1, [%rd11]; ld.global.b32 %r2, [%rd12];", "") + code + "st.global.b32 [%rd10], %r3;",
                  [np.zeros(32, np.uint32), counter, B])  # fmt: skip
    assert not out.findings.items
    np.testing.assert_array_equal(out.array(0, np.uint32), before)
    assert out.array(1, np.uint32)[0] == after


@pytest.mark.parametrize("opcode", ["red.global.add.f32", "red.relaxed.gpu.global.add.v2.f32"])
def test_a_reduction_of_floats(opcode: str) -> None:
    given = "{%r4, %r4}" if "v2" in opcode else "%r4"
    out = execute(f"mov.b32 %r4, 0f3F000000; {opcode} [%rd1], {given};", [np.full(2, 2, np.float32)], outputs=())
    np.testing.assert_array_equal(out.array(0, np.float32), [2 + 32 * 0.5, 2 + 32 * 0.5 if "v2" in opcode else 2])


def test_out_of_bounds_and_uninitialised() -> None:
    assert "out of bounds" in execute("ld.global.b32 %r1, [%rd1+4096]; st.global.b32 [%rd1], %r1;", [np.zeros(4, np.uint32)]).kinds
    assert _shared("ld.shared.b32 %r3, [%r8];").kinds == {"uninitialised read"}
    assert "out of bounds" in _shared("st.shared.b32 [%r8+2048], %r1; mov.b32 %r3, 0;").kinds


def test_what_two_blocks_write_is_told() -> None:
    out = execute("mov.b32 %r4, 1; st.global.b32 [%rd1], %r4;", [np.zeros(1, np.uint32)], grid=2)
    (found,) = out.findings.items
    assert (found.kind, found.severity) == ("written twice", "warning")


def test_parameters_are_constants() -> None:
    got = _run("ld.param.b64 %rd20, [t1]; ld.global.b32 %r3, [%rd20];")
    np.testing.assert_array_equal(got, np.full(32, A[0]))
