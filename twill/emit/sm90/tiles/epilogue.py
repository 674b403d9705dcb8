"""After the loop: O / l through SMEM and a TMA store, and the log-sum-exp of each row."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync, warp

from twill.emit.sm90.tiles.block import ROWS
from twill.emit.sm90.tiles.mma import WARPGROUP, Consumer, _pv
from twill.emit.sm90.tiles.softmax import NEVER, quad

__all__ = ["finish", "leave"]

LN_2 = 0.6931471805599453


@cute.jit
def _store_lse(x: cutlass.Constexpr, row: int, value: cutlass.Float32) -> None:
    b, lse, lane = x.block, x.block.lse, x.thread % 32
    position = x.work.first_row + (x.thread // 32) * 16 + lane // 4 + 8 * row
    if lane % 4 == 0 and position >= 0 and position < b.seqlen_q:
        lse[x.work.batch, x.work.head, position] = value


@cute.jit
def _store_tile(x: cutlass.Constexpr, to: cute.Tensor, source: cute.Tensor) -> None:
    if x.thread // 32 == 0 and x.work.first_row >= 0:
        cute.copy(x.block.operands.o[0], source, to)
        cute.arch.cp_async_bulk_commit_group()
        if cutlass.const_expr(x.block.o_is_q):
            cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def _last_store_read(x: cutlass.Constexpr) -> None:
    if x.thread // 32 == 0:
        cute.arch.cp_async_bulk_wait_group(0, read=True)


def leave(x: Consumer) -> None:
    """SMEM stays until the last store has read it."""
    _last_store_read(x)


def finish(x: Consumer, barrier_id: int) -> None:
    """Write the sub-tile's rows of O and, if asked for, of the log-sum-exp. Rows without keys give 0 and -inf.

    O is staged in SMEM of its own, or in that of the sub-tile's Q, which may be loaded again when this returns; ``barrier_id`` is a
    named barrier of the warpgroup's own.
    """
    b = x.block
    inverse = []
    for row in range(2):
        total = quad(x.row_sum[row], lambda one, two: one + two)
        empty = total == 0.0
        safe = cutlass.Float32(cutlass.select_(empty, cutlass.Float32(1.0), total))
        inverse.append(cute.arch.rcp_approx(safe))
        if b.lse is not None:
            value = x.row_max[row] * b.softmax_scale + cute.math.log2(safe, fastmath=True) * LN_2
            _store_lse(x, row, cutlass.Float32(cutlass.select_(empty, cutlass.Float32(NEVER), value)))
    for v in range(b.tiles.columns_v // 2):
        x.o[v] = x.o[v] * inverse[(v // 2) % 2]
    narrow = cute.make_rmem_tensor(x.o.layout, b.dtype)
    narrow.store(x.o.load().to(b.dtype))
    atom = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), b.dtype)
    copy = cute.make_tiled_copy_C(atom, _pv(b)).get_slice(x.thread)
    place = cute.assume(x.subtile * b.o_stride, divby=b.o_stride) if not isinstance(x.subtile, int) else x.subtile * b.o_stride
    staged = cute.make_tensor(b.o.iterator + place, b.o.layout)[None, None, 0]
    if not b.o_is_q:
        _last_store_read(x)
        cute.arch.barrier(barrier_id=barrier_id, number_of_threads=WARPGROUP)
    cute.copy(atom, copy.retile(narrow), copy.partition_D(staged))
    cute.arch.fence_view_async_shared()
    cute.arch.barrier(barrier_id=barrier_id, number_of_threads=WARPGROUP)
    out = cute.local_tile(b.operands.o[1][None, None, x.work.head, x.work.batch], (ROWS, b.tiles.columns_v), (None, 0))
    source, to = cpasync.tma_partition(b.operands.o[0], 0, cute.make_layout(1), cute.group_modes(staged, 0, 2), cute.group_modes(out, 0, 2))
    _store_tile(x, to[None, x.work.first_row // ROWS], source)
