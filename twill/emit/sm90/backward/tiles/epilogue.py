"""After the loop: dV and dK through SMEM, in the place of V and K, and TMA stores."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import warp

from twill.emit.sm90.backward.tiles.fragments import Accumulator, dk_mma, dv_mma
from twill.emit.tiles.backward.block import Block
from twill.emit.tiles.barriers import meet
from twill.emit.tiles.block import partition

__all__ = ["finish_dk", "finish_dv", "stored"]


@cute.jit
def _store(x: cutlass.Constexpr, operand: cutlass.Constexpr, to: cute.Tensor, source: cute.Tensor) -> None:
    if x.thread // 32 == 0:
        cute.copy(operand[0], source, to)
        cute.arch.cp_async_bulk_commit_group()


def _finish(x: Accumulator, mma: Any, place: str, operand: tuple[Any, Any], columns: int) -> None:
    b, t = x.block, x.block.tiles
    narrow = cute.make_rmem_tensor(x.sum.layout, b.dtype)
    narrow.store(x.sum.load().to(b.dtype))
    atom = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), b.dtype)
    copy = cute.make_tiled_copy_C(atom, mma).get_slice(x.thread)
    staged = b.smem[place][None, None, x.subtile]
    cute.copy(atom, copy.retile(narrow), copy.partition_D(staged))
    cute.arch.fence_view_async_shared()
    meet(x.meeting)
    out = cute.local_tile(operand[1][None, None, x.work.kv_head, x.work.batch], (t.sub_keys, columns), (None, 0))
    source, to = partition(operand[0], staged, out)
    _store(x, operand, to[None, x.work.key_tile * t.subtiles + x.subtile], source)


def finish_dv(x: Accumulator) -> None:
    """Store dV of the sub-tile from the place of its V, which nobody reads any more."""
    _finish(x, dv_mma(x.block), "V", x.block.operands.dv, x.block.tiles.columns_v)


def finish_dk(x: Accumulator) -> None:
    """Store dK, scaled, from the place of K."""
    for v in range(cute.size(x.sum)):
        x.sum[v] = x.sum[v] * x.block.softmax_scale
    _finish(x, dk_mma(x.block), "K", x.block.operands.dk, x.block.tiles.columns)


def stored(b: Block) -> None:
    """SMEM stays until the warp's last stores and reductions have read it."""
    cute.arch.cp_async_bulk_wait_group(0, read=True)
