"""Warpgroup MMA: every operand layout against the canonical layouts of CUTLASS written out as loops, and registers still in flight."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.program import Outcome, execute
from twill.emulate.findings import Finding
from twill.emulate.machine.code import Code
from twill.emulate.machine.names import Names
from twill.emulate.numbers import from_bits, to_bits
from twill.emulate.ptx.inflight import in_flight
from twill.emulate.ptx.parser import parse

N, K = 16, 16
RANDOM = np.random.default_rng(3)
A = to_bits(RANDOM.standard_normal((64, K)), "bf16")
B = to_bits(RANDOM.standard_normal((N, K)), "bf16")
MODES = {128: 1, 64: 2, 32: 3, 16: 0}


def _place(matrix: np.ndarray, span: int, transposed: bool, leading: int, stride: int, room: int) -> np.ndarray:
    """Bytes of an operand (rows x K) in shared memory; units of 8 elements (T), canonical layouts of mma_traits_sm90_gmma.hpp."""
    out = np.zeros(room // 2, np.uint16)
    wide = span // 2
    for r in range(matrix.shape[0]):
        for k in range(matrix.shape[1]):
            if not transposed:
                at = (r % 8) * span + (r // 8) * stride + (k * 2 if span > 16 else k % 8 * 2 + k // 8 * leading)
            elif span > 16:
                at = (r % wide) * 2 + (r // wide) * leading + (k % 8) * span + (k // 8) * stride
            else:
                at = (r % 8) * 2 + (r // 8) * stride + (k % 8) * 16 + (k // 8) * leading
            chunk = at // 16
            chunk ^= chunk // 8 % {128: 8, 64: 4, 32: 2, 16: 1}[span]
            out[(chunk * 16 + at % 16) // 2] = matrix[r, k]
    return out


def _descriptor(register: str, offset: int, span: int, leading: int, stride: int) -> str:
    fixed = leading >> 4 << 16 | stride >> 4 << 32 | MODES[span] << 62
    fixed -= 1 << 64 if fixed >> 63 else 0
    start = f"mov.b32 %r1, smem; add.s32 %r1, %r1, {offset}; shr.u32 %r1, %r1, 4;"
    return f"{start} cvt.u64.u32 {register}, %r1; or.b64 {register}, {register}, {fixed};\n"


ROOM = 8192
FILL = f"""
elect.sync %r1|%p1, -1; mov.u32 %r2, %tid.x; setp.lt.u32 %p2, %r2, 32; and.pred %p1, %p1, %p2; @!%p1 bra READY;
mbarrier.init.shared.b64 [smem+{2 * ROOM}], 1; fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared.b64 %rd32, [smem+{2 * ROOM}], {2 * ROOM};
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem], [%rd2], {2 * ROOM}, [smem+{2 * ROOM}];
READY: bar.sync 0;
AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [smem+{2 * ROOM}], 0; @!%p2 bra AGAIN;
"""
ACCUMULATORS = "{" + ", ".join(f"%r{i}" for i in range(100, 108)) + "}"
STORE = "mov.u32 %r2, %tid.x; mul.wide.u32 %rd40, %r2, 32; add.s64 %rd41, %rd1, %rd40;\n" + "".join(
    f"st.global.b32 [%rd41+{4 * i}], %r{100 + i};\n" for i in range(8)
)
ZERO = "".join(f"mov.b32 %r{100 + i}, 0f3F800000;\n" for i in range(8))


def _multiply(a: str, b: str, flags: str, wait: str = "wgmma.wait_group.sync.aligned 0;\n") -> str:
    return (
        "wgmma.fence.sync.aligned;\nsetp.ne.b32 %p3, 1, 0;\n"
        f"wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {ACCUMULATORS}, {a}, {b}, %p3, {flags};\n"
        f"wgmma.commit_group.sync.aligned;\n{wait}"
    )


def _result(out: Outcome) -> np.ndarray:
    """64 x N from the fragments: register 4j+2h+b of lane 4g+q of warp w is row 16w+8h+g, column 8j+2q+b."""
    lanes = out.array(0, np.float32).reshape(128, 8)
    found = np.zeros((64, N), np.float32)
    for t in range(128):
        for i in range(8):
            found[16 * (t // 32) + 8 * (i // 2 % 2) + t % 32 // 4, 8 * (i // 4) + 2 * (t % 4) + i % 2] = lanes[t, i]
    return found


EXPECTED = from_bits(A, "bf16") @ from_bits(B, "bf16").T + 1


@pytest.mark.parametrize("scheduler", ["eager", "late", "random"])
@pytest.mark.parametrize("span", [128, 64, 32, 16])
@pytest.mark.parametrize(("a_transposed", "b_transposed"), [(False, False), (False, True), (True, False)])
def test_operands_from_shared_memory(span: int, a_transposed: bool, b_transposed: bool, scheduler: str) -> None:
    offsets = []
    for transposed in (a_transposed, b_transposed):
        if not transposed:
            offsets.append((128, 8 * span) if span > 16 else (1024, 128))
        else:
            offsets.append((16 * span, 8 * span) if span > 16 else (2048, 128))
    data = np.concatenate([_place(m, span, t, *o, ROOM) for m, t, o in zip((A, B), (a_transposed, b_transposed), offsets, strict=True)])
    code = FILL + ZERO + _descriptor("%rd50", 0, span, *offsets[0]) + _descriptor("%rd51", ROOM, span, *offsets[1])
    code += _multiply("%rd50", "%rd51", f"1, 1, {int(a_transposed)}, {int(b_transposed)}") + STORE
    out = execute(code, [np.zeros(1024, np.float32), data], threads=128, shared=2 * ROOM + 8, scheduler=scheduler)
    assert not out.findings.items
    np.testing.assert_allclose(_result(out), EXPECTED, atol=1e-5)


def _from_registers() -> tuple[str, np.ndarray]:
    code = "mov.u32 %r2, %tid.x; mul.wide.u32 %rd40, %r2, 16; add.s64 %rd42, %rd3, %rd40;\n"
    code += "".join(f"ld.global.b32 %r{200 + i}, [%rd42+{4 * i}];\n" for i in range(4))
    fragments = np.zeros((128, 4, 2), np.uint16)
    for t in range(128):
        w, g, q = t // 32, t % 32 // 4, t % 4
        for i in range(4):
            row, column = 16 * w + g + 8 * (i % 2), 2 * q + 8 * (i // 2)
            fragments[t, i] = A[row, column : column + 2]
    return code, fragments


def test_a_from_registers_and_b_from_shared_memory() -> None:
    load, fragments = _from_registers()
    data = np.concatenate([np.zeros(ROOM // 2, np.uint16), _place(B, 128, False, 128, 1024, ROOM)])
    code = FILL + ZERO + load + _descriptor("%rd51", ROOM, 128, 128, 1024)
    code += _multiply("{%r200, %r201, %r202, %r203}", "%rd51", "1, 1, 0") + STORE
    out = execute(code, [np.zeros(1024, np.float32), data, fragments], threads=128, shared=2 * ROOM + 8, scheduler="late")
    assert not out.findings.items
    np.testing.assert_allclose(_result(out), EXPECTED, atol=1e-5)


def _in_flight(body: str) -> list[Finding]:
    registers = ".reg .pred %p<9>; .reg .b32 %r<400>; .reg .b64 %rd<60>;\n"
    head = ".version 9.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n"
    text = f"{head}.visible .entry k()\n{{\n{registers}{body}\nret;\n}}"
    code = Code(parse(text).kernels[0], Names())
    return in_flight(code.flow, code)


FROM_REGISTERS = "{%r200, %r201, %r202, %r203}"
ONE_PENDING = _multiply(FROM_REGISTERS, "%rd51", "1, 1, 0", "wgmma.wait_group.sync.aligned 1;\n")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (_multiply("%rd50", "%rd51", "1, 1, 0, 0") + "add.f32 %r1, %r100, %r101;", ""),
        (_multiply("%rd50", "%rd51", "1, 1, 0, 0", "") + "add.f32 %r1, %r100, %r101;", "reads %r100"),
        (ONE_PENDING + "add.f32 %r1, %r100, %r101;", "reads %r100"),
        (ONE_PENDING + ONE_PENDING.replace("%r10", "%r11") + "add.f32 %r1, %r100, %r101;", ""),
        (ONE_PENDING + ONE_PENDING.replace("%r10", "%r11") + "add.f32 %r1, %r110, %r111;", "reads %r110"),
        (ONE_PENDING + "mov.b32 %r200, 7;", "writes %r200"),
        (ONE_PENDING + "mov.b32 %r3, %r200;", ""),
        ("bra B; A: add.f32 %r1, %r100, %r101; bra C; B: " + ONE_PENDING + "setp.eq.s32 %p1, %r9, 1; @%p1 bra A; C:", "reads %r100"),
    ],
)
def test_registers_that_a_multiplication_still_owns(body: str, found: str) -> None:
    texts = [f.text for f in _in_flight(body)]
    assert bool(texts) == bool(found)
    assert all(found in t for t in texts[:1])
