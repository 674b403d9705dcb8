"""From scores to dS of a sub-tile in registers, and dS into SMEM."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import warp

from twill.emit.sm90.backward.tiles.block import HEIGHT, LETTERS
from twill.emit.sm90.backward.tiles.fragments import Scores, qk_mma, turned
from twill.emit.tiles.barriers import meet
from twill.emit.tiles.iteration import Iteration, index_of, place
from twill.emit.tiles.words import pack

__all__ = ["convert", "dscore", "exp2", "read_dpsum", "read_lse", "store_ds"]

NEVER = float("-inf")


def _read(smem: Any, other: Any, i: Iteration, thread: Any, to: Any) -> None:
    """The statistic of each of a thread's queries, pairs 8 apart, from the slot that ``other`` has for the iteration."""
    rows = smem[None, place(i, cute.size(other, mode=[2]))[0]]
    pairs = cute.make_tensor(rows.iterator, cute.make_layout((2, cute.size(to, mode=[1]), 4), stride=(1, 8, 2)))
    cute.autovec_copy(pairs[None, None, thread % 4], to)


def read_lse(x: Scores, i: Iteration, masked: bool) -> None:
    """LSE of the rows of Q, with which it came. Masking takes registers, and reads it behind."""
    if not masked:
        _read_lse(x, i)


def _read_lse(x: Scores, i: Iteration) -> None:
    _read(x.block.smem["LSE"], x.block.smem["Q"], i, x.thread, x.lse)


def read_dpsum(x: Scores, i: Iteration) -> None:
    """dPsum of the rows of dO, with which it came."""
    _read(x.block.smem["dPsum"], x.block.smem["dO"], i, x.thread, x.dpsum)


def _query(v: int) -> int:
    """Which of its queries a thread's value is of."""
    return v // 4 * 2 + v % 2


def _mask(x: Scores, i: Iteration) -> None:
    """Scores of keys past the end, and of those that a query may not see, become -inf."""
    b, t = x.block, x.block.tiles
    lane = x.thread % 32
    key = x.work.key_tile * t.keys + HEIGHT * x.subtile + x.thread // 32 * 16 + lane // 4
    left = b.seqlen_k - key
    # a query sees the key if its column is at least this
    begin = cutlass.Int32(0)
    if b.causal:
        begin = key - lane % 4 * 2 - x.work.diagonal - x.work.tiles_before(index_of(i)) * t.queries
    for half in range(2):
        this = cutlass.Int32(cutlass.select_(left > 8 * half, begin, cutlass.Int32(t.queries)))
        for v in range(2 * half, t.queries // 2, 4):
            for c in range(2):
                column = 8 * (v // 4) + c - (8 * half if b.causal else 0)
                x.s[v + c] = cutlass.Float32(cutlass.select_(column >= this, x.s[v + c], cutlass.Float32(NEVER)))


def exp2(x: Scores, i: Iteration, masked: bool) -> None:
    """Scores become P = exp2(score * scale - LSE), in place."""
    if masked:
        _mask(x, i)
        _read_lse(x, i)
    for v in range(x.block.tiles.queries // 2):
        x.s[v] = cute.math.exp2(cute.math.fma(x.s[v], x.scale_log2, -x.lse[_query(v)]), fastmath=True)


def convert(x: Scores, i: Iteration) -> None:
    """P in the input's type, in the order of the A operand (which is that of the accumulator)."""
    for v in range(0, x.block.tiles.queries // 2, 2):
        x.p_packed[v // 2] = pack(x.s[v], x.s[v + 1], x.block.dtype)


def dscore(x: Scores, i: Iteration) -> None:
    """dP becomes dS = P (dP - dPsum), in the input's type."""
    for v in range(0, x.block.tiles.queries // 2, 2):
        for e in (v, v + 1):
            x.dp[e] = x.s[e] * (x.dp[e] - x.dpsum[_query(e)])
        x.ds_packed[v // 2] = pack(x.dp[v], x.dp[v + 1], x.block.dtype)


def store_ds(x: Scores, i: Iteration, meet_first: bool = False) -> None:
    """dS into its slot in SMEM, for the MMAs of dQ. ``meet_first`` where these may still read in another warp."""
    b = x.block
    if meet_first:
        meet(x.meeting)
    smem = b.smem[f"dS_{LETTERS[x.subtile]}"]
    slot, _ = place(i, cute.size(smem, mode=[2]))
    atom = cute.make_copy_atom(warp.StMatrix8x8x16bOp(True, 4 if b.tiles.queries % 16 == 0 else 2), b.dtype)
    copy = cute.make_tiled_copy_C(atom, qk_mma(b)).get_slice(x.thread)
    narrow: Any = cute.make_tensor(cute.recast_ptr(x.ds_packed.iterator, dtype=b.dtype), x.s.layout)
    cute.copy(atom, copy.retile(narrow), copy.partition_D(turned(smem)[None, None, slot]))
    cute.arch.fence_view_async_shared()
    meet(x.meeting)
