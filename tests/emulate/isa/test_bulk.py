"""Bulk copies without a descriptor: to global memory, and between the blocks of a cluster. Loads and reductions are in test_tma.py."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.program import Outcome, execute, lane_address
from twill.emulate.machine.schedulers import SCHEDULERS

STORE = """
mov.u32 %r1, %tid.x; mov.b32 %r2, smem; shl.b32 %r3, %r1, 2; add.s32 %r4, %r2, %r3; st.shared.b32 [%r4], %r1;
fence.proxy.async.shared::cta; bar.sync 0;
elect.sync %r6|%p1, -1; @!%p1 bra OVER;
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [smem], 128;
cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
OVER:
"""


def _store(change: tuple[str, str], scheduler: str) -> Outcome:
    assert change[0] in STORE
    code = STORE.replace(*change) if change[0] else STORE
    return execute(code, [np.zeros(32, np.uint32)], shared=512, scheduler=scheduler)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_store(scheduler: str) -> None:
    out = _store(("", ""), scheduler)
    assert not out.findings.items
    np.testing.assert_array_equal(out.array(0, np.uint32), np.arange(32))


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (("cp.async.bulk.wait_group.read 0;", ""), "left over"),
        (("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;", ""), "left over"),
        (("cp.async.bulk.wait_group.read 0;", "cp.async.bulk.wait_group.read 1;"), "left over"),
        (("fence.proxy.async.shared::cta;", ""), "missing proxy fence"),
        (("[smem], 128", "[smem], 256"), "out of bounds"),
        (("[smem], 128", "[smem+8], 64"), "out of bounds"),
    ],
)
def test_faults_of_a_store(change: tuple[str, str], kind: str, scheduler: str) -> None:
    """The last store of a block has to be waited for, or its shared memory may be gone before it is read."""
    assert kind in _store(change, scheduler).kinds


EXCHANGE = """
mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; xor.b32 %r3, %r2, 1; mov.b32 %r5, smem; mapa.shared::cluster.u32 %r6, %r5, %r3;
elect.sync %r4|%p1, -1;
@%p1 mbarrier.init.shared.b64 [smem], 1; fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd20, [smem], 128;
shl.b32 %r7, %r1, 2; add.s32 %r8, %r5, %r7; mad.lo.s32 %r9, %r2, 100, %r1; st.shared.b32 [%r8+128], %r9;
fence.proxy.async.shared::cta; bar.sync 0;
add.s32 %r10, %r6, 256; add.s32 %r11, %r5, 128;
@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r10], [%r11], 128, [%r6];
AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [smem], 0; @!%p2 bra AGAIN;
ld.shared.b32 %r12, [%r8+256];
mad.lo.s32 %r13, %r2, 32, %r1; mul.wide.u32 %rd10, %r13, 4; add.s64 %rd11, %rd1, %rd10; st.global.b32 [%rd11], %r12;
barrier.cluster.arrive; barrier.cluster.wait;
"""


def _exchange(code: str, scheduler: str) -> Outcome:
    return execute(code, [np.zeros(64, np.uint32)], shared=512, grid=2, cluster=2, scheduler=scheduler)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_blocks_exchange(scheduler: str) -> None:
    out = _exchange(EXCHANGE, scheduler)
    assert not out.findings.items
    np.testing.assert_array_equal(out.array(0, np.uint32), np.concatenate([np.arange(32) + 100, np.arange(32)]))


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (("AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [smem], 0; @!%p2 bra AGAIN;", ""), {"race", "uninitialised read"}),
        (("[smem], 128;", "[smem], 64;"), {"deadlock", "barrier", "left over"}),
        (("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;", ""), {"barrier", "race"}),
    ],
)
def test_faults_of_an_exchange(change: tuple[str, str], kinds: set[str]) -> None:
    assert change[0] in EXCHANGE
    found = set[str]()
    for scheduler in SCHEDULERS:
        found |= _exchange(EXCHANGE.replace(*change), scheduler).kinds
    assert found & kinds


def test_lane_addresses_are_what_they_say() -> None:
    out = execute(lane_address("%rd10", "%rd1") + "st.global.b32 [%rd10], %r399;", [np.zeros(32, np.uint32)])
    np.testing.assert_array_equal(out.array(0, np.uint32), np.arange(32))
