"""S = Q K^T and O += P V with S, P and O in tensor memory. Both only issue; who needs the result waits for a commit behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import tcgen05
from cutlass.utils import blackwell_helpers

from twill.emit.sm100.tiles.block import Block, pv_mma, qk_mma
from twill.emit.tiles.head_dims import MMA_DEPTH
from twill.emit.tiles.iteration import Iteration, index_of, place

__all__ = ["LETTERS", "Issuer", "issuer", "mma_pv", "mma_qk"]

LETTERS = "abcdefgh"
"""Names of sub-tiles in names of buffers."""


@dataclass(frozen=True, eq=False)
class Issuer:
    """The view of a sub-tile that the warp has which issues its MMAs: ``q``, ``k`` and ``v`` are descriptors of operands in SMEM."""

    block: Block
    subtile: int
    q: Any
    k: Any
    v: Any

    @property
    def scores(self) -> str:
        """Name of the buffer of S and P."""
        return f"SP_{LETTERS[self.subtile]}"

    @property
    def output(self) -> str:
        """Name of the buffer of O."""
        return f"O_{LETTERS[self.subtile]}"


def _operand(b: Block, name: str, layout: Any) -> Any:
    pointer = cute.recast_ptr(b.base + b.storage[name].offset, layout.inner, dtype=b.dtype)
    return cute.make_tensor(pointer, layout.outer)


def issuer(b: Block, subtile: int) -> Issuer:
    """The operands of a sub-tile's MMAs."""
    t, qk, pv = b.tiles, qk_mma(b.tiles, b.dtype), pv_mma(b.tiles, b.dtype)
    shape_qk, shape_pv = (t.mma_rows, t.keys, t.columns), (t.mma_rows, t.columns_v, t.keys)
    q = blackwell_helpers.make_smem_layout_a(qk, shape_qk, b.dtype, t.subtiles)
    k = blackwell_helpers.make_smem_layout_b(qk, shape_qk, b.dtype, b.stages("K"))
    v = blackwell_helpers.make_smem_layout_b(pv, shape_pv, b.dtype, b.stages("V"))
    return Issuer(
        b,
        subtile,
        qk.make_fragment_A(_operand(b, "Q", q)),
        qk.make_fragment_B(_operand(b, "K", k)),
        pv.make_fragment_B(_operand(b, "V", v)),
    )


def _accumulator(x: Issuer, mma: Any, columns: int, address: Any) -> Any:
    layout = mma.make_fragment_C(mma.partition_shape_C((x.block.tiles.mma_rows, columns))).layout
    return cute.make_tensor(cute.make_ptr(cutlass.Float32, address, cute.AddressSpace.tmem, assumed_align=16), layout)


def _p(x: Issuer, mma: Any, address: Any) -> Any:
    """P in tensor memory as the A operand, two values a column, from the first column of S on."""
    b = x.block
    layout = blackwell_helpers.make_smem_layout_a(mma, (b.tiles.mma_rows, b.tiles.columns_v, b.tiles.keys), b.dtype, 1).outer
    pointer = cute.make_ptr(b.dtype, address, cute.AddressSpace.tmem, assumed_align=16)
    # a fragment of tensor memory begins at column 0, wherever its tensor does
    return cute.make_tensor(pointer, mma.make_fragment_A(cute.make_tensor(pointer, layout)).layout)[None, None, None, 0]


def mma_qk(x: Issuer, i: Iteration) -> None:
    """Issue S = Q K^T with the tile of K in its slot."""
    b, mma = x.block, qk_mma(x.block.tiles, x.block.dtype)
    slot, _ = place(i, b.stages("K"))
    out = _accumulator(x, mma, b.tiles.keys, b.column(x.scores, place(i, b.stages(x.scores))[0]))
    q, k = x.q[None, None, None, x.subtile], x.k[None, None, None, slot]
    for step in range(b.tiles.columns // MMA_DEPTH):
        mma.set(tcgen05.Field.ACCUMULATE, step > 0)
        cute.gemm(mma, out, q[None, None, step], k[None, None, step], out)


def mma_pv(x: Issuer, i: Iteration, chunk: int = 0) -> None:
    """Issue O += P V for a chunk of P with the tile of V in its slot; the first of a work tile issues O = P V."""
    b, mma = x.block, pv_mma(x.block.tiles, x.block.dtype)
    slot, _ = place(i, b.stages("V"))
    out = _accumulator(x, mma, b.tiles.columns_v, b.column(x.output))
    p = _p(x, mma, b.column(x.scores, place(i, b.stages(x.scores))[0]))
    v = x.v[None, None, None, slot]
    first, width = b.tiles.chunk(chunk)
    for step in range(first // MMA_DEPTH, (first + width) // MMA_DEPTH):
        mma.set(tcgen05.Field.ACCUMULATE, index_of(i) > 0 if step == 0 else True)
        cute.gemm(mma, out, p[None, None, step], v[None, None, step], out)
