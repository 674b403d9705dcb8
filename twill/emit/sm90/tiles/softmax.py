"""The softmax of one tile of scores in registers, piece by piece."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from twill.emit.sm90.tiles.mma import Consumer, grow_older
from twill.emit.tiles.iteration import Iteration, index_of
from twill.emit.tiles.words import pack

__all__ = ["convert", "exp2", "quad", "rescale", "rescale_if_grown", "row_max", "row_sum"]

NEVER = float("-inf")


def _values(columns: int, row: int, parity: int) -> range:
    """Indices of a thread's values of one row, of even or odd columns."""
    return range(2 * row + parity, columns // 2, 4)


def quad(value: Any, combine: Any) -> Any:
    """Combine a value over the four threads that share a row."""
    for offset in (1, 2):
        value = combine(value, cute.arch.shuffle_sync_bfly(value, offset=offset))
    return value


def _mask(x: Consumer, s: Any, i: Iteration) -> None:
    """Scores of keys that a row may not see become -inf."""
    b, columns = x.block, x.block.tiles.keys
    lane = x.thread % 32
    first = x.work.key_tile(index_of(i)) * columns + (lane % 4) * 2
    for row in range(2):
        limit = b.seqlen_k
        if b.causal:
            position = x.work.first_row + (x.thread // 32) * 16 + lane // 4 + 8 * row
            limit = cutlass.min(limit, position + 1 + b.seqlen_k - b.seqlen_q)
        left = limit - first
        for parity in range(2):
            for v in _values(columns, row, parity):
                column = 8 * (v // 4) + parity
                s[v] = cutlass.Float32(cutlass.select_(left > column, s[v], cutlass.Float32(NEVER)))


def row_max(x: Consumer, i: Iteration, masked: bool, scores: int = 0, keep: float = 0.0) -> None:
    """Row maximum of the scores and of all before, and the factor by which earlier sums shrink.

    With ``keep`` > 0 the old maximum stays, and the factor is exactly 1, while the true one exceeds it by at most ``keep`` powers of 2.
    """
    s = x.scores[scores]
    grow_older(x.factor)
    grow_older(x.scaled_max)
    if masked:
        _mask(x, s, i)
    columns = x.block.tiles.keys
    for row in range(2):
        chains = []
        for parity in range(2):
            indices = _values(columns, row, parity)
            chain = s[indices[0]]
            for v in indices[1:]:
                chain = cute.arch.fmax(chain, s[v])
            chains.append(chain)
        old = x.row_max[row]
        new = cute.arch.fmax(quad(cute.arch.fmax(*chains), cute.arch.fmax), old)
        if keep:
            new = cutlass.Float32(cutlass.select_((new - old) * x.scale_log2 > keep, new, old))
        x.row_max[row] = new
        finite = new
        if masked:
            finite = cutlass.Float32(cutlass.select_(new == NEVER, cutlass.Float32(0.0), new))
        x.factor[0][row] = cute.math.exp2((old - finite) * x.scale_log2, fastmath=True)
        x.scaled_max[0][row] = finite * x.scale_log2


def exp2(x: Consumer, i: Iteration, scores: int = 0, factors: int = 0) -> None:
    """Scores become exp2(score * scale - row maximum * scale), in place."""
    s, shift = x.scores[scores], x.scaled_max[factors]
    for v in range(x.block.tiles.keys // 2):
        s[v] = cute.math.exp2(cute.math.fma(s[v], x.scale_log2, -shift[(v // 2) % 2]), fastmath=True)


def row_sum(x: Consumer, i: Iteration, scores: int = 0, factors: int = 0) -> None:
    """The thread's share of the row sum, earlier tiles scaled by the factor."""
    s = x.scores[scores]
    for row in range(2):
        chains = []
        for parity in range(2):
            indices = _values(x.block.tiles.keys, row, parity)
            chain = s[indices[0]]
            for v in indices[1:]:
                chain = chain + s[v]
            chains.append(chain)
        x.row_sum[row] = cute.math.fma(x.row_sum[row], x.factor[factors][row], chains[0] + chains[1])


def convert(x: Consumer, i: Iteration, scores: int = 0) -> None:
    """Exponentials in the input's type, in the order of the A operand (which is that of the accumulator).

    Packed at once: carried as single 16-bit values through a loop they would take twice the registers.
    """
    s = x.scores[scores]
    for v in range(0, x.block.tiles.keys // 2, 2):
        x.packed[v // 2] = pack(s[v], s[v + 1], x.block.dtype)


def _scale(o: Any, factor: Any) -> None:
    for v in range(cute.size(o)):
        o[v] = o[v] * factor[(v // 2) % 2]


def rescale(x: Consumer, i: Iteration, factors: int = 0) -> None:
    """O times the factor of its row."""
    _scale(x.o, x.factor[factors])


@cute.jit
def _rescale_where_any(x: cutlass.Constexpr, factors: cutlass.Constexpr) -> None:
    factor = x.factor[factors]
    if cute.arch.vote_any_sync((factor[0] < 1.0) | (factor[1] < 1.0)):
        _scale(x.o, factor)


def rescale_if_grown(x: Consumer, i: Iteration, factors: int = 0) -> None:
    """O times the factor of its row, skipped by warps in which all factors are 1."""
    _rescale_where_any(x, factors)
