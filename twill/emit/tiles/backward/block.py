"""What all warps of a backward block share: tensors, SMEM, barriers, the workspace, and which work tiles there are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync

from twill.emit.tiles import block
from twill.emit.tiles.backward.atomics import clear_words
from twill.emit.tiles.barriers import BARRIER_BYTES, NamedBarrier, RingShape
from twill.emit.tiles.block import ANNOUNCED, SHORT, WORDS, Buffer, barrier_ends, rings_at, smem_tensor, start_rings
from twill.emit.tiles.head_dims import HeadDims

__all__ = [
    "Block", "Operands", "Tiles", "Workspace", "additions_of", "enter", "grid", "operands", "smem_bytes", "turn_ring", "workspace_of",
    "workspace_words",
]  # fmt: skip


ORDER_WARPS = 2
"""Warps that hear of work tiles where additions to dQ are ordered, beside all others."""
MOST_PARTS = 4
"""Parts of dQ whose additions are counted."""
SECTION_BYTES = 16 << 20
"""Rows of heads that are walked together: about a third of L2 (50 MB on an H100 or H200)."""


@dataclass(frozen=True)
class Tiles(HeadDims, ABC):
    """Tile shapes of the kernel: an iteration is ``queries`` rows of Q by the ``keys`` keys of a work tile, cut into ``subtiles``.

    dQ is made in ``parts``, which divide its "queries", its "columns" or the "rows of dQ^T". Tiles in SMEM have ``columns`` of Q and K
    and ``columns_v`` of dO and V: head dims rounded up to the depth of an MMA. TMA fills what lies beyond the head dim with zeros, and
    does not store it.
    """

    head_dim: int
    head_dim_v: int
    queries: int
    keys: int
    subtiles: int
    parts: int
    divides: str

    @abstractmethod
    def layouts(self, dtype: Any, stages: Mapping[str, int]) -> Mapping[str, Any]:
        """SMEM layouts: Q and dO (queries, columns, slot), K and V (keys, columns, sub-tile), dS of a sub-tile (queries, keys, slot)."""

    @abstractmethod
    def dq_index(self, query: Any, chunk: Any) -> tuple[Any, int, int]:
        """Where the ``chunk``-th 8 columns of a query lie in the sum of a tile for dQ: ``first``, ``pair`` and ``single``.

        Element e of them is at first + (e // 2) * pair + (e % 2) * single.
        """

    @property
    @abstractmethod
    def dq_shape(self) -> tuple[int, int]:
        """Rows and columns of the MMA of a part of dQ, or of dQ^T."""

    @property
    def ctas(self) -> int:
        """Blocks that share their MMAs: there are no pairs yet."""
        return 1

    @property
    def sub_keys(self) -> int:
        """Keys of a sub-tile."""
        return self.keys // self.subtiles

    @property
    def tile_words(self) -> int:
        """What the workspace holds of a tile of queries of one head: its sum for dQ, LSE and dPsum, and how many additions are over."""
        return self.queries * (self.columns + 2) + 1


@dataclass(frozen=True, eq=False)
class Operands:
    """What the kernel takes as arguments: a TMA atom and a TMA tensor each; dK, which is stored from registers, has no atom and a tensor
    of its elements.
    """

    q: tuple[Any, Any]
    k: tuple[Any, Any]
    v: tuple[Any, Any]
    do: tuple[Any, Any]
    dk: tuple[Any, Any]
    dv: tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class Workspace:
    """fp32 in global memory: for every tile of queries of every head the sum for dQ, then LSE and dPsum of all; behind them an int32 for
    every tile (`additions_of`).

    Tiles are numbered by batch, head of K and V, tile of queries, head of Q in its group, so that the iterations of a work tile count
    on. LSE is in powers of 2; rows past the end have 1e30, so that their P is 0, and dPsum 0.
    """

    dq: Any
    lse: Any
    dpsum: Any
    row_tiles: Any
    group: Any

    def sum_of(self, tile: Any) -> Any:
        """The sum for dQ of a tile, counted in 64 bits: tiles of a kernel's size would make a product of 32 bits, and too little of it."""
        return self.dq[None, cutlass.Int64(tile)]

    def first_tile(self, kv_head_in_all: Any, row_tile: Any) -> Any:
        """Number of a tile of queries, of the first head of a group; ``kv_head_in_all`` counts heads of K and V of all batches."""
        return (kv_head_in_all * self.row_tiles + row_tile) * self.group


def workspace_words(t: Tiles, batch: int, seqlen_q: int, heads: int) -> int:
    """How many words of 32 bits a launch needs as its workspace."""
    return batch * heads * -(-seqlen_q // t.queries) * t.tile_words


def workspace_of(t: Tiles, memory: Any, batch: Any, seqlen_q: Any, heads: Any, kv_heads: Any) -> Workspace:
    """The parts of a workspace."""
    row_tiles = (seqlen_q + (t.queries - 1)) // t.queries
    tiles = cutlass.Int64(batch * heads) * row_tiles
    statistics = tiles * (t.queries * t.columns)

    def part(offset: Any, floats: int) -> Any:
        # a pointer from arithmetic on 64 bits knows no alignment any more; all parts are multiples of 32 bytes
        iterator = (memory.iterator + offset).align(16)
        return cute.make_tensor(iterator, cute.make_layout((floats, tiles), stride=(1, cutlass.Int64(floats))))

    return Workspace(
        part(cutlass.Int64(0), t.queries * t.columns), part(statistics, t.queries), part(statistics + tiles * t.queries, t.queries),
        row_tiles, heads // kv_heads,
    )  # fmt: skip


def additions_of(t: Tiles, memory: Any, batch: Any, seqlen_q: Any, heads: Any) -> Any:
    """How many tiles of keys have been added to the sum of every tile of queries: counted where their order is kept."""
    tiles = cutlass.Int64(batch * heads) * ((seqlen_q + (t.queries - 1)) // t.queries)
    behind = (memory.iterator + tiles * (t.queries * (t.columns + 2))).align(4)
    return cute.make_tensor(cute.recast_ptr(behind, dtype=cutlass.Int32), cute.make_layout(tiles))


def operands(t: Tiles, storage: Mapping[str, Buffer], q: Any, k: Any, v: Any, do: Any, dk: Any, dv: Any) -> Operands:
    """TMA atoms for tensors of shape (batch, seq, heads, dim)."""
    layouts = t.layouts(q.element_type, {name: b.stages for name, b in storage.items()})
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()

    def view(tensor: Any) -> Any:
        return cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=[1, 3, 2, 0]))

    def atom(op: Any, tensor: Any, name: str, tile: tuple[int, int]) -> tuple[Any, Any]:
        made, coordinates = cpasync.make_tiled_tma_atom(op, view(tensor), cute.slice_(layouts[name], (None, None, 0)), tile)
        return made, coordinates

    rows, keys = (t.queries, t.columns), (t.sub_keys, t.columns)
    rows_v, keys_v = (t.queries, t.columns_v), (t.sub_keys, t.columns_v)
    return Operands(
        atom(load, q, "Q", rows), atom(load, k, "K", keys), atom(load, v, "V", keys_v), atom(load, do, "dO", rows_v),
        (None, view(dk)), atom(store, dv, "V", keys_v),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Block:
    """A block as its warps see it; ``smem`` holds the schedule's buffers by name, ``section`` heads are walked together;
    under a causal mask the last ``short_tiles`` tiles of keys of all heads come last, by ``short_section`` heads.

    Where dQ is ``ordered``, tiles of keys are added to it in one order: ``over`` counts additions to tiles of queries for all blocks
    (`additions_of`), and ``added``, in SMEM, for every part of dQ how often all its additions so far were seen to be over.
    """

    tiles: Tiles
    dtype: Any
    causal: bool
    ordered: bool
    operands: Operands
    smem: Mapping[str, Any]
    workspace: Workspace
    over: Any
    added: Any
    rings: Mapping[str, Any]
    warp: Any
    heads: Any
    kv_heads: Any
    seqlen_q: Any
    seqlen_k: Any
    key_tiles: Any
    heads_in_all: Any
    work_tiles: Any
    section: Any
    short_section: Any
    short_tiles: Any
    counter: Any
    announced: Any
    softmax_scale: Any


def grid(t: Tiles, k: Any, sm_count: Any) -> tuple[Any, int, int]:
    """Blocks of the launch: one a work tile, and no more than ``sm_count``."""
    work_tiles = cute.ceil_div(k.shape[1], t.keys) * k.shape[2] * k.shape[0]
    return (cutlass.max(cutlass.min(work_tiles, sm_count), cutlass.Int32(1)), 1, 1)


def sections(t: Tiles, causal: bool, shape: tuple[Any, Any, Any, Any, Any]) -> tuple[Any, Any]:
    """How many heads of K and V are walked together, so that their rows of Q, dO and the sum for dQ stay in L2, of long and of short work
    tiles; ``shape`` as `enter` takes it. The next section begins while the last one ends, so that each has half of L2. Short ones see
    one part in `SHORT` of the rows.
    """
    if not causal:
        return 1, 1
    batch, seqlen_q, heads, _, kv_heads = shape
    row_bytes = (t.head_dim + t.head_dim_v) * 2 + t.columns * 4
    bytes_of_head = cutlass.max(seqlen_q, cutlass.Int32(1)) * row_bytes * (heads // kv_heads)

    def together(room: int) -> Any:
        return cutlass.min(cutlass.max(cutlass.Int32(room) // bytes_of_head, cutlass.Int32(1)), kv_heads * batch)

    return together(SECTION_BYTES), together(SHORT * SECTION_BYTES)


def _floats(base: Any, buffer: Buffer, count: int) -> Any:
    """A buffer of fp32 values in a row, as (value, slot)."""
    pointer = cute.recast_ptr(base + buffer.offset, dtype=cutlass.Float32)
    return cute.make_tensor(pointer, cute.make_layout((count, buffer.stages), stride=(1, buffer.stride // 4)))


def smem_bytes(storage: Mapping[str, Buffer], barriers: Mapping[str, RingShape | NamedBarrier]) -> int:
    """Dynamic SMEM of the kernel: buffers, barriers and announced work tiles as forward; a word and a barrier for every part of dQ."""
    return block.smem_bytes(storage, barriers) + MOST_PARTS * (4 + BARRIER_BYTES) + BARRIER_BYTES


def _with_more_arrivals(shape: RingShape | NamedBarrier, more: int) -> RingShape:
    assert isinstance(shape, RingShape), "work tiles are announced at an mbarrier"
    return replace(shape, arrivals=shape.arrivals + more)


def turn_ring(part: int) -> str:
    """Name of the barrier that lets additions of a part go, where they are ordered."""
    return f"turn_{part}"


def enter(
    t: Tiles, storage: Mapping[str, Buffer], barriers: Mapping[str, RingShape | NamedBarrier], causal: bool, ordered: bool, dtype: Any,
    given: Operands, workspace: Any, counter: Any, shape: tuple[Any, Any, Any, Any, Any], softmax_scale: Any,
) -> Block:  # fmt: skip
    """Lay out SMEM, initialize the barriers and let all warps see them. ``shape``: batch, seqlen_q, heads, seqlen_k, heads of K and V."""
    batch, seqlen_q, heads, seqlen_k, kv_heads = shape
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    base = cute.arch.get_dyn_smem(cutlass.Int8, alignment=1024)
    smem = {
        name: smem_tensor(base, storage[name], layout, dtype)
        for name, layout in t.layouts(dtype, {name: b.stages for name, b in storage.items()}).items()
    }
    smem |= {name: _floats(base, storage[name], t.queries) for name in ("LSE", "dPsum")}
    smem |= {name: _floats(base, b, t.queries * t.columns // t.parts) for name, b in storage.items() if name.partition("_")[0] == "dQ"}
    barriers_begin, barriers_end = barrier_ends(storage, barriers)
    barriers_begin, barriers_end = -(-barriers_begin // 8) * 8, -(-barriers_end // 8) * 8
    if ordered:
        barriers = {**barriers, "work_empty": _with_more_arrivals(barriers["work_empty"], ORDER_WARPS)}
    rings = rings_at(base, barriers_begin, barriers)
    key_tiles, heads_in_all = (seqlen_k + (t.keys - 1)) // t.keys, kv_heads * batch
    section, short_section = sections(t, causal, shape)
    if ordered and not causal:
        section = cutlass.max(cutlass.Int32(cute.arch.grid_dim()[0]) // cutlass.max(key_tiles, cutlass.Int32(1)), cutlass.Int32(1))
        section = cutlass.min(section, cutlass.max(heads_in_all, cutlass.Int32(1)))
    over, added = None, None
    if ordered:
        over = additions_of(t, workspace, batch, seqlen_q, heads)
        added = cute.make_tensor(cute.recast_ptr(base + barriers_end + 4 * ANNOUNCED * WORDS, dtype=cutlass.Int32), t.parts)
        clear_words(added, warp)
        turns = {turn_ring(p): RingShape(1, 1) for p in range(t.parts)}
        rings |= rings_at(base, barriers_end + 4 * (ANNOUNCED * WORDS + MOST_PARTS), turns)
    start_rings(rings, warp)
    return Block(
        tiles=t, dtype=dtype, causal=causal, ordered=ordered, operands=given, smem=smem, over=over, added=added,
        workspace=workspace_of(t, workspace, batch, seqlen_q, heads, kv_heads), rings=rings, warp=warp, heads=heads, kv_heads=kv_heads,
        seqlen_q=seqlen_q, seqlen_k=seqlen_k, key_tiles=key_tiles, heads_in_all=heads_in_all, work_tiles=key_tiles * heads_in_all,
        section=section, short_section=short_section, short_tiles=key_tiles // SHORT, counter=counter,
        announced=cute.make_tensor(cute.recast_ptr(base + barriers_end, dtype=cutlass.Int32), ANNOUNCED * WORDS),
        softmax_scale=softmax_scale,
    )  # fmt: skip
