"""Which work tiles a block does: tiles of query rows of one head, in an order that keeps L2 warm and, if causal, long ones first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute

from twill.emit.tiles.block import ANNOUNCED, Block
from twill.emit.tiles.iteration import Iteration, advance, place

__all__ = ["Work", "announce", "claim", "first", "following", "locate"]


@dataclass(frozen=True, eq=False)
class Work:
    """A work tile: its first query row, its head of Q and of K and V, its batch.

    ``trips`` tiles of keys are walked from the last to the first; the first ``masked`` iterations need a mask.
    """

    first_row: Any
    head: Any
    kv_head: Any
    batch: Any
    trips: Any
    masked: Any

    def key_tile(self, iteration: Any) -> Any:
        """Index of the tile of keys of an iteration."""
        return self.trips - 1 - iteration


def _trips(b: Block, first_row: Any) -> tuple[Any, Any]:
    keys = b.tiles.keys
    if not b.causal:
        return (b.seqlen_k + (keys - 1)) // keys, 1
    zero, shift = cutlass.Int32(0), b.seqlen_k - b.seqlen_q
    end = cutlass.max(cutlass.min(b.seqlen_k, first_row + b.tiles.rows + shift), zero)
    trips = (end + (keys - 1)) // keys
    free = cutlass.min(cutlass.max(first_row + 1 + shift, zero) // keys, trips)
    return trips, cutlass.max(trips - free, cutlass.Int32(1))


def locate(b: Block, number: Any) -> Work:
    """The work tile of that number.

    Heads are walked in sections of ``b.section``. Within one, the last rows of all its heads come first: under a causal mask they see
    the most keys, and the short ones are left to fill the end.
    """
    span = b.section * b.row_tiles
    behind = number // span
    within = number - behind * span
    width = cutlass.min(b.section, b.heads_in_all - behind * b.section) if b.causal else 1
    row_tile = b.row_tiles - 1 - within // width
    head_in_all = behind * b.section + within % width
    batch = head_in_all // b.heads
    head = head_in_all - batch * b.heads
    first_row = row_tile * b.tiles.rows
    return Work(first_row, head, head // b.group_size, batch, *_trips(b, first_row))


def _blocks() -> Any:
    return cute.arch.grid_dim()[0]


@cute.jit
def _count(counter: cute.Tensor, last: cutlass.Int32) -> cutlass.Int32:
    """The next number of the counter, which starts again at 0 once ``last`` has been given out."""
    number = cutlass.Int32(0)
    if cute.arch.lane_idx() == 0:
        number = cute.arch.atomic_add(counter.iterator, cutlass.Int32(1))
        if number == last:
            counter[0] = cutlass.Int32(0)
    return cutlass.Int32(cute.arch.shuffle_sync(number, 0))


def claim(b: Block, before: Any = None) -> Any:
    """Number of the block's next work tile after ``before``, for the warp that announces them; past the last there is none."""
    if b.counter is not None:
        return _count(b.counter, b.work_tiles + _blocks() - 1)
    return cutlass.Int32(cute.arch.block_idx()[0] if before is None else before + _blocks())


def announce(b: Block, turn: Iteration, number: Any) -> None:
    """Let the other warps of the block know their ``turn``-th work tile. Without a counter they know it themselves."""
    if b.counter is None:
        return
    heard, said = b.rings["work_empty"], b.rings["work_full"]
    slot, parity = place(turn - ANNOUNCED, ANNOUNCED)
    cute.arch.mbarrier_wait(heard.pointer + slot, parity)
    with cute.arch.elect_one():
        b.announced[slot] = number
        cute.arch.mbarrier_arrive(said.pointer + slot)


def _hear(b: Block, turn: Iteration) -> Any:
    slot, parity = place(turn, ANNOUNCED)
    cute.arch.mbarrier_wait(b.rings["work_full"].pointer + slot, parity)
    number = b.announced[slot]
    cute.arch.sync_warp()
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive(b.rings["work_empty"].pointer + slot)
    return number


def first(b: Block, turn: Iteration) -> Any:
    """Number of the block's first work tile."""
    return claim(b) if b.counter is None else _hear(b, turn)


def following(b: Block, turn: Iteration, number: Any) -> Any:
    """Number of the work tile after the ``turn``-th, which was ``number``; goes on to the next turn."""
    advance(turn)
    return claim(b, number) if b.counter is None else _hear(b, turn)
