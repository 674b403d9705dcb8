"""After the loop: O / l to global memory, through SMEM and a TMA store where SMEM has room for it, and the log-sum-exp of each row."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import warp

from twill.emit.sm90.tiles.block import ROWS
from twill.emit.sm90.tiles.direct import row_words, store_row
from twill.emit.sm90.tiles.maximum import NEVER, quad
from twill.emit.sm90.tiles.mma import WARPGROUP, Consumer, _pv
from twill.emit.tiles.block import partition

__all__ = ["finish", "finish_directly", "leave"]

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


@cute.jit
def _last_store_read(x: cutlass.Constexpr) -> None:
    if x.thread // 32 == 0:
        cute.arch.cp_async_bulk_wait_group(0, read=True)


def leave(x: Consumer) -> None:
    """SMEM stays until the last store has read it."""
    if x.block.operands.o[0] is not None:
        _last_store_read(x)


def _quotient(x: Consumer) -> None:
    """O / l, and the log-sum-exp of each row if asked for. Rows without keys give 0 and -inf."""
    b, inverse = x.block, []
    for row in range(2):
        total = quad(x.row_sum[row], lambda one, two: one + two)
        empty = total == 0.0
        safe = cutlass.Float32(cutlass.select_(empty, cutlass.Float32(1.0), total))
        inverse.append(cute.arch.rcp_approx(safe))
        if b.lse is not None:
            value = (x.row_max[row] + cute.math.log2(safe, fastmath=True)) * LN_2
            _store_lse(x, row, cutlass.Float32(cutlass.select_(empty, cutlass.Float32(NEVER), value)))
    for v in range(b.tiles.columns_v // 2):
        x.o[v] = x.o[v] * inverse[(v // 2) % 2]


def finish(x: Consumer, barrier_id: int) -> None:
    """Write the sub-tile's rows of O and, if asked for, of the log-sum-exp, through SMEM of its own.

    ``barrier_id`` is a named barrier of the warpgroup's own. The next store waits until this one has read SMEM.
    """
    b = x.block
    _quotient(x)
    narrow = cute.make_rmem_tensor(x.o.layout, b.dtype)
    narrow.store(x.o.load().to(b.dtype))
    atom = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), b.dtype)
    copy = cute.make_tiled_copy_C(atom, _pv(b)).get_slice(x.thread)
    place = cute.assume(x.subtile * b.o_stride, divby=b.o_stride) if not isinstance(x.subtile, int) else x.subtile * b.o_stride
    staged = cute.make_tensor(b.o.iterator + place, b.o.layout)[None, None, 0]
    _last_store_read(x)
    cute.arch.barrier(barrier_id=barrier_id, number_of_threads=WARPGROUP)
    cute.copy(atom, copy.retile(narrow), copy.partition_D(staged))
    cute.arch.fence_view_async_shared()
    cute.arch.barrier(barrier_id=barrier_id, number_of_threads=WARPGROUP)
    out = cute.local_tile(b.operands.o[1][None, None, x.work.head, x.work.batch], (ROWS, b.tiles.columns_v), (None, 0))
    source, to = partition(b.operands.o[0], staged, out)
    _store_tile(x, to[None, x.work.first_row // ROWS], source)


@cute.jit
def _store_row(x: cutlass.Constexpr, row: cutlass.Constexpr, words: cute.Tensor, odd: cutlass.Int32) -> None:
    b, lane = x.block, x.thread % 32
    position = x.work.first_row + (x.thread // 32) * 16 + lane // 4 + 8 * row
    if x.work.first_row >= 0 and position < b.seqlen_q:
        out = b.operands.o[1][position, None, x.work.head, x.work.batch]
        store_row(words, b.dtype, out, b.tiles.head_dim_v, lane, odd)


def finish_directly(x: Consumer) -> None:
    """As `finish`, but from registers to global memory, with neither SMEM nor a barrier."""
    b, odd = x.block, x.thread % 2
    _quotient(x)
    for row in range(2):
        _store_row(x, row, row_words(x.o, row, b.tiles.columns_v, b.dtype, odd), odd)
