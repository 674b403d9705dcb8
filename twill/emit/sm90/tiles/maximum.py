"""Row maxima of one tile of scores, and what earlier sums shrink by: always to the true maximum, or only once it has grown enough."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from twill.emit.sm90.tiles.mma import Consumer, grow_older
from twill.emit.tiles.iteration import Iteration, index_of

__all__ = ["NEVER", "quad", "row_max", "tops", "values"]

NEVER = float("-inf")


def values(columns: int, row: int, parity: int) -> range:
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
            for v in values(columns, row, parity):
                column = 8 * (v // 4) + parity
                s[v] = cutlass.Float32(cutlass.select_(left > column, s[v], cutlass.Float32(NEVER)))


def tops(x: Consumer, s: Any) -> list[Any]:
    """The largest of a thread's scores of either row."""
    found = []
    for row in range(2):
        chains = []
        for parity in range(2):
            indices = values(x.block.tiles.keys, row, parity)
            chain = s[indices[0]]
            for v in indices[1:]:
                chain = cute.arch.fmax(chain, s[v])
            chains.append(chain)
        found.append(cute.arch.fmax(*chains))
    return found


def _finite(value: Any) -> Any:
    """0 for a row that has seen no key: there exponents would be -inf + inf."""
    return cutlass.Float32(cutlass.select_(value == NEVER, cutlass.Float32(0.0), value))


def _above(x: Consumer, one: Any, other: Any) -> Any:
    """By how many powers of two the scores of either row exceed its maximum at most."""
    return cute.arch.fmax(*(cute.math.fma(top, x.scale_log2, -x.row_max[row]) for row, top in enumerate((one, other))))


def _grow(x: Consumer, one: Any, other: Any) -> None:
    old = [x.row_max[row] for row in range(2)]
    for row, top in enumerate((one, other)):
        new = cute.arch.fmax(quad(top, cute.arch.fmax) * x.scale_log2, old[row])
        factor = cute.math.exp2(old[row] - _finite(new), fastmath=True)
        x.row_max[row], x.factor[0][row] = new, factor
        x.row_sum[row] = x.row_sum[row] * factor
    # at the first key of all rows there is nothing to rescale yet
    x.grown[0] = cutlass.Int32(cutlass.select_(cute.arch.vote_any_sync(cute.arch.fmax(*old) > NEVER), 1, 0))


@cute.jit
def _grow_where_any(x: cutlass.Constexpr, one: cutlass.Float32, other: cutlass.Float32) -> None:
    if cute.arch.vote_any_sync(_above(x, one, other) > x.keep):
        _grow(x, one, other)


def _follow(x: Consumer, largest: list[Any]) -> None:
    """Every row's maximum follows the true one, or stays if it exceeds that by at most ``keep`` powers of two; the factor is then 1."""
    for row in range(2):
        old = x.row_max[row]
        new = cute.arch.fmax(quad(largest[row], cute.arch.fmax) * x.scale_log2, old)
        if x.keep:
            new = cutlass.Float32(cutlass.select_(new - old > x.keep, new, old))
        x.row_max[row], x.factor[0][row] = new, cute.math.exp2(old - _finite(new), fastmath=True)


def row_max(x: Consumer, i: Iteration, masked: bool, scores: int = 0) -> None:
    """Row maximum of the scores and of all before, and the factor by which earlier sums shrink.

    With ``keep`` the maxima of a warp's rows stay while no score exceeds them by more than so many powers of two, which one vote asks,
    without a word between threads. Else all follow, and the sums so far are rescaled at once. That is not possible where a later op is
    to read an older factor: there each row has one in every iteration.
    """
    s = x.scores[scores]
    if masked:
        _mask(x, s, i)
    largest = tops(x, s)
    if x.waits_for_growth:
        _grow_where_any(x, *largest)
    else:
        grow_older(x.factor)
        grow_older(x.shift)
        _follow(x, largest)
    for row in range(2):
        x.shift[0][row] = _finite(x.row_max[row]) if masked else x.row_max[row]
