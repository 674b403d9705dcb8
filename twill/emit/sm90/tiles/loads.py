"""TMA loads: Q once, K and V tile by tile. A load announces its bytes on the barrier that it completes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync

from twill.emit.sm90.tiles.barriers import Ring, arrive_with_bytes, slot_of
from twill.emit.sm90.tiles.block import ROWS, Block

__all__ = ["Loader", "load_k", "load_q", "load_v", "loader"]


@dataclass(frozen=True, eq=False)
class Loader:
    """Sources and destinations of the block's loads, ``(SMEM, global)`` each."""

    block: Block
    q: tuple[Any, Any]
    k: tuple[Any, Any]
    v: tuple[Any, Any]


def _partition(atom: Any, smem: Any, tiled: Any) -> tuple[Any, Any]:
    to, source = cpasync.tma_partition(atom, 0, cute.make_layout(1), cute.group_modes(smem, 0, 2), cute.group_modes(tiled, 0, 2))
    return to, source


def loader(b: Block) -> Loader:
    """The loading warp's view of the block."""
    t, given = b.tiles, b.operands
    q = cute.local_tile(given.q[1][None, None, b.head, b.batch], (ROWS, t.head_dim), (None, 0))
    k = cute.local_tile(given.k[1][None, None, b.kv_head, b.batch], (t.keys, t.head_dim), (None, 0))
    v = cute.local_tile(given.v[1][None, None, b.kv_head, b.batch], (t.head_dim_v, t.keys), (0, None))
    for atom in (given.q[0], given.k[0], given.v[0]):
        cpasync.prefetch_descriptor(atom)
    return Loader(b, _partition(given.q[0], b.q, q), _partition(given.k[0], b.k, k), _partition(given.v[0], b.v, v))


def load_q(x: Loader, full: Ring) -> None:
    """All sub-tiles of Q; sub-tile i completes slot i of ``full``."""
    for i in range(x.block.tiles.subtiles):
        arrive_with_bytes(full, i)
        tile = x.block.first_row // ROWS + i
        cute.copy(x.block.operands.q[0], x.q[1][None, tile], x.q[0][None, i], tma_bar_ptr=full.pointer + i)


def _load(x: Loader, atom: Any, pair: tuple[Any, Any], stages: int, iteration: Any, full: Ring) -> None:
    arrive_with_bytes(full, iteration)
    tile, slot = x.block.key_tile(iteration), slot_of(iteration, stages)
    cute.copy(atom, pair[1][None, tile], pair[0][None, slot], tma_bar_ptr=full.pointer + slot_of(iteration, full.slots))


def load_k(x: Loader, iteration: Any, full: Ring) -> None:
    """The tile of K of an iteration into its slot; completes ``full``."""
    _load(x, x.block.operands.k[0], x.k, cute.size(x.block.k, mode=[2]), iteration, full)


def load_v(x: Loader, iteration: Any, full: Ring) -> None:
    """The tile of V of an iteration into its slot; completes ``full``."""
    _load(x, x.block.operands.v[0], x.v, cute.size(x.block.v, mode=[2]), iteration, full)
