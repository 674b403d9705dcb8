"""TMA and bulk copies: where bytes go, what counts on barriers, which fences and waits are missed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.program import Outcome, execute, lane_address, tensor_map
from twill.emulate.machine.schedulers import SCHEDULERS

ROWS, COLUMNS, BOX_ROWS, BOX_COLUMNS = 10, 64, 8, 32
SOURCE = np.arange(ROWS * COLUMNS, dtype=np.uint16).reshape(ROWS, COLUMNS) + 1
SIZE = BOX_ROWS * BOX_COLUMNS * 2

PREPARE = """
elect.sync %r1|%p1, -1; @!%p1 bra READY;
mbarrier.init.shared.b64 [smem+2048], 1; fence.mbarrier_init.release.cluster;
READY: bar.sync 0;
"""
LOAD = """
elect.sync %r1|%p1, -1; @!%p1 bra LOADED;
mov.b64 %rd30, m0; cvta.param.u64 %rd31, %rd30;
mbarrier.arrive.expect_tx.shared.b64 %rd32, [smem+2048], 512;
cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [smem], [%rd31, {%r20, %r21}], [smem+2048];
LOADED:
"""
WAIT = "AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [smem+2048], 0; @!%p2 bra AGAIN;\n"
COPY_OUT = (
    lane_address("%rd10", "%rd1", 16)
    + """
mov.b32 %r40, smem; shl.b32 %r41, %r399, 4; add.s32 %r42, %r40, %r41;
ld.shared.v4.b32 {%r43, %r44, %r45, %r46}, [%r42]; st.global.v4.b32 [%rd10], {%r43, %r44, %r45, %r46};
"""
)


def _load(column: int, row: int, swizzle: int, change: tuple[str, str] = ("", ""), scheduler: str = "eager") -> Outcome:
    def maps(bases: list[int]) -> list[bytes]:
        return [tensor_map(bases[1], 10, 2, (COLUMNS, ROWS), (2 * COLUMNS,), (BOX_COLUMNS, BOX_ROWS), swizzle)]

    code = f"mov.b32 %r20, {column}; mov.b32 %r21, {row};" + PREPARE + LOAD + WAIT + COPY_OUT
    assert change[0] in code
    return execute(
        code.replace(*change) if change[0] else code, [np.zeros(SIZE, np.uint8), SOURCE], shared=2056, maps=maps, scheduler=scheduler
    )


def _box(column: int, row: int) -> np.ndarray:
    whole = np.zeros((3 * ROWS, COLUMNS * 3), np.uint16)
    whole[ROWS : ROWS + ROWS, COLUMNS : 2 * COLUMNS] = SOURCE
    return whole[ROWS + row : ROWS + row + BOX_ROWS, COLUMNS + column : COLUMNS + column + BOX_COLUMNS]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize(("column", "row"), [(0, 0), (32, 2), (40, 5), (-8, -3)])
def test_a_box_with_zeros_outside(column: int, row: int, scheduler: str) -> None:
    out = _load(column, row, 0, scheduler=scheduler)
    assert not out.findings.items
    np.testing.assert_array_equal(out.array(0, np.uint16).reshape(BOX_ROWS, BOX_COLUMNS), _box(column, row))


@pytest.mark.parametrize(("swizzle", "bits"), [(1, 1), (2, 2), (3, 3)])
def test_swizzles_exchange_chunks_of_16_bytes(swizzle: int, bits: int) -> None:
    out = _load(0, 0, swizzle)
    plain = _box(0, 0).reshape(-1, 8)
    expected = np.zeros_like(plain)
    for chunk in range(len(plain)):
        expected[chunk ^ (chunk >> 3 & (1 << bits) - 1)] = plain[chunk]
    np.testing.assert_array_equal(out.array(0, np.uint16).reshape(-1, 8), expected)


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ((WAIT, ""), {"race", "uninitialised read"}),
        (("[smem+2048], 512;", "[smem+2048], 256;"), {"deadlock", "barrier", "left over"}),
        (("[smem+2048], 512;", "[smem+2048], 1024;"), {"deadlock"}),
        (("bytes [smem], [", "bytes [smem+64], ["), {"out of bounds"}),
        (("bytes [smem], [", "bytes [smem+1920], ["), {"out of bounds"}),
    ],
)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_faults_of_a_load(change: tuple[str, str], kinds: set[str], scheduler: str) -> None:
    assert _load(0, 0, 0, change, scheduler).kinds & kinds


STORE = """
mov.u32 %r1, %tid.x; mov.b32 %r2, smem; shl.b32 %r3, %r1, 4; add.s32 %r4, %r2, %r3; shl.b32 %r5, %r1, 1;
st.shared.v4.b32 [%r4], {%r5, %r5, %r5, %r5};
fence.proxy.async.shared::cta;
bar.sync 0;
elect.sync %r6|%p1, -1; @!%p1 bra OVER;
mov.b64 %rd30, m0; cvta.param.u64 %rd31, %rd30;
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd31, {0, 4}], [smem];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
OVER:
"""


def _store(change: tuple[str, str] = ("", "")) -> Outcome:
    def maps(bases: list[int]) -> list[bytes]:
        return [tensor_map(bases[0], 10, 2, (COLUMNS, ROWS), (2 * COLUMNS,), (BOX_COLUMNS, BOX_ROWS), 0)]

    assert change[0] in STORE
    code = STORE.replace(*change) if change[0] else STORE
    return execute(code, [np.zeros((ROWS, COLUMNS), np.uint16)], shared=512, maps=maps, scheduler="late")


def test_a_store_drops_what_is_outside_and_marks_what_it_wrote() -> None:
    out = _store()
    assert not out.findings.items
    got = out.array(0, np.uint16).reshape(ROWS, COLUMNS)
    words = np.repeat(np.arange(32, dtype=np.uint32) * 2, 4).view(np.uint16).reshape(BOX_ROWS, BOX_COLUMNS)
    np.testing.assert_array_equal(got[4:10, :32], words[:6])
    written = out.memory[0].valid[: out.memory[0].size : 2].reshape(ROWS, COLUMNS)
    assert written[4:10, :32].all()
    assert written.sum() == 6 * 32


@pytest.mark.parametrize("at", ["0, 10", "64, 0", "96, 40"])
def test_a_store_wholly_past_the_end_writes_nothing(at: str) -> None:
    out = _store(("{0, 4}", f"{{{at}}}"))
    assert out.kinds == {"not written"} or not out.kinds
    assert not out.memory[0].valid.any()


@pytest.mark.parametrize("at", ["0, -8", "0, -16", "0, -3", "-32, 0"])
@pytest.mark.parametrize("add", [False, True])
def test_a_store_before_the_start_is_an_error(at: str, add: bool) -> None:
    """An H200 stops with an illegal instruction where the PTX ISA drops the elements."""
    opcode = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile" if add else "cp.async.bulk.tensor.2d.global.shared::cta.tile"
    code = ("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd31, {0, 4}]", f"{opcode}.bulk_group [%rd31, {{{at}}}]")
    (found,) = _store(code).findings.items
    assert (found.kind, found.severity) == ("out of bounds", "error")
    assert at in found.text


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (("fence.proxy.async.shared::cta;", ""), "missing proxy fence"),
        (("cp.async.bulk.wait_group.read 0;", ""), "left over"),
        (("st.shared.v4.b32 [%r4], {%r5, %r5, %r5, %r5};", ""), "uninitialised read"),
    ],
)
def test_faults_of_a_store(change: tuple[str, str], kind: str) -> None:
    assert kind in _store(change).kinds


def test_bulk_load_and_reduction() -> None:
    code = PREPARE + """
    elect.sync %r1|%p1, -1; @!%p1 bra LOADED;
    mbarrier.arrive.expect_tx.shared.b64 %rd32, [smem+2048], 128;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem], [%rd2], 128, [smem+2048];
    LOADED:
    """ + WAIT + """
    elect.sync %r1|%p1, -1; @!%p1 bra OVER;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [smem], 128;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
    OVER:
    """  # fmt: skip
    values = np.linspace(0, 1, 32, dtype=np.float32)
    out = execute(code, [np.full(32, 5, np.float32), values], outputs=(), shared=2056)
    assert not out.findings.items
    np.testing.assert_array_equal(out.array(0, np.float32), values + np.float32(5))


MULTICAST = (
    """
mov.u32 %r2, %cluster_ctarank; elect.sync %r1|%p1, -1;
@%p1 mbarrier.init.shared.b64 [smem+2048], 1; fence.mbarrier_init.release.cluster;
@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd32, [smem+2048], 512;
barrier.cluster.arrive; barrier.cluster.wait;
setp.ne.u32 %p3, %r2, 0; mov.u16 %rs1, MASK;
mov.b64 %rd30, m0; cvta.param.u64 %rd31, %rd30;
@%p3 bra LOADED; @!%p1 bra LOADED;
OPCODE [smem], [%rd31, {0, 0}], [smem+2048], %rs1;
LOADED:
"""
    + WAIT
    + """
mov.u32 %r399, %tid.x; mad.lo.s32 %r47, %r2, 32, %r399; mul.wide.u32 %rd79, %r47, 16; add.s64 %rd10, %rd1, %rd79;
mov.b32 %r40, smem; shl.b32 %r41, %r399, 4; add.s32 %r42, %r40, %r41;
ld.shared.v4.b32 {%r43, %r44, %r45, %r46}, [%r42]; st.global.v4.b32 [%rd10], {%r43, %r44, %r45, %r46};
barrier.cluster.arrive; barrier.cluster.wait;
"""
)


MULTICAST = MULTICAST.replace(
    "OPCODE", "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_one_load_for_two_blocks(scheduler: str) -> None:
    """It counts on the barrier at the same place in each block that the mask names."""

    def maps(bases: list[int]) -> list[bytes]:
        return [tensor_map(bases[1], 10, 2, (COLUMNS, ROWS), (2 * COLUMNS,), (BOX_COLUMNS, BOX_ROWS), 0)]

    def run(mask: int) -> Outcome:
        tensors = [np.zeros(2 * SIZE, np.uint8), SOURCE]
        return execute(MULTICAST.replace("MASK", str(mask)), tensors, shared=2056, maps=maps, scheduler=scheduler, grid=2, cluster=2)

    out = run(3)
    assert not out.findings.items
    for block in out.array(0, np.uint16).reshape(2, BOX_ROWS, BOX_COLUMNS):
        np.testing.assert_array_equal(block, _box(0, 0))
    assert "deadlock" in run(1).kinds
