"""After the loop: O / l from tensor memory through SMEM and a TMA store, and the log-sum-exp of each row."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from twill.emit.sm100.tiles import memory
from twill.emit.sm100.tiles.barriers import arrive_slot, wait_slot
from twill.emit.sm100.tiles.block import ROWS
from twill.emit.sm100.tiles.rows import Rows
from twill.emit.sm100.tiles.softmax import NEVER, WIDTH
from twill.emit.tiles.block import partition
from twill.emit.tiles.iteration import Iteration
from twill.emit.tiles.words import pack

__all__ = ["finish", "leave", "total"]

LN_2 = 0.6931471805599453
TOTALS = "totals"
"""Slots through which inverse row sums go to the role that stores O, if another has them."""
VECTOR = 8
"""Elements of one store to SMEM."""


@cute.jit
def _store_lse(x: cutlass.Constexpr, value: cutlass.Float32) -> None:
    lse, position = x.block.lse, x.work.first_row + ROWS * x.subtile + x.thread
    if position < x.block.seqlen_q:
        lse[x.work.batch, x.work.head, position] = value


def _inverse(x: Rows) -> Any:
    """1 / l, or 1 for rows without keys; stores the log-sum-exp if it is asked for."""
    b, total = x.block, x.row_sum[0]
    empty = total == 0.0
    safe = cutlass.Float32(cutlass.select_(empty, cutlass.Float32(1.0), total))
    if b.lse is not None:
        value = x.row_max[0] * b.softmax_scale + cute.math.log2(safe, fastmath=True) * LN_2
        _store_lse(x, cutlass.Float32(cutlass.select_(empty, cutlass.Float32(NEVER), value)))
    return cute.arch.rcp_approx(safe)


def total(x: Rows, turn: Iteration) -> None:
    """Hand 1 / l to the role that stores O; write the log-sum-exp if asked for."""
    inverse = _inverse(x)
    wait_slot(x.block.rings["totals_empty"], x.subtile, turn - 1)
    x.block.rows_of(TOTALS, x.subtile)[x.thread] = inverse
    cute.arch.sync_warp()
    arrive_slot(x.block.rings["totals_full"], x.subtile)


def _handed(x: Rows, turn: Iteration) -> Any:
    wait_slot(x.block.rings["totals_full"], x.subtile, turn)
    inverse = x.block.rows_of(TOTALS, x.subtile)[x.thread]
    cute.arch.sync_warp()
    arrive_slot(x.block.rings["totals_empty"], x.subtile)
    return inverse


@cute.jit
def _load_unless_empty(x: cutlass.Constexpr, address: cutlass.Int32, o: cute.Tensor, width: cutlass.Constexpr) -> None:
    if x.work.trips > 0:
        memory.load(address, o, 0, width)
        memory.loaded(o)


@cute.jit
def _store_tile(x: cutlass.Constexpr, to: cute.Tensor, source: cute.Tensor) -> None:
    if x.thread // 32 == 0:
        cute.copy(x.block.operands.o[0], source, to)
        cute.arch.cp_async_bulk_commit_group()
        if cutlass.const_expr(x.block.o_is_q):
            cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def _last_store_read(x: cutlass.Constexpr, but: cutlass.Constexpr) -> None:
    if x.thread // 32 == 0:
        cute.arch.cp_async_bulk_wait_group(but, read=True)


def leave(*finished: Rows) -> None:
    """SMEM stays until the last store has read it, and tensor memory is no longer needed."""
    _last_store_read(finished[0], 0)
    arrive_slot(finished[0].block.rings["tmem_empty"], 0)


def finish(x: Rows, turn: Iteration, barrier_id: int, handed: bool, stores: int = 1) -> None:
    """Write the sub-tile's rows of O: 0 for rows without keys.

    O is staged in SMEM of its own, or in that of the sub-tile's Q, which may be loaded again when this returns. ``handed`` says that the
    row sums come from another role; ``barrier_id`` is a named barrier of the warpgroup's own, which stores ``stores`` sub-tiles a work
    tile.
    """
    b = x.block
    inverse = _handed(x, turn) if handed else _inverse(x)
    wait_slot(b.rings["O_full"], x.subtile, turn)
    staged = cute.make_tensor(b.o.iterator + x.subtile * b.o_stride, b.o.layout)[None, None, 0]
    if not b.o_is_q:
        _last_store_read(x, stores - 1)
        cute.arch.barrier(barrier_id=barrier_id, number_of_threads=ROWS)
    pair = (inverse, inverse)
    # the thread's number for all we know, but not for all the assembler knows: without it, it holds swizzled addresses from tile to tile
    thread = x.thread + cutlass.min(x.work.first_row, cutlass.Int32(0))
    for at, width in memory.transfer_widths(b.tiles.columns_v, WIDTH):
        o = cute.make_rmem_tensor(width, cutlass.Float32)
        o.fill(0.0)
        _load_unless_empty(x, x.address(x.output) + at, o, width)
        words = cute.make_rmem_tensor(width // 2, cutlass.Int32)
        for v in range(0, width, 2):
            low, high = cute.arch.mul_packed_f32x2((o[v], o[v + 1]), pair)
            words[v // 2] = pack(low, high, b.dtype)
        narrow = cute.make_tensor(cute.recast_ptr(words.iterator, dtype=b.dtype), width)
        row = staged[thread, None]
        for v in range(0, width, VECTOR):
            to = cute.local_tile(row, (VECTOR,), ((at + v) // VECTOR,))
            cute.autovec_copy(cute.make_tensor(narrow.iterator + v, VECTOR), to)
    arrive_slot(b.rings["O_empty"], x.subtile)
    cute.arch.fence_view_async_shared()
    cute.arch.barrier(barrier_id=barrier_id, number_of_threads=ROWS)
    out = cute.local_tile(b.operands.o[1][None, None, x.work.head, x.work.batch], (ROWS, b.tiles.columns_v), (None, 0))
    source, to = partition(b.operands.o[0], staged, out)
    _store_tile(x, to[None, x.work.first_row // ROWS + x.subtile], source)
