"""Barriers between roles that hand over tensor memory: its accesses are asynchronous, and ordered by fences around arrivals and waits."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass._mlir.dialects import llvm, nvvm
from cutlass.cute.nvgpu import tcgen05

from twill.emit.tiles import barriers
from twill.emit.tiles.barriers import BARRIER_BYTES, NamedBarrier, Ring
from twill.emit.tiles.iteration import Iteration, place

__all__ = ["arrive", "arrive_named", "arrive_slot", "commit", "commit_slot", "meet", "wait", "wait_slot"]

BOTH = 0b11
"""The blocks of a pair."""


def _before() -> None:
    nvvm.tcgen05_fence(nvvm.Tcgen05FenceKind.BEFORE_THREAD_SYNC)


def _after() -> None:
    nvvm.tcgen05_fence(nvvm.Tcgen05FenceKind.AFTER_THREAD_SYNC)


def wait(ring: Ring, i: Iteration, distance: int = 0) -> None:
    """Wait for completion ``i - distance``; passes at once where that lies before the first."""
    barriers.wait(ring, i, distance)
    _after()


def wait_slot(ring: Ring, slot: Any, turn: Iteration) -> None:
    """Wait for completion ``turn`` of one slot, of a ring whose slots count on their own."""
    barriers.wait_slot(ring, slot, turn)
    _after()


def arrive(ring: Ring, i: Iteration) -> None:
    """One arrival of each warp that calls, on completion ``i``."""
    _before()
    if ring.pair == "gathered":
        _arrive_at_leader(ring, place(i, ring.slots)[0])
        return
    barriers.arrive(ring, i)


def arrive_slot(ring: Ring, slot: Any) -> None:
    """One arrival of each warp that calls, on one slot of a ring whose slots count on their own."""
    _before()
    if ring.pair == "gathered":
        _arrive_at_leader(ring, slot)
        return
    barriers.arrive_slot(ring, slot)


def _arrive_at_leader(ring: Ring, slot: Any) -> None:
    """PTX is written out: the address of a barrier in the leader is that of its SMEM and an offset, which one register serves."""
    with cute.arch.elect_one():
        llvm.inline_asm(
            None, [cutlass.Int32(ring.leader + slot * BARRIER_BYTES).ir_value()], "mbarrier.arrive.shared::cluster.b64 _, [$0];", "r",
            has_side_effects=True, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT,
        )  # fmt: skip


def arrive_named(barrier: NamedBarrier, i: Iteration) -> None:
    """Arrive with all threads, for completion ``i``, and go on."""
    _before()
    barriers.arrive_named(barrier)


def meet(barrier: NamedBarrier, i: Iteration) -> None:
    """Arrive with all threads and wait for completion ``i``."""
    _before()
    barriers.meet(barrier)
    _after()


def commit(ring: Ring, i: Iteration) -> None:
    """An arrival on completion ``i`` once all MMAs are over that the warp has issued so far."""
    _commit(ring, ring.pointer + place(i, ring.slots)[0])


def _commit(ring: Ring, pointer: Any) -> None:
    with cute.arch.elect_one():
        if ring.pair == "spread":
            tcgen05.commit(pointer, BOTH, tcgen05.CtaGroup.TWO)
        else:
            tcgen05.commit(pointer)


def commit_slot(ring: Ring, slot: Any) -> None:
    """As `commit`, on one slot of a ring whose slots count on their own."""
    _commit(ring, ring.pointer + slot)
