"""What all warps of a block share: tensors, SMEM, barriers, the block's rows and its trip count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import tensor_utils
from cutlass.cute.nvgpu import cpasync
from cutlass.utils import hopper_helpers

from twill.emit.sm90.tiles.barriers import BARRIER_BYTES, Ring, initialize

__all__ = ["Block", "Buffer", "Operands", "RingShape", "Tiles", "enter", "operands"]

ROWS = 64
"""Query rows of a sub-tile: those of one wgmma of one warpgroup."""


@dataclass(frozen=True)
class Tiles:
    """Tile shapes of the kernel: ``subtiles`` x 64 query rows by ``keys`` keys an iteration."""

    head_dim: int
    head_dim_v: int
    keys: int
    subtiles: int

    @property
    def rows(self) -> int:
        """Query rows of a block."""
        return ROWS * self.subtiles


@dataclass(frozen=True)
class Buffer:
    """Placement of a buffer in SMEM, as the schedule says."""

    offset: int
    stride: int
    stages: int


@dataclass(frozen=True)
class RingShape:
    """A barrier ring before it has an address."""

    slots: int
    arrivals: int
    tx_bytes: int = 0


@dataclass(frozen=True, eq=False)
class Operands:
    """SMEM layouts (host side) and what the kernel takes as arguments: a TMA atom and a TMA tensor each."""

    q: tuple[Any, Any]
    k: tuple[Any, Any]
    v: tuple[Any, Any]
    o: tuple[Any, Any]


def _layouts(t: Tiles, dtype: Any, k_stages: int, v_stages: int) -> tuple[Any, Any, Any, Any]:
    row, column = tensor_utils.LayoutEnum.ROW_MAJOR, tensor_utils.LayoutEnum.COL_MAJOR
    q = hopper_helpers.make_smem_layout_a(row, (ROWS, t.keys, t.head_dim), dtype, t.subtiles)
    k = hopper_helpers.make_smem_layout_b(row, (ROWS, t.keys, t.head_dim), dtype, k_stages)
    v = hopper_helpers.make_smem_layout_b(column, (ROWS, t.head_dim_v, t.keys), dtype, v_stages)
    o = hopper_helpers.make_smem_layout_a(row, (ROWS, t.keys, t.head_dim_v), dtype, t.subtiles)
    return q, k, v, o


def operands(t: Tiles, storage: Mapping[str, Buffer], q: Any, k: Any, v: Any, o: Any) -> Operands:
    """TMA atoms for tensors of shape (batch, seq, heads, dim). V is seen as (dim, seq), the N x K operand of P V."""
    layouts = _layouts(t, q.element_type, storage["K"].stages, storage["V"].stages)
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()

    def atom(op: Any, tensor: Any, order: list[int], layout: Any, tile: tuple[int, int]) -> tuple[Any, Any]:
        view = cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=order))
        made, coordinates = cpasync.make_tiled_tma_atom(op, view, cute.slice_(layout, (None, None, 0)), tile)
        return made, coordinates

    rows, dims = [1, 3, 2, 0], [3, 1, 2, 0]
    return Operands(
        atom(load, q, rows, layouts[0], (ROWS, t.head_dim)),
        atom(load, k, rows, layouts[1], (t.keys, t.head_dim)),
        atom(load, v, dims, layouts[2], (t.head_dim_v, t.keys)),
        atom(store, o, rows, layouts[3], (ROWS, t.head_dim_v)),
    )


@dataclass(frozen=True, eq=False)
class Block:
    """A block as its warps see it.

    ``trips`` tiles of keys, walked from the last to the first; the first ``masked`` iterations need a mask.
    """

    tiles: Tiles
    dtype: Any
    causal: bool
    operands: Operands
    q: Any
    k: Any
    v: Any
    o: Any
    lse: Any
    rings: Mapping[str, Ring]
    warp: Any
    first_row: Any
    head: Any
    kv_head: Any
    batch: Any
    seqlen_q: Any
    seqlen_k: Any
    trips: Any
    masked: Any
    softmax_scale: Any

    def key_tile(self, iteration: Any) -> Any:
        """Index of the tile of keys of an iteration."""
        return self.trips - 1 - iteration


def _smem_tensor(base: Any, buffer: Buffer, layout: Any, dtype: Any) -> Any:
    pointer = cute.recast_ptr(base + buffer.offset, layout.inner, dtype=dtype)
    return cute.make_tensor(pointer, layout.outer)


def _rings(base: Any, offset: int, shapes: Mapping[str, RingShape]) -> dict[str, Ring]:
    rings: dict[str, Ring] = {}
    for name, shape in shapes.items():
        pointer = cute.recast_ptr(base + offset, dtype=cutlass.Int64)
        rings[name] = Ring(pointer, shape.slots, shape.arrivals, shape.tx_bytes)
        offset += BARRIER_BYTES * shape.slots
    return rings


def smem_bytes(storage: Mapping[str, Buffer], barriers: Mapping[str, RingShape]) -> int:
    """Dynamic SMEM of the kernel: the schedule's buffers, then its barriers."""
    end = max(b.offset + b.stride * b.stages for b in storage.values())
    return end + BARRIER_BYTES * sum(b.slots for b in barriers.values())


def _initialize_all(rings: Mapping[str, Ring]) -> None:
    for ring in rings.values():
        initialize(ring)
    cute.arch.mbarrier_init_fence()


@cute.jit
def _start(rings: cutlass.Constexpr, warp: cutlass.Int32) -> None:
    if warp == 0:
        _initialize_all(rings)
    cute.arch.sync_threads()


def _trips(t: Tiles, causal: bool, first_row: Any, seqlen_q: Any, seqlen_k: Any) -> tuple[Any, Any]:
    if not causal:
        return (seqlen_k + (t.keys - 1)) // t.keys, 1
    zero, shift = cutlass.Int32(0), seqlen_k - seqlen_q
    end = cutlass.max(cutlass.min(seqlen_k, first_row + t.rows + shift), zero)
    trips = (end + (t.keys - 1)) // t.keys
    free = cutlass.min(cutlass.max(first_row + 1 + shift, zero) // t.keys, trips)
    return trips, cutlass.max(trips - free, cutlass.Int32(1))


def enter(
    t: Tiles, storage: Mapping[str, Buffer], barriers: Mapping[str, RingShape], causal: bool, dtype: Any, given: Operands,
    lse: Any, seqlen_q: Any, seqlen_k: Any, group_size: Any, softmax_scale: Any,
) -> Block:  # fmt: skip
    """Find the block's place in the grid, lay out SMEM, initialize the barriers and let all warps see them."""
    tile, head, batch = cute.arch.block_idx()
    if causal:
        tile = cute.arch.grid_dim()[0] - 1 - tile
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    base = cute.arch.get_dyn_smem(cutlass.Int8, alignment=1024)
    q, k, v, o = _layouts(t, dtype, storage["K"].stages, storage["V"].stages)
    end = max(b.offset + b.stride * b.stages for b in storage.values())
    rings = _rings(base, end, barriers)
    first_row = tile * t.rows
    trips, masked = _trips(t, causal, first_row, seqlen_q, seqlen_k)
    _start(rings, warp)
    return Block(
        tiles=t, dtype=dtype, causal=causal, operands=given,
        q=_smem_tensor(base, storage["Q"], q, dtype), k=_smem_tensor(base, storage["K"], k, dtype),
        v=_smem_tensor(base, storage["V"], v, dtype), o=_smem_tensor(base, storage["Q"], o, dtype),
        lse=lse, rings=rings, warp=warp, first_row=first_row, head=head, kv_head=head // group_size, batch=batch,
        seqlen_q=seqlen_q, seqlen_k=seqlen_k, trips=trips, masked=masked, softmax_scale=softmax_scale,
    )  # fmt: skip
