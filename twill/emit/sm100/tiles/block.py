"""Shapes of the Blackwell kernels, and what a block has beside SMEM: tensor memory, all 512 columns of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import tensor_utils
from cutlass.cute.nvgpu import OperandMajorMode, tcgen05
from cutlass.utils import blackwell_helpers

from twill.emit.tiles import block
from twill.emit.tiles.barriers import NamedBarrier, RingShape
from twill.emit.tiles.block import FRAME, Buffer, Operands

__all__ = ["ROWS", "Block", "Tiles", "enter", "pv_mma", "qk_mma", "release"]

ROWS = 128
"""Query rows of a sub-tile: the lanes of tensor memory, and the threads of a warpgroup."""
TMEM_COLUMNS = 512
POINTER_BYTES = 16
"""At the end of the frame: where the address of tensor memory is written."""


@dataclass(frozen=True)
class Tiles(block.Tiles):
    """Tile shapes of a Blackwell kernel. P is made and multiplied in ``chunks`` of its columns; ``poly_share`` of the exponentials are
    polynomials.
    """

    chunks: tuple[int, ...] = ()
    poly_share: float = 0.0

    @property
    def sub_rows(self) -> int:
        return ROWS

    @property
    def keeps_quotients(self) -> bool:
        return False

    def layouts(self, dtype: Any, k_stages: int, v_stages: int) -> tuple[Any, Any, Any, Any]:
        q = blackwell_helpers.make_smem_layout(OperandMajorMode.K, (ROWS, self.columns), dtype, self.subtiles)
        k = blackwell_helpers.make_smem_layout(OperandMajorMode.K, (self.keys, self.columns), dtype, k_stages)
        v = blackwell_helpers.make_smem_layout(OperandMajorMode.MN, (self.columns_v, self.keys), dtype, v_stages)
        o = blackwell_helpers.make_smem_layout_epi(dtype, tensor_utils.LayoutEnum.ROW_MAJOR, (ROWS, self.columns_v), 1)
        return q, k, v, o

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
    return blackwell_helpers.make_trivial_tiled_mma(dtype, dtype, *kinds, cutlass.Float32, tcgen05.CtaGroup.ONE, (ROWS, t.keys))


def pv_mma(t: Tiles, dtype: Any) -> Any:
    """O += P V with P in tensor memory."""
    kinds = (OperandMajorMode.K, OperandMajorMode.MN)
    one, shape, source = tcgen05.CtaGroup.ONE, (ROWS, t.columns_v), tcgen05.OperandSource.TMEM
    return blackwell_helpers.make_trivial_tiled_mma(dtype, dtype, *kinds, cutlass.Float32, one, shape, source)


@cute.jit
def _allocate(word: cute.Pointer, warp: cutlass.Int32, allocator: cutlass.Constexpr) -> None:
    if warp == allocator:
        cute.arch.alloc_tmem(TMEM_COLUMNS, word)
        cute.arch.relinquish_tmem_alloc_permit()
    cute.arch.sync_threads()


def enter(
    t: Tiles, storage: Mapping[str, Buffer], columns: Mapping[str, Buffer], barriers: Mapping[str, RingShape | NamedBarrier],
    causal: bool, dtype: Any, given: Operands, lse: Any, counter: Any, shape: tuple[Any, Any, Any, Any, Any], softmax_scale: Any,
    allocator: int,
) -> Block:  # fmt: skip
    """As `twill.emit.tiles.block.enter`; warp ``allocator`` also takes the tensor memory, and has to give it back (`release`)."""
    found = block.enter(t, storage, barriers, causal, dtype, given, lse, counter, shape, softmax_scale)
    base = cute.arch.get_dyn_smem(cutlass.Int8, alignment=1024)
    frame = storage[FRAME]
    word = cute.recast_ptr(base + (frame.offset + frame.stride - POINTER_BYTES), dtype=cutlass.Int32)
    _allocate(word, found.warp, allocator)
    tmem = cute.arch.retrieve_tmem_ptr(cutlass.Float32, 16, word).toint()
    shared = {f.name: getattr(found, f.name) for f in fields(block.Block)}
    return Block(**shared, shape=shape, base=base, storage=storage, columns=columns, tmem=tmem)


def release(b: Block) -> None:
    """Give the tensor memory back once all that read it are done; called by the warp that took it."""
    cute.arch.mbarrier_wait(b.rings["tmem_empty"].pointer, 0)
    pointer = cute.make_ptr(cutlass.Float32, b.tmem, cute.AddressSpace.tmem, assumed_align=16)
    cute.arch.dealloc_tmem(pointer, TMEM_COLUMNS)
