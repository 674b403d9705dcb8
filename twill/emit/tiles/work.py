"""Which work tiles a block does: tiles of query rows of one head, in an order that keeps L2 warm and, if causal, long ones first."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import cutlass
import cutlass.cute as cute

from twill.emit.tiles.block import ANNOUNCED, Block
from twill.emit.tiles.iteration import Iteration, place
from twill.emit.tiles.turns import announced, hear, hear_all, say

__all__ = ["Held", "Work", "announce", "held", "hold", "is_reversed", "listen", "locate", "place_of", "rank", "sub_tile", "takes_turns"]


SAID = 6
"""Words that are said of a work tile."""


@dataclass(frozen=True, eq=False)
class Work:
    """A work tile, or the rows of one sub-tile of it: its first query row, its head of Q and of K and V, its batch. The first row of a
    head's first work tile may be negative: whole sub-tiles before the first row that there is (see `Tiles.missing_rows_first`).

    Tiles of keys are walked from tile ``last`` down. ``skipped`` iterations come first in which no row sees a key, then ``trips``
    iterations, of which the first ``masked`` need a mask: at least 1, at most ``trips`` unless that is 0. ``reversed`` is 1 where the
    first sub-tile has the last rows.
    """

    first_row: Any
    head: Any
    kv_head: Any
    batch: Any
    last: Any
    trips: Any
    masked: Any
    skipped: Any = 0
    reversed: Any = 0

    def key_tile(self, iteration: Any) -> Any:
        """Index of the tile of keys of an iteration, skipped ones counted."""
        return self.last - iteration


@dataclass(frozen=True, eq=False)
class Held:
    """A work tile in registers of its own, which others take the place of."""

    words: Any

    def __getattr__(self, name: str) -> Any:
        if name not in NAMES:
            raise AttributeError(name)
        return self.words[NAMES.index(name)]

    def key_tile(self, iteration: Any) -> Any:
        """Index of the tile of keys of an iteration, skipped ones counted."""
        return self.last - iteration


NAMES = tuple(x.name for x in fields(Work))


def held() -> Held:
    """Registers for a work tile."""
    return Held(cute.make_rmem_tensor(len(NAMES), cutlass.Int32))


def hold(to: Held, work: Work) -> None:
    """Put a work tile in the place of the one before."""
    for k, name in enumerate(NAMES):
        to.words[k] = cutlass.Int32(getattr(work, name))


def _trips(b: Block, first_row: Any, rows: int) -> tuple[Any, Any]:
    """Iterations in which some of the rows see a key, and how many of them need a mask."""
    keys = b.tiles.keys
    if not b.causal:
        return (b.seqlen_k + (keys - 1)) // keys, 1
    zero, shift = cutlass.Int32(0), b.seqlen_k - b.seqlen_q
    end = cutlass.max(cutlass.min(b.seqlen_k, first_row + rows + shift), zero)
    trips = (end + (keys - 1)) // keys
    free = cutlass.min(cutlass.max(first_row + 1 + shift, zero) // keys, trips)
    return trips, cutlass.max(trips - free, cutlass.Int32(1))


def takes_turns(b: Block) -> bool:
    """Whether sub-tiles lie in reverse order of their rows in every second work tile."""
    return b.causal and b.tiles.takes_turns


def is_reversed(b: Block, turn: Iteration) -> Any:
    """Whether they do in the ``turn``-th, 0 or 1."""
    return place(turn, ANNOUNCED)[0] if takes_turns(b) else 0


def rank(b: Block, work: Work, subtile: Any) -> Any:
    """Where the rows of a sub-tile lie among those of the work tile; the other way round, which sub-tile has the rows of that rank."""
    end = b.tiles.subtiles - 1
    return subtile + work.reversed * (end - 2 * subtile) if end and takes_turns(b) else subtile


def sub_tile(b: Block, work: Work, subtile: Any) -> Work:
    """The rows of one sub-tile: under a causal mask earlier ones skip the last keys, and later ones mask fewer. A sub-tile before the
    first row skips all.
    """
    first_row = work.first_row + b.tiles.sub_rows * rank(b, work, subtile)
    trips, masked = _trips(b, first_row, b.tiles.sub_rows) if b.causal else (work.trips, work.masked)
    if b.tiles.missing_rows_first:
        trips = cutlass.Int32(cutlass.select_(first_row < 0, cutlass.Int32(0), trips))
        if b.causal:
            masked = cutlass.Int32(cutlass.select_(first_row < 0, cutlass.Int32(1), masked))
    return replace(work, first_row=first_row, trips=trips, masked=masked, skipped=work.trips - trips)


def place_of(b: Block, number: Any) -> Work:
    """The work tile of that number.

    Heads are walked in sections (`Block.quotients`). Within one, the last rows of all its heads come first: under a causal mask they see
    the most keys. The first third of all heads' rows, in sections of its own, comes when the rest of all heads has been given out: a
    section alone has too few work tiles for as many blocks to end at the same time, and what is left open at the end of the last is
    filled by short ones.
    """
    (section, short_section), group_size = b.quotients()
    top, rows = b.row_tiles, b.row_tiles
    if b.causal:
        long_tiles = (b.row_tiles - b.short_tiles) * b.heads_in_all
        short = number >= long_tiles
        number = cutlass.Int32(cutlass.select_(short, number - long_tiles, number))
        top = cutlass.Int32(cutlass.select_(short, b.short_tiles, b.row_tiles))
        rows = cutlass.Int32(cutlass.select_(short, b.short_tiles, b.row_tiles - b.short_tiles))
        section = cutlass.Int32(cutlass.select_(short, short_section, section))
    span = section * rows
    behind = number // span
    within = number - behind * span
    width = cutlass.min(section, b.heads_in_all - behind * section) if b.causal else 1
    row_tile = top - 1 - within // width
    head_in_all = behind * section + within % width
    batch = head_in_all // b.heads
    head = head_in_all - batch * b.heads
    first_row = row_tile * b.tiles.rows - b.missing_rows
    trips, masked = _trips(b, first_row, b.tiles.rows)
    if b.tiles.ctas > 1:
        first_row = first_row + b.member * b.tiles.own_rows
    return Work(first_row, head, head // group_size, batch, trips - 1, trips, masked)


def _said(work: Work) -> tuple[Any, ...]:
    return work.first_row, work.head, work.kv_head, work.batch, work.trips, work.masked


def announce(b: Block, turn: Iteration, number: Any) -> None:
    """Let the other warps of the block know their ``turn``-th work tile. Without a counter they know it themselves."""
    say(b, turn, number, lambda: _said(place_of(b, number)))


def listen(b: Block, turn: Iteration) -> None:
    """Hear of all work tiles, for a warp without a part in them."""
    hear_all(b, turn, SAID)


def locate(b: Block, turn: Iteration, number: Any) -> Work:
    """The ``turn``-th work tile, whose number is known; called once a turn by every warp."""
    if not announced(b):
        return replace(place_of(b, number), reversed=is_reversed(b, turn))
    first_row, head, kv_head, batch, trips, masked = hear(b, turn, SAID)
    return Work(first_row, head, kv_head, batch, trips - 1, trips, masked, reversed=is_reversed(b, turn))
