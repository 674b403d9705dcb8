"""Exponentials that do not wait for the maxima of their tile: exponents are against the old ones, and maxima are looked for among them.

Where one exceeds 2 to the ``keep``-th, which few warps ever see, its warp makes the scores of the tile again from Q and K in SMEM, lets
its maxima follow and takes the exponentials anew: an exponential that has overflowed says nothing of its score. Masked tiles, first
ones among them, have their maxima ahead.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from twill.emit.sm90.tiles.maximum import row_max, tops
from twill.emit.sm90.tiles.mma import Consumer
from twill.emit.sm90.tiles.softmax import exp2
from twill.emit.tiles.iteration import Iteration, place

__all__ = ["exp2_ahead", "row_max_behind"]


def exp2_ahead(x: Consumer, i: Iteration, masked: bool) -> None:
    """Scores become exponentials against the maxima of the tiles before or, where masked, against those of this one as well."""
    if masked:
        row_max(x, i, masked=True)
    else:
        for row in range(2):
            x.shift[0][row] = x.row_max[row]
    exp2(x, i)


def row_max_behind(x: Consumer, i: Iteration, masked: bool) -> None:
    """Let the maxima follow where an exponential is too large, and make those of the warp again."""
    if not masked:
        _again_where_any(x, i, *tops(x, x.scores[0]))


@cute.jit
def _again_where_any(x: cutlass.Constexpr, i: cutlass.Constexpr, one: cutlass.Float32, other: cutlass.Float32) -> None:
    if cute.arch.vote_any_sync(cute.arch.fmax(one, other) > 2.0**x.keep):
        x.scores[0].fill(0.0)
        _make_scores(x, i)
        row_max(x, i, masked=False)
        exp2(x, i)


@cute.jit
def _make_scores(x: cutlass.Constexpr, i: cutlass.Constexpr) -> None:
    """The thread's scores, one column of Q and K after the other."""
    slot = place(i, cute.size(x.block.k, mode=[2]))[0]
    for column in cutlass.range(x.block.tiles.columns, unroll=1):
        _add_products(x, column, slot)


def _add_products(x: Consumer, column: Any, slot: Any) -> None:
    s, lane = x.scores[0], x.thread % 32
    row = (x.thread // 32) * 16 + lane // 4
    q = [x.block.q[row + 8 * half, column, x.subtile].to(cutlass.Float32) for half in range(2)]
    for pair in range(x.block.tiles.keys // 8):
        for parity in range(2):
            k = x.block.k[8 * pair + 2 * (lane % 4) + parity, column, slot].to(cutlass.Float32)
            for half in range(2):
                v = 4 * pair + 2 * half + parity
                s[v] = cute.math.fma(q[half], k, s[v])
