"""What all warps of a block share: tensors, SMEM, barriers, and which work tiles there are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync

from twill.emit.tiles.barriers import BARRIER_BYTES, NamedBarrier, Ring, RingShape, initialize
from twill.emit.tiles.head_dims import HeadDims

__all__ = [
    "Block", "Buffer", "Operands", "Tiles", "barrier_ends", "enter", "grid", "operands", "partition", "rings_at", "sections", "smem_bytes",
    "smem_tensor", "start_rings",
]  # fmt: skip

ANNOUNCED = 2
"""Work tiles that a block can have announced and not all of its warps read yet."""
WORDS = 8
"""32-bit words that are said of one."""
L2_BYTES = 32 << 20
"""Keys and values that are walked together should stay in L2: 50 MB on an H100 or H200, with room left for what passes through."""
SHORT = 3
"""Under a causal mask the first of that many parts of all heads' rows come last, to fill the end of a launch."""
FRAME = "frame"
"""Storage for barriers and announced work tiles, where the schedule reserves SMEM for them between its buffers."""


@dataclass(frozen=True)
class Tiles(HeadDims, ABC):
    """Tile shapes of the kernel: a work tile of ``subtiles`` sub-tiles by ``keys`` keys an iteration.

    Tiles in SMEM have ``columns`` of Q and K and ``columns_v`` of V and O: head dims rounded up to the depth of an MMA. TMA fills what
    lies beyond the head dim with zeros, and does not store it.
    """

    head_dim: int
    head_dim_v: int
    keys: int
    subtiles: int

    @property
    @abstractmethod
    def sub_rows(self) -> int:
        """Query rows of a sub-tile."""

    @property
    def ctas(self) -> int:
        """Blocks that share their MMAs: each has its own rows, half of K's rows and half of V's columns."""
        return 1

    @property
    def keeps_quotients(self) -> bool:
        """Whether quotients of sizes are kept in the block for all its warps, or left out, for each role to divide again."""
        return True

    @property
    def missing_rows_first(self) -> bool:
        """Whether sub-tiles that the last rows of a head do not fill lie before its first row, and pass over all keys.

        Under a causal mask the sub-tiles there are cost least at that end, where a work tile has the fewest keys.
        """
        return False

    @property
    def stores_registers(self) -> bool:
        """Whether O goes to global memory straight from registers where it has no SMEM of its own, or through that of Q."""
        return False

    @property
    def takes_turns(self) -> bool:
        """Whether under a causal mask the warpgroup with the first rows of a work tile gets the last rows of the next, and so on.

        Last rows see the most keys. Warpgroups that walk them at their own pace then have equally many over two work tiles, and one that
        has fewer in this goes on to the next as far as the rings let it.
        """
        return False

    @abstractmethod
    def layouts(self, dtype: Any, k_stages: int, v_stages: int) -> tuple[Any, Any, Any, Any]:
        """SMEM layouts as TMA sees them: Q (rows, columns, sub-tile), K (keys, columns, slot), V (columns, keys, slot), O of a sub-tile."""

    @property
    def load_options(self) -> tuple[Any, ...]:
        """How TMA loads are done, if in some special way."""
        return ()

    @property
    def own_rows(self) -> int:
        """Query rows that a block has of a work tile."""
        return self.sub_rows * self.subtiles

    @property
    def rows(self) -> int:
        """Query rows of a work tile."""
        return self.own_rows * self.ctas


@dataclass(frozen=True)
class Buffer:
    """Placement of a buffer in SMEM, as the schedule says."""

    offset: int
    stride: int
    stages: int


@dataclass(frozen=True, eq=False)
class Operands:
    """What the kernel takes as arguments: a TMA atom and a TMA tensor each. O has no atom, and a tensor of its elements, where it is stored
    straight from registers.
    """

    q: tuple[Any, Any]
    k: tuple[Any, Any]
    v: tuple[Any, Any]
    o: tuple[Any, Any]


def operands(t: Tiles, storage: Mapping[str, Buffer], q: Any, k: Any, v: Any, o: Any) -> Operands:
    """TMA atoms for tensors of shape (batch, seq, heads, dim). V is seen as (dim, seq), the N x K operand of P V, O as (seq, dim)."""
    layouts = t.layouts(q.element_type, storage["K"].stages, storage["V"].stages)
    load, store = cpasync.CopyBulkTensorTileG2SOp(*t.load_options), cpasync.CopyBulkTensorTileS2GOp()

    def view(tensor: Any, order: list[int]) -> Any:
        return cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=order))

    def atom(op: Any, tensor: Any, order: list[int], layout: Any, tile: tuple[int, int]) -> tuple[Any, Any]:
        made, coordinates = cpasync.make_tiled_tma_atom(op, view(tensor, order), cute.slice_(layout, (None, None, 0)), tile)
        return made, coordinates

    rows, dims = [1, 3, 2, 0], [3, 1, 2, 0]
    stored = t.stores_registers and "O_staging" not in storage
    return Operands(
        atom(load, q, rows, layouts[0], (t.sub_rows, t.columns)),
        atom(load, k, rows, layouts[1], (t.keys // t.ctas, t.columns)),
        atom(load, v, dims, layouts[2], (t.columns_v // t.ctas, t.keys)),
        (None, view(o, rows)) if stored else atom(store, o, rows, layouts[3], (t.sub_rows, t.columns_v)),
    )


@dataclass(frozen=True, eq=False)
class Block:
    """A block as its warps see it.

    ``work_tiles`` work tiles are shared out among the blocks of the grid, in turn or, with a ``counter``, as blocks come to ask for
    the next; ``announced`` is where a block's warps then read what it got. ``sections`` say how many heads are walked together, of long
    and of short work tiles, of which a head has ``short_tiles`` (see `place_of`).
    ``missing_rows`` rows of a head's work tiles lie before its first.
    ``o`` is where the first sub-tile of O is staged, if it is; those of the others follow each ``o_stride`` elements after the one
    before: in the place of Q every sub-tile stays within its own, since the other warpgroups may still be reading theirs.
    """

    tiles: Tiles
    dtype: Any
    causal: bool
    operands: Operands
    q: Any
    k: Any
    v: Any
    o: Any
    o_stride: int
    o_is_q: bool
    lse: Any
    rings: Mapping[str, Any]
    warp: Any
    heads: Any
    group_size: Any
    seqlen_q: Any
    seqlen_k: Any
    row_tiles: Any
    missing_rows: Any
    heads_in_all: Any
    work_tiles: Any
    short_tiles: Any
    sections: Any
    counter: Any
    announced: Any
    softmax_scale: Any

    @property
    def member(self) -> Any:
        """The number of the block among those that share its MMAs; the first of them leads."""
        return cute.arch.block_idx_in_cluster()

    def quotients(self) -> tuple[tuple[Any, Any], Any]:
        """How many heads are walked together, of long and of short work tiles, and how many heads of Q share one of K and V."""
        return self.sections, self.group_size


def smem_tensor(base: Any, buffer: Buffer, layout: Any, dtype: Any) -> Any:
    """A buffer in dynamic SMEM, which begins at ``base``."""
    pointer = cute.recast_ptr(base + buffer.offset, layout.inner, dtype=dtype)
    return cute.make_tensor(pointer, layout.outer)


def partition(atom: Any, smem: Any, tiled: Any) -> tuple[Any, Any]:
    """A TMA copy's view of tiles in SMEM and of tiles in global memory: the first two modes are what one copy moves."""
    here, there = cpasync.tma_partition(atom, 0, cute.make_layout(1), cute.group_modes(smem, 0, 2), cute.group_modes(tiled, 0, 2))
    return here, there


def rings_at(base: Any, offset: int, shapes: Mapping[str, RingShape | NamedBarrier]) -> dict[str, Ring | NamedBarrier]:
    """The barriers, those in SMEM one behind the other from ``offset`` on."""
    rings: dict[str, Ring | NamedBarrier] = {}
    for name, shape in shapes.items():
        if isinstance(shape, NamedBarrier):
            rings[name] = shape
            continue
        pointer = cute.recast_ptr(base + offset, dtype=cutlass.Int64)
        rings[name] = Ring(name, pointer, shape.slots, shape.arrivals, shape.tx_bytes, shape.pair)
        offset += BARRIER_BYTES * shape.slots
    return rings


def barrier_ends(storage: Mapping[str, Buffer], barriers: Mapping[str, RingShape | NamedBarrier]) -> tuple[int, int]:
    """Where the barriers begin, and where these end and announced work tiles begin."""
    frame, end = storage.get(FRAME), max(b.offset + b.stride * b.stages for b in storage.values())
    begin = end if frame is None else frame.offset
    barriers_end = begin + BARRIER_BYTES * sum(b.slots for b in barriers.values() if isinstance(b, RingShape))
    if frame is not None and barriers_end + 4 * ANNOUNCED * WORDS > begin + frame.stride:
        raise ValueError(f"the barriers need {barriers_end - begin} bytes of SMEM; {frame.stride} are reserved")
    return begin, barriers_end


def smem_bytes(storage: Mapping[str, Buffer], barriers: Mapping[str, RingShape | NamedBarrier]) -> int:
    """Dynamic SMEM of the kernel: the schedule's buffers, then its barriers, then announced work tiles."""
    if FRAME in storage:
        return max(b.offset + b.stride * b.stages for b in storage.values())
    return barrier_ends(storage, barriers)[1] + 4 * ANNOUNCED * WORDS


def _initialize_all(rings: Mapping[str, Ring | NamedBarrier]) -> None:
    for ring in rings.values():
        if isinstance(ring, Ring):
            initialize(ring)
    cute.arch.mbarrier_init_fence()


@cute.jit
def start_rings(rings: cutlass.Constexpr, warp: cutlass.Int32) -> None:
    """Initialize all barriers, and let all warps see them."""
    if warp == 0:
        _initialize_all(rings)
    cute.arch.sync_threads()


def grid(t: Tiles, q: Any, sm_count: Any) -> tuple[Any, int, int]:
    """Blocks of the launch: one a work tile, or a pair, and no more than ``sm_count`` but for a pair on a single multiprocessor."""
    work_tiles = cute.ceil_div(q.shape[1], t.rows) * q.shape[2] * q.shape[0]
    together = cutlass.max(cutlass.min(work_tiles, sm_count // t.ctas), cutlass.Int32(1))
    return (together * t.ctas if t.ctas > 1 else together, 1, 1)


def sections(t: Tiles, causal: bool, shape: tuple[Any, Any, Any, Any, Any]) -> tuple[Any, Any]:
    """How many heads are walked together, so that their keys and values stay in L2, of long and of short work tiles; ``shape`` as `enter`
    takes it. Of short ones that is reckoned with a quarter of the keys that the longest of them sees: on average they see half, and several
    of a head are under way at a time. More heads are then a longer descent, and blocks end closer together.
    """
    if not causal:
        return 1, 1
    _, seqlen_q, _, seqlen_k, _ = shape
    before = cutlass.max(seqlen_k - seqlen_q, cutlass.Int32(0))
    return _heads_together(t, shape, seqlen_k), _heads_together(t, shape, cutlass.min(seqlen_k, before + seqlen_q // (4 * SHORT)))


def _heads_together(t: Tiles, shape: tuple[Any, Any, Any, Any, Any], keys: Any) -> Any:
    batch, _, heads, _, kv_heads = shape
    key_bytes = cutlass.max(keys, cutlass.Int32(1)) * ((t.head_dim + t.head_dim_v) * 2)
    # no more than all: a section of few keys and many rows would count beyond 32 bits
    together = cutlass.min(cutlass.max(cutlass.Int32(L2_BYTES) // key_bytes, cutlass.Int32(1)), kv_heads * batch)
    return together * (heads // kv_heads)


def enter(
    t: Tiles, storage: Mapping[str, Buffer], barriers: Mapping[str, RingShape | NamedBarrier], causal: bool, dtype: Any, given: Operands,
    lse: Any, counter: Any, shape: tuple[Any, Any, Any, Any, Any], softmax_scale: Any,
) -> Block:  # fmt: skip
    """Lay out SMEM, initialize the barriers and let all warps see them. ``shape``: batch, seqlen_q, heads, seqlen_k, heads of K and V."""
    batch, seqlen_q, heads, seqlen_k, kv_heads = shape
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    base = cute.arch.get_dyn_smem(cutlass.Int8, alignment=1024)
    q, k, v, o = t.layouts(dtype, storage["K"].stages, storage["V"].stages)
    barriers_begin, barriers_end = barrier_ends(storage, barriers)
    rings = rings_at(base, barriers_begin, barriers)
    row_tiles, o_is_q = (seqlen_q + (t.rows - 1)) // t.rows, "O_staging" not in storage
    group_size = heads // kv_heads if t.keeps_quotients else None
    together = sections(t, causal, shape) if t.keeps_quotients else None
    missing_rows = row_tiles * t.rows - (seqlen_q + (t.sub_rows - 1)) // t.sub_rows * t.sub_rows if t.missing_rows_first else 0
    start_rings(rings, warp)
    return Block(
        tiles=t, dtype=dtype, causal=causal, operands=given,
        q=smem_tensor(base, storage["Q"], q, dtype), k=smem_tensor(base, storage["K"], k, dtype),
        v=smem_tensor(base, storage["V"], v, dtype), o=smem_tensor(base, storage.get("O_staging", storage["Q"]), o, dtype),
        o_stride=t.sub_rows * (t.columns if o_is_q else t.columns_v), o_is_q=o_is_q, lse=lse, rings=rings, warp=warp,
        heads=heads, group_size=group_size, seqlen_q=seqlen_q, seqlen_k=seqlen_k, row_tiles=row_tiles, missing_rows=missing_rows,
        heads_in_all=heads * batch, work_tiles=row_tiles * heads * batch, short_tiles=row_tiles // SHORT, sections=together,
        counter=counter,
        announced=cute.make_tensor(cute.recast_ptr(base + barriers_end, dtype=cutlass.Int32), ANNOUNCED * WORDS),
        softmax_scale=softmax_scale,
    )  # fmt: skip
