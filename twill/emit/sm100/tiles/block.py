"""Shapes of the Blackwell kernels, and what a block has beside SMEM: tensor memory, all 512 columns of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import tensor_utils
from cutlass.cute.nvgpu import OperandMajorMode, tcgen05
from cutlass.utils import blackwell_helpers

from twill.emit.sm100.tiles.iteration import start
from twill.emit.tiles import block, work
from twill.emit.tiles.barriers import NamedBarrier, Ring, RingShape
from twill.emit.tiles.block import ANNOUNCED, FRAME, Buffer, Operands

__all__ = ["ROWS", "Block", "Tiles", "enter", "listen", "part", "pv_mma", "qk_mma", "release"]

ROWS = 128
"""Query rows of a sub-tile: the lanes of tensor memory, and the threads of a warpgroup."""
TMEM_COLUMNS = 512
LEADER = 0xFEFFFFFF - (1 << 32)
"""Of an address in the SMEM of a pair's second block, all that is not its rank (cute/arch/copy_sm100_tma.hpp has the same mask)."""
POINTER_BYTES = 16
"""At the end of the frame: where the address of tensor memory is written."""


@dataclass(frozen=True)
class Tiles(block.Tiles):
    """Tile shapes of a Blackwell kernel. P is made and multiplied in ``chunks`` of its columns; ``poly_share`` of the exponentials are
    polynomials. ``ctas`` blocks are a pair: MMAs of the leader multiply the rows of both with operands of which each has half.
    """

    chunks: tuple[int, ...] = ()
    poly_share: float = 0.0
    ctas: int = 1

    @property
    def sub_rows(self) -> int:
        return ROWS

    @property
    def keeps_quotients(self) -> bool:
        return False

    def layouts(self, dtype: Any, k_stages: int, v_stages: int) -> tuple[Any, Any, Any, Any]:
        q = blackwell_helpers.make_smem_layout(OperandMajorMode.K, (ROWS, self.columns), dtype, self.subtiles)
        k = blackwell_helpers.make_smem_layout(OperandMajorMode.K, (self.keys // self.ctas, self.columns), dtype, k_stages)
        v = blackwell_helpers.make_smem_layout(OperandMajorMode.MN, (self.columns_v // self.ctas, self.keys), dtype, v_stages)
        o = blackwell_helpers.make_smem_layout_epi(dtype, tensor_utils.LayoutEnum.ROW_MAJOR, (ROWS, self.columns_v), 1)
        return q, k, v, o

    @property
    def load_options(self) -> tuple[Any, ...]:
        return (tcgen05.CtaGroup.TWO,) if self.ctas > 1 else ()

    @property
    def group(self) -> Any:
        """The blocks of an MMA."""
        return tcgen05.CtaGroup.TWO if self.ctas > 1 else tcgen05.CtaGroup.ONE

    @property
    def mma_rows(self) -> int:
        """Rows that an MMA multiplies."""
        return ROWS * self.ctas

    def chunk(self, number: int) -> tuple[int, int]:
        """First column and width of a chunk of P."""
        return sum(self.chunks[:number]), self.chunks[number]


@dataclass(frozen=True, eq=False)
class Block(block.Block):
    """A block as its warps see it. ``columns`` places buffers in tensor memory, which begins at ``tmem``; ``slots`` are rows of floats
    in SMEM that one role writes for another: rescale factors, row sums. ``shape`` is that of the operands.
    """

    tiles: Tiles
    shape: tuple[Any, Any, Any, Any, Any]
    base: Any
    storage: Mapping[str, Buffer]
    columns: Mapping[str, Buffer]
    tmem: Any

    def quotients(self) -> tuple[tuple[Any, Any], Any]:
        """Divided again in each role: kept for all of them, the assembler spills them."""
        return block.sections(self.tiles, self.causal, self.shape), self.shape[2] // self.shape[4]

    def stages(self, name: str) -> int:
        """Slots of a buffer of SMEM or tensor memory."""
        return (self.columns if name in self.columns else self.storage)[name].stages

    def column(self, name: str, slot: Any = 0) -> Any:
        """Address of the first column of a slot of tensor memory."""
        at = self.columns[name]
        return self.tmem + (at.offset + (slot * at.stride if at.stages > 1 else 0))

    def rows_of(self, name: str, slot: Any = 0) -> Any:
        """A float a row of a sub-tile, in SMEM."""
        at = self.storage[name]
        return cute.make_tensor(cute.recast_ptr(self.base + at.offset + slot * at.stride, dtype=cutlass.Float32), ROWS)


def qk_mma(t: Tiles, dtype: Any) -> Any:
    """S = Q K^T."""
    kinds = (OperandMajorMode.K, OperandMajorMode.K)
    return blackwell_helpers.make_trivial_tiled_mma(dtype, dtype, *kinds, cutlass.Float32, t.group, (t.mma_rows, t.keys))


def pv_mma(t: Tiles, dtype: Any) -> Any:
    """O += P V with P in tensor memory."""
    kinds = (OperandMajorMode.K, OperandMajorMode.MN)
    shape, source = (t.mma_rows, t.columns_v), tcgen05.OperandSource.TMEM
    return blackwell_helpers.make_trivial_tiled_mma(dtype, dtype, *kinds, cutlass.Float32, t.group, shape, source)


@cute.jit
def _allocate(word: cute.Pointer, warp: cutlass.Int32, allocator: cutlass.Constexpr, pair: cutlass.Constexpr) -> None:
    if warp == allocator:
        cute.arch.alloc_tmem(TMEM_COLUMNS, word, is_two_cta=pair)
        cute.arch.relinquish_tmem_alloc_permit(is_two_cta=pair)
    cute.arch.sync_threads()


def enter(
    t: Tiles, storage: Mapping[str, Buffer], columns: Mapping[str, Buffer], barriers: Mapping[str, RingShape | NamedBarrier],
    causal: bool, dtype: Any, given: Operands, lse: Any, counter: Any, shape: tuple[Any, Any, Any, Any, Any], softmax_scale: Any,
    allocator: int,
) -> Block:  # fmt: skip
    """As `twill.emit.tiles.block.enter`; warp ``allocator`` also takes the tensor memory, and has to give it back (`release`)."""
    if t.ctas > 1:
        # the blocks of a pair do the same work tiles: in turn, which each can work out for itself
        counter = None
    found = block.enter(t, storage, barriers, causal, dtype, given, lse, counter, shape, softmax_scale)
    if t.ctas > 1:
        meet()
    base = cute.arch.get_dyn_smem(cutlass.Int8, alignment=1024)
    frame = storage[FRAME]
    word = cute.recast_ptr(base + (frame.offset + frame.stride - POINTER_BYTES), dtype=cutlass.Int32)
    _allocate(word, found.warp, allocator, t.ctas > 1 or None)
    tmem = cute.arch.retrieve_tmem_ptr(cutlass.Float32, 16, word).toint()
    shared = {f.name: getattr(found, f.name) for f in fields(block.Block)}
    if t.ctas > 1:
        shared["rings"] = {name: _with_leader(ring, base) for name, ring in found.rings.items()}
    return Block(**shared, shape=shape, base=base, storage=storage, columns=columns, tmem=tmem)


def _with_leader(ring: Ring | NamedBarrier, base: Any) -> Ring | NamedBarrier:
    """An address of SMEM has the rank of its block from bit 24 on: without it, it is the same place in the leader."""
    if isinstance(ring, NamedBarrier) or ring.pair != "gathered":
        return ring
    return replace(ring, leader=(base.toint() & LEADER) + (ring.pointer.toint() - base.toint()))


def release(b: Block) -> None:
    """Give the tensor memory back once all that read it are done; called by the warp that took it."""
    cute.arch.mbarrier_wait(b.rings["tmem_empty"].pointer, 0)
    pointer = cute.make_ptr(cutlass.Float32, b.tmem, cute.AddressSpace.tmem, assumed_align=16)
    cute.arch.dealloc_tmem(pointer, TMEM_COLUMNS, is_two_cta=b.tiles.ctas > 1 or None)


def meet() -> None:
    """All threads of a pair of blocks wait for one another."""
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


def listen(b: Block) -> None:
    """The warp of a pair's second block that issues in the first: it hears of work tiles and leaves the MMAs to the leader."""
    work.listen(b, start((1, ANNOUNCED)))


def part(b: Block) -> None:
    """No block of a pair ends while the other may still reach into it; called by all warps at last."""
    meet()
