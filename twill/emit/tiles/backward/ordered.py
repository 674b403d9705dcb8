"""dQ the same to the bit in every run: tiles of keys are added to a tile of queries in one order.

Two warps beside those of the schedule see to that. One sees additions of its block to their end and says so to the blocks that come next;
the other waits for such words from those that come before, and lets its block's reductions go.

The order is that in which work tiles are given out, and a block asks for one only when it can begin it: nobody waits for what nobody does.
Under a causal mask the last keys come first: their work tiles begin at the first queries that see them, and those before them meet these
queries later. Without one, tiles of as many heads as keep all blocks busy are given out side by side, so that blocks which end one after
the other begin one after the other.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from twill.emit.tiles.backward.atomics import add, wait_for_count, wait_for_turn
from twill.emit.tiles.backward.block import Block, turn_ring
from twill.emit.tiles.backward.work import Work, locate
from twill.emit.tiles.iteration import Iteration, start, start_counted

__all__ = ["Count", "count_work", "counting", "keep_turns", "start_turns"]

POLL_NS = 20
"""Between two looks at SMEM."""
TURN_NS = 50
"""Between two looks at global memory."""


def start_turns(b: Block) -> Iteration:
    """Work tile 0 of a block. With additions in order, roles wait for one thing more and no register is left for slots and parities."""
    return start_counted() if b.ordered else start((1, 2))


Count = Any
"""How many times additions of this block have been seen to be over, in a register."""


def counting() -> Count:
    """Never yet."""
    made = cute.make_rmem_tensor(1, cutlass.Int32)
    made[0] = cutlass.Int32(0)
    return made


@cute.jit
def _say(b: cutlass.Constexpr, tile: cutlass.Int32) -> None:
    if cute.arch.lane_idx() == 0:
        add(b.over.iterator + tile, 1)


@cute.jit
def count_work(b: cutlass.Constexpr, turn: cutlass.Constexpr, number: cutlass.Int32, over: cutlass.Constexpr) -> None:
    """Say of every addition of a work tile that it is over, as soon as it is.

    A part is seen to be over before the next one is staged, and when the work tile ends: once more than it is added.
    """
    work = locate(b, turn, number)
    for k in cutlass.range(0, work.trips, unroll=1):
        for p in cutlass.range_constexpr(b.tiles.parts):
            wait_for_count(b.added.iterator + p, over[0] + k + 2, POLL_NS)
        _say(b, work.number + k)
    over[0] = over[0] + work.trips + 1


def _turn(b: Block, work: Work, row_tile: Any) -> Any:
    """How many tiles of keys are added to a tile of queries before that of a work tile."""
    if not b.causal:
        return work.key_tile
    t = b.tiles
    seen = cutlass.min((row_tile + 1) * t.queries + b.seqlen_k - b.seqlen_q, b.seqlen_k)
    return (seen + (t.keys - 1)) // t.keys - 1 - work.key_tile


def _arrive(b: Block, part: int) -> None:
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive(b.rings[turn_ring(part)].pointer)


@cute.jit
def keep_turns(b: cutlass.Constexpr, turn: cutlass.Constexpr, number: cutlass.Int32, over: cutlass.Constexpr) -> None:
    """Let the additions of a work tile go, each when all that come before it are over."""
    work = locate(b, turn, number)
    for k in cutlass.range(0, work.trips, unroll=1):
        row_tile, _ = work.place(k)
        wait_for_turn(b.over.iterator + (work.number + k), _turn(b, work, row_tile), TURN_NS)
        for p in cutlass.range_constexpr(b.tiles.parts):
            # the one before has gone: its part is seen to be over
            wait_for_count(b.added.iterator + p, over[0] + k + 1, POLL_NS)
            _arrive(b, p)
    over[0] = over[0] + work.trips + 1
