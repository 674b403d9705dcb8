"""Tensor memory and its MMAs: right values through every operand path, and what a missing wait shows as."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.emulate.isa.test_wgmma import _descriptor, _place
from tests.emulate.program import Outcome, execute
from twill.emulate.machine.code import Code
from twill.emulate.machine.names import Names
from twill.emulate.machine.schedulers import SCHEDULERS
from twill.emulate.numbers import from_bits, to_bits
from twill.emulate.ptx.inflight import in_flight
from twill.emulate.ptx.operands import sources, targets
from twill.emulate.ptx.parser import parse
from twill.emulate.ptx.syntax import Instruction

M, N, K = 128, 32, 16
RANDOM = np.random.default_rng(4)
A = to_bits(RANDOM.standard_normal((M, K)), "bf16")
B = to_bits(RANDOM.standard_normal((N, K)), "bf16")
ROOM = 16384
VERSION = 1 << 46
INSTRUCTION = 1 << 4 | 1 << 7 | 1 << 10 | (N >> 3) << 17 | (M >> 4) << 24
FULL, DONE, POINTER = 2 * ROOM, 2 * ROOM + 8, 2 * ROOM + 16

PREPARE = f"""
mov.u32 %r300, %tid.x; setp.lt.u32 %p10, %r300, 32; shr.u32 %r301, %r300, 5; elect.sync %r1|%p11, -1; and.pred %p12, %p10, %p11;
@!%p12 bra READY;
mbarrier.init.shared.b64 [smem+{FULL}], 1; mbarrier.init.shared.b64 [smem+{DONE}], 1; fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared.b64 %rd32, [smem+{FULL}], {2 * ROOM};
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem], [%rd2], {2 * ROOM}, [smem+{FULL}];
READY: @!%p10 bra ALLOCATED;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [smem+{POINTER}], 128;
ALLOCATED: bar.sync 0;
ld.shared.b32 %r302, [smem+{POINTER}];
shl.b32 %r303, %r301, 21; add.s32 %r304, %r302, %r303;
"""
STORE_A = "mul.wide.u32 %rd40, %r300, 32; add.s64 %rd41, %rd3, %rd40;\n" + "".join(
    f"ld.global.b32 %r{200 + i}, [%rd41+{4 * i}];\n" for i in range(8)
) + """
add.s32 %r305, %r304, 64;
tcgen05.st.sync.aligned.32x32b.x8.b32 [%r305], {%r200, %r201, %r202, %r203, %r204, %r205, %r206, %r207};
tcgen05.wait::st.sync.aligned;
bar.sync 1;
"""  # fmt: skip
ISSUE = f"""
@!%p12 bra ISSUED;
AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [smem+{FULL}], 0; @!%p2 bra AGAIN;
mov.b32 %r306, {INSTRUCTION}; setp.ne.b32 %p3, 0, 0;
FIRST
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [smem+{DONE}];
ISSUED:
"""
WAIT = f"MORE: mbarrier.try_wait.parity.shared.b64 %p2, [smem+{DONE}], 0; @!%p2 bra MORE;\n"
READ = (
    "tcgen05.ld.sync.aligned.32x32b.x32.b32 {" + ", ".join(f"%r{100 + i}" for i in range(N)) + "}, [%r304];\n"
    "tcgen05.wait::ld.sync.aligned;\nmul.wide.u32 %rd40, %r300, 128; add.s64 %rd41, %rd1, %rd40;\n"
    + "".join(f"st.global.b32 [%rd41+{4 * i}], %r{100 + i};\n" for i in range(N))
)  # fmt: skip
FREE = "bar.sync 0; @!%p10 bra END; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r302, 128; END:\n"
FROM_SHARED = "tcgen05.mma.cta_group::1.kind::f16 [%r302], %rd50, %rd51, %r306, 0;\n"
FROM_TENSOR = "add.s32 %r307, %r302, 56;\ntcgen05.mma.cta_group::1.kind::f16 [%r302], [%r307 + 0x8], %rd51, %r306, %p3;\n"


def _program(multiply: str, store: str = "") -> str:
    descriptors = _descriptor("%rd50", 0, 128, 128, 1024) + _descriptor("%rd51", ROOM, 128, 128, 1024)
    # sm_100 names the 128-byte swizzle 2 in three bits where sm_90 has 1 in two: the same bit
    return PREPARE + store + descriptors + ISSUE.replace("FIRST", multiply) + WAIT + READ + FREE


def _run(code: str, scheduler: str = "eager") -> Outcome:
    data = np.concatenate([_place(A, 128, False, 128, 1024, ROOM), _place(B, 128, False, 128, 1024, ROOM)])
    tensors = [np.zeros(M * N, np.float32), data, A]
    return execute(code, tensors, threads=128, shared=2 * ROOM + 32, scheduler=scheduler, target="sm_100a")


EXPECTED = from_bits(A, "bf16") @ from_bits(B, "bf16").T


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize(
    ("multiply", "store", "factor"),
    [
        (FROM_SHARED, "", 1),
        (FROM_SHARED + FROM_SHARED.replace("%r306, 0", "%r306, 1"), "", 2),
        (FROM_TENSOR, STORE_A, 1),
    ],
    ids=["shared", "accumulate", "tensor"],
)
def test_values(multiply: str, store: str, factor: int, scheduler: str) -> None:
    out = _run(_program(multiply, store), scheduler)
    assert not out.findings.items
    np.testing.assert_allclose(out.array(0, np.float32).reshape(M, N), factor * EXPECTED, atol=1e-4)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ((WAIT, ""), {"race", "uninitialised read"}),
        (("tcgen05.wait::st.sync.aligned;", ""), {"race", "uninitialised read"}),
        (("bar.sync 1;", ""), {"race", "uninitialised read"}),
        (("add.s32 %r307, %r302, 56;", "add.s32 %r307, %r302, 40;"), {"uninitialised read"}),
        (("add.s32 %r305, %r304, 64;", "add.s32 %r305, %r304, 124;"), {"tensor memory"}),
        (("shl.b32 %r303, %r301, 21;", "shl.b32 %r303, %r301, 20;"), {"tensor memory"}),
        (("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r302, 128;", ""), {"tensor memory"}),
        ((f"tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [smem+{DONE}];", ""), {"deadlock"}),
        ((f"AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [smem+{FULL}], 0; @!%p2 bra AGAIN;", ""), {"race", "uninitialised read"}),
    ],
)
def test_faults(change: tuple[str, str], kinds: set[str], scheduler: str) -> None:
    code = _program(FROM_TENSOR, STORE_A)
    assert change[0] in code
    assert _run(code.replace(*change), scheduler).kinds & kinds


@pytest.mark.parametrize("which", ["max", "min"])
def test_a_load_that_reduces(which: str) -> None:
    """The values arrive as they do without it; the last register has the largest or the least of the lane."""
    plain = "tcgen05.ld.sync.aligned.32x32b.x32.b32 {" + ", ".join(f"%r{100 + i}" for i in range(N)) + "}, [%r304];\n"
    both = plain.replace("tcgen05.ld.", "tcgen05.ld.red.").replace(".b32 {", f".{which}.f32 {{").replace("}, [", "}, %r99, [")
    assert plain in READ
    right = _run(_program(FROM_SHARED).replace(plain, both))
    assert not right.findings.items
    np.testing.assert_allclose(right.array(0, np.float32).reshape(M, N), EXPECTED, atol=1e-4)
    instead = _run(_program(FROM_SHARED).replace(plain, both).replace("[%rd41+12], %r103", "[%rd41+12], %r99"))
    found = instead.array(0, np.float32).reshape(M, N)[:, 3]
    np.testing.assert_allclose(found, EXPECTED.max(axis=1) if which == "max" else EXPECTED.min(axis=1), atol=1e-4)
    written = [r.name for r in targets(_instruction(both))]
    assert written == [*(f"%r{100 + i}" for i in range(N)), "%r99"]
    assert [r.name for r in sources(_instruction(both))] == ["%r304"]


def _instruction(text: str) -> Instruction:
    head = ".version 8.7\n.target sm_103a\n.address_size 64\n.visible .entry kernel(\n.param .u64 given\n)\n{\n.reg .b32 %r<400>;\n"
    return parse(head + text.splitlines()[0] + "\nret;\n}\n").kernels[0].instructions[0]


READ_FRAGMENTS = (
    "tcgen05.ld.sync.aligned.16x256b.x4.b32 {" + ", ".join(f"%r{100 + i}" for i in range(16)) + "}, [%r304];\n"
    "tcgen05.wait::ld.sync.aligned;\nmul.wide.u32 %rd40, %r300, 64; add.s64 %rd41, %rd1, %rd40;\n"
    + "".join(f"st.global.b32 [%rd41+{4 * i}], %r{100 + i};\n" for i in range(16))
)  # fmt: skip


def test_64_rows_in_16_lanes_of_each_quarter() -> None:
    code = (
        _program(FROM_SHARED).replace(READ, READ_FRAGMENTS).replace(str(INSTRUCTION), str(INSTRUCTION - (M >> 4 << 24) + (64 >> 4 << 24)))
    )
    out = _run(code, "late")
    assert not out.findings.items
    lanes = out.array(0, np.float32)[: 128 * 16].reshape(128, 16)
    found = np.zeros((64, N))
    for t in range(128):
        for i in range(16):
            found[16 * (t // 32) + 8 * (i // 2 % 2) + t % 32 // 4, 8 * (i // 4) + 2 * (t % 4) + i % 2] = lanes[t, i]
    np.testing.assert_allclose(found, EXPECTED[:64], atol=1e-4)


def test_permission_and_fences() -> None:
    """Nothing is allocated after the permission has been given back; the fences of tcgen05 are taken as always there."""
    code = _program(FROM_SHARED).replace(
        "bar.sync 0;\nld.shared.b32 %r302", "bar.sync 0; tcgen05.fence::after_thread_sync;\nld.shared.b32 %r302"
    )
    assert not _run(code).findings.items
    back = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
    again = f"{back} tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [smem+{POINTER}], 32; ALLOCATED: bar.sync 0;"
    assert not _run(_program(FROM_SHARED).replace("ALLOCATED: bar.sync 0;", f"{back} ALLOCATED: bar.sync 0;")).findings.items
    assert "tensor memory" in _run(_program(FROM_SHARED).replace("ALLOCATED: bar.sync 0;", again)).kinds


def test_a_load_that_nobody_waits_for_is_told() -> None:
    """Without tcgen05.wait::ld the registers may not have come yet: a warning, for known-good kernels leave it to the assembler."""
    kernel = parse(
        ".version 9.0\n.target sm_100a\n.address_size 64\n.visible .entry k()\n{\n.reg .b32 %r<9>;\n"
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r2];\ntcgen05.wait::ld.sync.aligned;\nadd.s32 %r3, %r1, 1;\nret;\n}\n"
    ).kernels[0]
    with_wait = Code(kernel, Names())
    assert not in_flight(with_wait.flow, with_wait)
    instructions = tuple(x for x in kernel.instructions if not x.opcode.startswith("tcgen05.wait"))
    without = Code(replace(kernel, instructions=instructions), Names())
    (found,) = in_flight(without.flow, without)
    assert (found.kind, found.severity) == ("in flight", "warning")
    assert "tcgen05.wait::ld" in found.text
