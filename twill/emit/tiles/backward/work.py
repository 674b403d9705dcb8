"""Which work tiles a backward block does: tiles of keys of one head, in an order that keeps L2 warm and, if causal, long ones first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute

from twill.emit.tiles.backward.block import Block
from twill.emit.tiles.iteration import Iteration
from twill.emit.tiles.turns import hear, say

__all__ = ["Work", "announce", "locate", "place_of"]


@dataclass(frozen=True, eq=False)
class Work:
    """A work tile: its tile of keys, its head of K and V, its batch.

    Iterations walk the tiles of queries from ``first`` up, for each all heads of Q that share the head; there are ``trips``, and only
    the first ``masked`` need a mask. ``number`` is the workspace's number of the tile of iteration 0, ``diagonal`` the last key that its
    first query sees under a causal mask.
    """

    key_tile: Any
    kv_head: Any
    batch: Any
    first: Any
    trips: Any
    masked: Any
    number: Any
    diagonal: Any
    group: Any

    def tiles_before(self, iteration: Any) -> Any:
        """How many tiles of queries come before that of an iteration: its number by the heads in a group, rounded down.

        By a reciprocal, which is right for numbers below 2 ** 20: a division of integers takes registers that are not there.
        """
        number = cutlass.Float32(iteration) + 0.5
        return cutlass.Int32(number * cute.arch.rcp_approx(cutlass.Float32(self.group)))

    def place(self, iteration: Any) -> tuple[Any, Any]:
        """The tile of queries of an iteration, and its head of Q."""
        before = self.tiles_before(iteration)
        return self.first + before, self.kv_head * self.group + iteration - before * self.group


def _span(b: Block, key_tile: Any) -> tuple[Any, Any, Any]:
    """First tile of queries that sees a key of the tile, how many do, and how many of these need a mask."""
    t, tiles, zero = b.tiles, b.workspace.row_tiles, cutlass.Int32(0)
    first, count = zero, tiles
    end = cutlass.min((key_tile + 1) * t.keys, b.seqlen_k)
    masked = zero
    if b.causal:
        shift = b.seqlen_k - b.seqlen_q
        first = cutlass.min(cutlass.max(key_tile * t.keys - shift, zero) // t.queries, tiles)
        count = tiles - first
        # rows from end - 1 - shift on see every key
        partly = cutlass.max(end - 1 - shift - first * t.queries, zero)
        masked = cutlass.min((partly + (t.queries - 1)) // t.queries, count)
    # keys past the end must not be seen by any row; the first iteration is peeled off with a mask, needed or not
    masked = cutlass.Int32(cutlass.select_(end < (key_tile + 1) * t.keys, count, masked))
    return first, count, masked


def _work(b: Block, key_tile: Any, kv_head: Any, batch: Any, first: Any, trips: Any, masked: Any) -> Work:
    number = b.workspace.first_tile(batch * b.kv_heads + kv_head, first)
    diagonal = first * b.tiles.queries + b.seqlen_k - b.seqlen_q
    return Work(key_tile, kv_head, batch, first, trips, masked, number, diagonal, b.workspace.group)


def place_of(b: Block, number: Any) -> Work:
    """The work tile of that number. Heads are walked in sections; within one, the first keys of all its heads come first: under a causal
    mask most rows see them. Then the last keys of all heads, which few rows see, come as the rest of the forward's do, in sections of
    their own (`twill.emit.tiles.work.place_of`). Where additions to dQ are ordered, the last keys of a head come first.
    """
    section, base, tiles = b.section, cutlass.Int32(0), b.key_tiles
    if b.causal and not b.ordered:
        long_tiles = (b.key_tiles - b.short_tiles) * b.heads_in_all
        short = number >= long_tiles
        number = cutlass.Int32(cutlass.select_(short, number - long_tiles, number))
        base = cutlass.Int32(cutlass.select_(short, b.key_tiles - b.short_tiles, 0))
        tiles = cutlass.Int32(cutlass.select_(short, b.short_tiles, b.key_tiles - b.short_tiles))
        section = cutlass.Int32(cutlass.select_(short, b.short_section, b.section))
    span = section * tiles
    behind = number // span
    within = number - behind * span
    width = cutlass.min(section, b.heads_in_all - behind * section) if b.causal or b.ordered else 1
    key_tile = base + within // width
    if b.causal and b.ordered:
        key_tile = tiles - 1 - key_tile
    head_in_all = behind * section + within % width
    batch = head_in_all // b.kv_heads
    first, count, masked = _span(b, key_tile)
    group = b.workspace.group
    return _work(b, key_tile, head_in_all - batch * b.kv_heads, batch, first, count * group, cutlass.max(masked * group, cutlass.Int32(1)))


def _said(work: Work) -> tuple[Any, ...]:
    return work.key_tile, work.kv_head, work.batch, work.first, work.trips, work.masked


def announce(b: Block, turn: Iteration, number: Any) -> None:
    """Let the other warps of the block know their ``turn``-th work tile. Without a counter they know it themselves."""
    say(b, turn, number, lambda: _said(place_of(b, number)))


def locate(b: Block, turn: Iteration, number: Any) -> Work:
    """The ``turn``-th work tile, whose number is known; called once a turn by every warp."""
    return place_of(b, number) if b.counter is None else _work(b, *hear(b, turn, 6))
