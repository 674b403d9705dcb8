"""Barriers between roles that hand over tensor memory: its accesses are asynchronous, and ordered by fences around arrivals and waits."""

from __future__ import annotations

from typing import Any

import cutlass.cute as cute
from cutlass._mlir.dialects import nvvm
from cutlass.cute.nvgpu import tcgen05

from twill.emit.tiles import barriers
from twill.emit.tiles.barriers import NamedBarrier, Ring
from twill.emit.tiles.iteration import Iteration, place

__all__ = ["arrive", "arrive_named", "arrive_slot", "commit", "commit_slot", "meet", "wait", "wait_slot"]


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
    barriers.arrive(ring, i)


def arrive_slot(ring: Ring, slot: Any) -> None:
    """One arrival of each warp that calls, on one slot of a ring whose slots count on their own."""
    _before()
    barriers.arrive_slot(ring, slot)


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
    with cute.arch.elect_one():
        tcgen05.commit(ring.pointer + place(i, ring.slots)[0])


def commit_slot(ring: Ring, slot: Any) -> None:
    """As `commit`, on one slot of a ring whose slots count on their own."""
    with cute.arch.elect_one():
        tcgen05.commit(ring.pointer + slot)
