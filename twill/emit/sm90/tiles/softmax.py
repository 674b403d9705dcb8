"""The softmax of one tile of scores in registers, behind its row maxima: exponentials, sums, P, and O rescaled."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from twill.emit.sm90.tiles.maximum import values
from twill.emit.sm90.tiles.mma import Consumer
from twill.emit.tiles.iteration import Iteration
from twill.emit.tiles.words import pack

__all__ = ["convert", "exp2", "rescale", "rescale_if_grown", "row_sum"]


def exp2(x: Consumer, i: Iteration, scores: int = 0, factors: int = 0) -> None:
    """Scores become exp2(score * scale - row maximum * scale), in place."""
    s, shift = x.scores[scores], x.shift[factors]
    for v in range(x.block.tiles.keys // 2):
        s[v] = cute.math.exp2(cute.math.fma(s[v], x.scale_log2, -shift[(v // 2) % 2]), fastmath=True)


def row_sum(x: Consumer, i: Iteration, scores: int = 0, factors: int = 0) -> None:
    """The thread's share of the row sum, earlier tiles scaled by the factor unless that is done where it grows."""
    s = x.scores[scores]
    for row in range(2):
        chains = []
        for parity in range(2):
            indices = values(x.block.tiles.keys, row, parity)
            chain = s[indices[0]]
            for v in indices[1:]:
                chain = chain + s[v]
            chains.append(chain)
        total = chains[0] + chains[1]
        if x.waits_for_growth:
            x.row_sum[row] = x.row_sum[row] + total
        else:
            x.row_sum[row] = cute.math.fma(x.row_sum[row], x.factor[factors][row], total)


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


def _rescale_once(x: Consumer) -> None:
    _scale(x.o, x.factor[0])
    x.grown[0] = cutlass.Int32(0)


@cute.jit
def _rescale_where_grown(x: cutlass.Constexpr) -> None:
    if x.grown[0] != 0:
        _rescale_once(x)


@cute.jit
def _rescale_where_any(x: cutlass.Constexpr, factors: cutlass.Constexpr) -> None:
    factor = x.factor[factors]
    if cute.arch.vote_any_sync((factor[0] < 1.0) | (factor[1] < 1.0)):
        _scale(x.o, factor)


def rescale_if_grown(x: Consumer, i: Iteration, factors: int = 0) -> None:
    """O times the factor of its row, skipped by warps in which no maximum has grown."""
    if x.waits_for_growth:
        _rescale_where_grown(x)
    else:
        _rescale_where_any(x, factors)
