"""Clusters of blocks: barriers at the start and at the end, addresses of the other block's shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.program import Outcome, execute
from twill.emulate.machine.schedulers import SCHEDULERS

CLUSTER = """
mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; xor.b32 %r3, %r2, 1;
elect.sync %r4|%p1, -1;
@%p1 mbarrier.init.shared.b64 [smem], 1;
fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.relaxed; barrier.cluster.wait;
mov.b32 %r5, smem; mapa.shared::cluster.u32 %r6, %r5, %r3;
shl.b32 %r7, %r1, 2; add.s32 %r8, %r6, %r7; add.s32 %r9, %r5, %r7;
mad.lo.s32 %r10, %r2, 100, %r1;
st.shared::cluster.b32 [%r8+128], %r10;
bar.warp.sync -1;
@%p1 mbarrier.arrive.shared::cluster.b64 _, [%r6];
AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [smem], 0; @!%p2 bra AGAIN;
ld.shared.b32 %r11, [%r9+128];
mad.lo.s32 %r12, %r2, 32, %r1; mul.wide.u32 %rd10, %r12, 4; add.s64 %rd11, %rd1, %rd10; st.global.b32 [%rd11], %r11;
barrier.cluster.arrive; barrier.cluster.wait;
"""


def _pair(code: str, scheduler: str) -> Outcome:
    return execute(code, [np.zeros(64, np.uint32)], shared=512, grid=2, cluster=2, scheduler=scheduler)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_pair_of_blocks_writes_into_each_others_shared_memory(scheduler: str) -> None:
    out = _pair(CLUSTER, scheduler)
    assert not out.findings.items
    np.testing.assert_array_equal(out.array(0, np.uint32), np.concatenate([np.arange(32) + 100, np.arange(32)]))


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (("barrier.cluster.arrive.relaxed; barrier.cluster.wait;", ""), {"barrier", "race"}),
        (("AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [smem], 0; @!%p2 bra AGAIN;", ""), {"race", "uninitialised read"}),
        (("barrier.cluster.arrive; barrier.cluster.wait;", "barrier.cluster.wait;"), {"barrier"}),
    ],
)
def test_faults_in_a_pair(change: tuple[str, str], kinds: set[str]) -> None:
    assert change[0] in CLUSTER
    found = set[str]()
    for scheduler in SCHEDULERS:
        found |= _pair(CLUSTER.replace(*change), scheduler).kinds
    assert found & kinds


def test_a_block_that_ends_while_the_other_still_arrives() -> None:
    """Without the barrier at the end, a block may be gone when its peer arrives at its barrier."""
    lonely = CLUSTER.replace("AGAIN: mbarrier", "setp.eq.u32 %p5, %r2, 0; @%p5 bra OUT; AGAIN: mbarrier").replace(
        "barrier.cluster.arrive; barrier.cluster.wait;", "OUT:"
    )
    found = set[str]()
    for scheduler in SCHEDULERS:
        for seed in range(4):
            found |= execute(lonely, [np.zeros(64, np.uint32)], shared=512, grid=2, cluster=2, scheduler=scheduler, seed=seed).kinds
    assert found & {"barrier", "out of bounds"}
