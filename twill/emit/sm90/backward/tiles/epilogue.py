"""After the loop: dV through SMEM, in the place of V, and a TMA store; dK straight from registers, so that the next K may come."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import warp

from twill.emit.sm90.backward.tiles.fragments import Accumulator, dv_mma
from twill.emit.sm90.tiles.direct import row_words, store_row
from twill.emit.tiles.backward.block import Block
from twill.emit.tiles.barriers import meet
from twill.emit.tiles.block import partition

__all__ = ["finish_dk", "finish_dv", "stored"]


@cute.jit
def _store(x: cutlass.Constexpr, operand: cutlass.Constexpr, to: cute.Tensor, source: cute.Tensor) -> None:
    if x.thread // 32 == 0:
        cute.copy(operand[0], source, to)
        cute.arch.cp_async_bulk_commit_group()


def finish_dv(x: Accumulator) -> None:
    """Store dV of the sub-tile from the place of its V, which nobody reads any more."""
    b, t, operand = x.block, x.block.tiles, x.block.operands.dv
    narrow = cute.make_rmem_tensor(x.sum.layout, b.dtype)
    narrow.store(x.sum.load().to(b.dtype))
    atom = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), b.dtype)
    copy = cute.make_tiled_copy_C(atom, dv_mma(b)).get_slice(x.thread)
    staged = b.smem["V"][None, None, x.subtile]
    cute.copy(atom, copy.retile(narrow), copy.partition_D(staged))
    cute.arch.fence_view_async_shared()
    meet(x.meeting)
    out = cute.local_tile(operand[1][None, None, x.work.kv_head, x.work.batch], (t.sub_keys, t.columns_v), (None, 0))
    source, to = partition(operand[0], staged, out)
    _store(x, operand, to[None, x.work.key_tile * t.subtiles + x.subtile], source)


@cute.jit
def _store_row(x: cutlass.Constexpr, row: cutlass.Constexpr, words: cute.Tensor, odd: cutlass.Int32) -> None:
    b, lane = x.block, x.thread % 32
    position = x.work.key_tile * b.tiles.keys + x.subtile * b.tiles.sub_keys + (x.thread // 32) * 16 + lane // 4 + 8 * row
    if position < b.seqlen_k:
        out = b.operands.dk[1][position, None, x.work.kv_head, x.work.batch]
        store_row(words, b.dtype, out, b.tiles.head_dim, lane, odd)


def finish_dk(x: Accumulator) -> None:
    """Store dK of the sub-tile, scaled."""
    b, odd = x.block, x.thread % 2
    for v in range(cute.size(x.sum)):
        x.sum[v] = x.sum[v] * b.softmax_scale
    for row in range(2):
        _store_row(x, row, row_words(x.sum, row, b.tiles.columns, b.dtype, odd), odd)


def stored(b: Block) -> None:
    """SMEM stays until the warp's last stores and reductions have read it."""
    cute.arch.cp_async_bulk_wait_group(0, read=True)
