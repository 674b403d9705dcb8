"""The kernels before and after the loop: row sums of O * dO and a cleared sum for dQ; and dQ out of that sum.

One block works on one tile of queries of one head. Both are bound by memory.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from twill.emit.tiles.backward.block import Tiles, Workspace, additions_of, workspace_of

__all__ = ["postprocess", "preprocess"]

THREADS = 256
LANES = 16
"""Threads that share a row of O and dO."""
CHUNK = 8
"""Elements of 16 bits that one access takes."""
LOG2_E = 1.4426950408889634
UNSEEN = 1e30
"""LSE of a row that is not there or sees no key: its P is 0."""


def _where(w: Workspace, kv_heads: Any) -> tuple[Any, Any, Any, Any]:
    """Number of the block's tile, its tile of queries, its head and its batch."""
    number = cutlass.Int32(cute.arch.block_idx()[0])
    row_tile_in_all = number // w.group
    kv_head_in_all = row_tile_in_all // w.row_tiles
    batch = kv_head_in_all // kv_heads
    head = (kv_head_in_all - batch * kv_heads) * w.group + number % w.group
    return number, row_tile_in_all - kv_head_in_all * w.row_tiles, head, batch


def _vector(tensor: Any, index: tuple[Any, ...], chunk: Any) -> Any:
    """A chunk of a row as a tensor of aligned elements."""
    row = tensor[(*index, None)]
    return cute.make_tensor((row.iterator + chunk * CHUNK).align(16), CHUNK)


@cute.jit
def _partial(
    t: cutlass.Constexpr, o: cute.Tensor, do: cute.Tensor, batch: cutlass.Int32, row: cutlass.Int32, head: cutlass.Int32,
    lane: cutlass.Int32,
) -> cutlass.Float32:  # fmt: skip
    """A thread's share of a row's sum."""
    total = cutlass.Float32(0.0)
    chunks = t.head_dim_v // CHUNK
    for k in cutlass.range_constexpr(-(-chunks // LANES)):
        chunk = lane + k * LANES
        if row < o.shape[1] and chunk < chunks:
            one = _vector(o, (batch, row, head), chunk).load().to(cutlass.Float32)
            two = _vector(do, (batch, row, head), chunk).load().to(cutlass.Float32)
            for e in cutlass.range_constexpr(CHUNK):
                total = total + one[e] * two[e]
    return total


@cute.jit
def _statistics(
    t: cutlass.Constexpr, w: cutlass.Constexpr, number: cutlass.Int32, row: cutlass.Int32, place: cutlass.Int32, lse: cute.Tensor,
    batch: cutlass.Int32, head: cutlass.Int32, total: cutlass.Float32,
) -> None:  # fmt: skip
    value = cutlass.Float32(UNSEEN)
    if row < lse.shape[2]:
        given = lse[batch, head, row]
        if given != -cutlass.Float32.inf:
            value = given * LOG2_E
    w.lse[place, number] = value
    w.dpsum[place, number] = total


@cute.jit
def _none_over(over: cute.Tensor, number: cutlass.Int32, thread: cutlass.Int32) -> None:
    if thread == 0:
        over[number] = cutlass.Int32(0)


@cute.kernel
def _before(
    o: cute.Tensor, do: cute.Tensor, lse: cute.Tensor, memory: cute.Tensor, kv_heads: cutlass.Int32, t: cutlass.Constexpr,
    ordered: cutlass.Constexpr,
) -> None:  # fmt: skip
    w = workspace_of(t, memory, o.shape[0], o.shape[1], o.shape[2], kv_heads)
    number, row_tile, head, batch = _where(w, kv_heads)
    thread = cute.arch.thread_idx()[0]
    lane, own = thread % LANES, thread // LANES
    for n in cutlass.range_constexpr(-(-t.queries // (THREADS // LANES))):
        place = n * (THREADS // LANES) + own
        row = row_tile * t.queries + place
        total = _partial(t, o, do, batch, row, head, lane)
        for offset in cutlass.range_constexpr(4):
            total = total + cute.arch.shuffle_sync_bfly(total, offset=1 << offset)
        if lane == 0 and place < t.queries:
            _statistics(t, w, number, row, place, lse, batch, head, total)
    if cutlass.const_expr(ordered):
        _none_over(additions_of(t, memory, o.shape[0], o.shape[1], o.shape[2]), number, thread)
    zeros = cute.make_rmem_tensor(4, cutlass.Float32)
    zeros.fill(0.0)
    quads = t.queries * t.columns // 4
    for n in cutlass.range_constexpr(-(-quads // THREADS)):
        quad = n * THREADS + thread
        if quad < quads:
            cute.autovec_copy(zeros, cute.make_tensor((w.sum_of(number).iterator + quad * 4).align(16), 4))


@cute.kernel
def _after(dq: cute.Tensor, memory: cute.Tensor, kv_heads: cutlass.Int32, softmax_scale: cutlass.Float32, t: cutlass.Constexpr) -> None:
    w = workspace_of(t, memory, dq.shape[0], dq.shape[1], dq.shape[2], kv_heads)
    number, row_tile, head, batch = _where(w, kv_heads)
    thread = cute.arch.thread_idx()[0]
    chunks = t.head_dim // CHUNK
    for n in cutlass.range_constexpr(-(-t.queries * chunks // THREADS)):
        index = n * THREADS + thread
        query, chunk = index // chunks, index % chunks
        row = row_tile * t.queries + query
        if query < t.queries and row < dq.shape[1]:
            first, pair, single = t.dq_index(query, chunk)
            values = cute.make_rmem_tensor(CHUNK, cutlass.Float32)
            total = w.sum_of(number)
            for e in cutlass.range_constexpr(CHUNK):
                values[e] = total[first + (e // 2) * pair + (e % 2) * single] * softmax_scale
            _vector(dq, (batch, row, head), chunk).store(values.load().to(dq.element_type))


_before.set_name_prefix("twill_attn_bwd_before", remove_cutlass_symbol=True, keep_mangled_name=False)
_after.set_name_prefix("twill_attn_bwd_after", remove_cutlass_symbol=True, keep_mangled_name=False)


def _blocks(t: Tiles, q: Any) -> tuple[Any, int, int]:
    return (cute.ceil_div(q.shape[1], t.queries) * q.shape[2] * q.shape[0], 1, 1)


@cute.jit
def preprocess(
    t: cutlass.Constexpr, q: cute.Tensor, k: cute.Tensor, o: cute.Tensor, do: cute.Tensor, lse: cute.Tensor, workspace: cute.Tensor,
    ordered: cutlass.Constexpr, stream: Any,
) -> None:  # fmt: skip
    """Row sums of O * dO, LSE in powers of 2 and a cleared sum for dQ, to which nothing has been added yet."""
    if q.shape[1] > 0:
        _before(o, do, lse, workspace, k.shape[2], t, ordered).launch(grid=_blocks(t, q), block=(THREADS, 1, 1), stream=stream)


@cute.jit
def postprocess(
    t: cutlass.Constexpr, q: cute.Tensor, k: cute.Tensor, dq: cute.Tensor, workspace: cute.Tensor, softmax_scale: cutlass.Float32,
    stream: Any,
) -> None:  # fmt: skip
    """dQ, scaled, in the input's type."""
    if q.shape[1] > 0:
        _after(dq, workspace, k.shape[2], softmax_scale, t).launch(grid=_blocks(t, q), block=(THREADS, 1, 1), stream=stream)
