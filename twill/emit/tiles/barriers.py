"""Rings of mbarriers, counted by completions: completion k of a ring uses slot k mod slots with parity (k div slots) mod 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import cutlass
import cutlass.cute as cute

from twill.emit.tiles.iteration import Iteration, place

__all__ = [
    "NamedBarrier", "Pair", "Ring", "RingShape", "announce_bytes", "arrive", "arrive_named", "arrive_slot", "arrive_with_bytes",
    "initialize", "meet", "peek", "wait", "wait_peeked", "wait_slot",
]  # fmt: skip

BARRIER_BYTES = 8
Pair = Literal["", "gathered", "spread"]
"""How a pair of blocks shares a ring: each has its own; both arrive at the leader's; an arrival of the leader is one in both."""


@dataclass(frozen=True)
class RingShape:
    """A barrier ring before it has an address."""

    slots: int
    arrivals: int
    tx_bytes: int = 0
    pair: Pair = ""


@dataclass(frozen=True)
class NamedBarrier:
    """A hardware barrier: its number, and how many threads complete a phase, those that wait included."""

    number: int
    threads: int


@dataclass(frozen=True, eq=False)
class Ring:
    """``slots`` mbarriers in SMEM from ``pointer`` on; ``arrivals`` complete a phase, with ``tx_bytes`` of TMA traffic if not 0.

    ``leader`` is the address of the ring in the leader of a pair of blocks, where both arrive.
    """

    name: str
    pointer: Any
    slots: int
    arrivals: int
    tx_bytes: int = 0
    pair: Pair = ""
    leader: Any = None


def initialize(ring: Ring) -> None:
    """Initialize all slots; called by one warp."""
    with cute.arch.elect_one():
        for i in range(ring.slots):
            cute.arch.mbarrier_init(ring.pointer + i, ring.arrivals)


def wait(ring: Ring, i: Iteration, distance: int = 0) -> None:
    """Wait for completion ``i - distance``; passes at once where that lies before the first."""
    if not 0 <= distance <= ring.slots:
        raise ValueError(f"a wait of distance {distance} on a ring of {ring.slots} slots cannot tell phases apart")
    slot, parity = place(i - distance, ring.slots)
    cute.arch.mbarrier_wait(ring.pointer + slot, parity)


def peek(ring: Ring, i: Iteration) -> None:
    """Ask without blocking whether completion ``i`` is there, and keep the answer for `wait_peeked`.

    A wait costs some 50 cycles even if it passes; asked for early, its answer is there when the role comes to need it. The completion
    of the slot's turn before must have been waited for, else the answer could be that of two turns earlier.
    """
    slot, parity = place(i, ring.slots)
    i.answers[i.peeked.index(ring.name)] = cutlass.Int32(cute.arch.mbarrier_test_wait(ring.pointer + slot, parity))


@cute.jit
def _wait_unless(answer: cutlass.Int32, pointer: cute.Pointer, parity: cutlass.Int32) -> None:
    if answer == 0:
        cute.arch.mbarrier_wait(pointer, parity)


def wait_peeked(ring: Ring, i: Iteration) -> None:
    """Wait for completion ``i`` unless the last `peek` at the ring has seen it."""
    slot, parity = place(i, ring.slots)
    _wait_unless(i.answers[i.peeked.index(ring.name)], ring.pointer + slot, parity)


def arrive(ring: Ring, i: Iteration) -> None:
    """One arrival of each warp that calls, on completion ``i``."""
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive(ring.pointer + place(i, ring.slots)[0])


def arrive_with_bytes(ring: Ring, i: Iteration) -> None:
    """The arrival of a TMA load on completion ``i``, which also announces its bytes. Comes before the load."""
    announce_bytes(ring, place(i, ring.slots)[0])


def announce_bytes(ring: Ring, slot: Any) -> None:
    """As `arrive_with_bytes`, on a slot. Of a pair of blocks the leader does it for both."""
    if ring.pair == "gathered":
        _leader_announces(ring.pointer + slot, ring.tx_bytes)
        return
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(ring.pointer + slot, ring.tx_bytes)


@cute.jit
def _leader_announces(pointer: cute.Pointer, tx_bytes: cutlass.Constexpr) -> None:
    if cute.arch.block_idx_in_cluster() == 0:
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(pointer, tx_bytes)


def wait_slot(ring: Ring, slot: Any, turn: Iteration) -> None:
    """Wait for completion ``turn`` of one slot, of a ring whose slots count on their own."""
    cute.arch.mbarrier_wait(ring.pointer + slot, place(turn, 1)[1])


def arrive_slot(ring: Ring, slot: Any) -> None:
    """One arrival of each warp that calls, on one slot of a ring whose slots count on their own."""
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive(ring.pointer + slot)


def arrive_named(barrier: NamedBarrier) -> None:
    """Arrive at a named barrier with all threads of each warp that calls, and go on."""
    cute.arch.barrier_arrive(barrier_id=barrier.number, number_of_threads=barrier.threads)


def meet(barrier: NamedBarrier) -> None:
    """Arrive at a named barrier and wait until all others have."""
    cute.arch.barrier(barrier_id=barrier.number, number_of_threads=barrier.threads)
