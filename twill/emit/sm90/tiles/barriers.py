"""Rings of mbarriers, counted by completions: completion k of a ring uses slot k mod slots with parity (k div slots) mod 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute

__all__ = ["Ring", "arrive", "arrive_with_bytes", "initialize", "slot_of", "wait"]

BARRIER_BYTES = 8


@dataclass(frozen=True, eq=False)
class Ring:
    """``slots`` mbarriers in SMEM from ``pointer`` on; ``arrivals`` complete a phase, with ``tx_bytes`` of TMA traffic if not 0."""

    pointer: Any
    slots: int
    arrivals: int
    tx_bytes: int = 0


def slot_of(iteration: Any, slots: int) -> Any:
    """``iteration`` mod ``slots``, at trace time if it is known then."""
    if isinstance(iteration, int):
        return iteration % slots
    return cutlass.Int32(cutlass.Uint32(iteration) % cutlass.Uint32(slots)) if slots > 1 else 0


def _parity(completion: Any, slots: int) -> Any:
    """Parity of ``completion``, which is at least ``-slots``; the one before the first completion passes on a fresh barrier."""
    if isinstance(completion, int):
        return (completion // slots) % 2
    lifted = cutlass.Uint32(completion + 2 * slots)
    return cutlass.Int32((lifted // cutlass.Uint32(slots)) & cutlass.Uint32(1))


def initialize(ring: Ring) -> None:
    """Initialize all slots; called by one warp."""
    with cute.arch.elect_one():
        for i in range(ring.slots):
            cute.arch.mbarrier_init(ring.pointer + i, ring.arrivals)


def wait(ring: Ring, iteration: Any, distance: int = 0) -> None:
    """Wait for completion ``iteration - distance``; passes at once if that is negative."""
    if not 0 <= distance <= ring.slots:
        raise ValueError(f"a wait of distance {distance} on a ring of {ring.slots} slots cannot tell phases apart")
    completion = iteration - distance
    if isinstance(completion, int) and completion < 0:
        return
    slot = slot_of(iteration - distance + ring.slots, ring.slots)
    cute.arch.mbarrier_wait(ring.pointer + slot, _parity(completion, ring.slots))


def arrive(ring: Ring, iteration: Any) -> None:
    """One arrival of each warp that calls, on completion ``iteration``."""
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive(ring.pointer + slot_of(iteration, ring.slots))


def arrive_with_bytes(ring: Ring, iteration: Any) -> None:
    """The arrival of a TMA load on completion ``iteration``, which also announces its bytes. Comes before the load."""
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(ring.pointer + slot_of(iteration, ring.slots), ring.tx_bytes)
