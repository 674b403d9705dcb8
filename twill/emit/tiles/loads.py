"""TMA loads: Q once a work tile, K and V tile by tile. A load announces its bytes on the barrier that it completes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync

from twill.emit.tiles.barriers import Ring, announce_bytes, arrive_with_bytes
from twill.emit.tiles.block import Block, partition
from twill.emit.tiles.iteration import Iteration, index_of, place
from twill.emit.tiles.work import Work, is_reversed, place_of, rank, takes_turns

__all__ = ["Loader", "load_k", "load_q", "load_v", "loader", "prefetch"]


@dataclass(frozen=True, eq=False)
class Loader:
    """Destinations and sources of the loads of K and V of a work tile, ``(SMEM, global)`` each."""

    block: Block
    work: Work
    k: tuple[Any, Any]
    v: tuple[Any, Any]


def prefetch(b: Block) -> None:
    """Fetch the descriptors of all operands."""
    for atom, _ in (b.operands.q, b.operands.k, b.operands.v, b.operands.o):
        if atom is not None:
            cpasync.prefetch_descriptor(atom)


def loader(b: Block, work: Work) -> Loader:
    """The loading warp's view of a work tile."""
    t, given = b.tiles, b.operands
    k = cute.local_tile(given.k[1][None, None, work.kv_head, work.batch], (t.keys // t.ctas, t.columns), (None, 0))
    part = b.member if t.ctas > 1 else 0
    v = cute.local_tile(given.v[1][None, None, work.kv_head, work.batch], (t.columns_v // t.ctas, t.keys), (part, None))
    return Loader(b, work, partition(given.k[0], b.k, k), partition(given.v[0], b.v, v))


def load_q(b: Block, turn: Iteration, number: Any) -> None:
    """All sub-tiles of Q of a work tile, each into its place once what was there of the work tile before has been used."""
    work, t, full, empty = place_of(b, number), b.tiles, b.rings["Q_full"], b.rings["Q_empty"]
    work = replace(work, reversed=is_reversed(b, turn))
    q = cute.local_tile(b.operands.q[1][None, None, work.head, work.batch], (t.sub_rows, t.columns), (None, 0))
    to, source = partition(b.operands.q[0], b.q, q)
    # where sub-tiles take turns, the one that gets the last rows is the first that has done with its rows before
    for r in reversed(range(t.subtiles)) if takes_turns(b) else range(t.subtiles):
        s = rank(b, work, r)
        cute.arch.mbarrier_wait(empty.pointer + s, place(turn - 1, 1)[1])
        announce_bytes(full, s)
        # a sub-tile before the first row gets rows that nothing will use
        tile = cutlass.max(work.first_row // t.sub_rows + r, cutlass.Int32(0))
        cute.copy(b.operands.q[0], source[None, tile], to[None, s], tma_bar_ptr=full.pointer + s)


def _load(x: Loader, atom: Any, pair: tuple[Any, Any], tile: Any, stages: int, i: Iteration, full: Ring) -> None:
    arrive_with_bytes(full, i)
    slot, _ = place(i, stages)
    cute.copy(atom, pair[1][None, tile], pair[0][None, slot], tma_bar_ptr=full.pointer + place(i, full.slots)[0])


def load_k(x: Loader, i: Iteration, full: Ring) -> None:
    """The tile of K of an iteration into its slot, or the block's half of its rows; completes ``full``."""
    tile, ctas = x.work.key_tile(index_of(i)), x.block.tiles.ctas
    _load(x, x.block.operands.k[0], x.k, tile * ctas + x.block.member if ctas > 1 else tile, cute.size(x.block.k, mode=[2]), i, full)


def load_v(x: Loader, i: Iteration, full: Ring) -> None:
    """The tile of V of an iteration into its slot, or the block's half of its columns; completes ``full``."""
    _load(x, x.block.operands.v[0], x.v, x.work.key_tile(index_of(i)), cute.size(x.block.v, mode=[2]), i, full)
