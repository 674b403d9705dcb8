"""Rows of an accumulator from registers straight to global memory, with neither SMEM nor a barrier.

A quad of threads has eight elements of a row, two each. Neighbours exchange halves of two such groups, so that each stores four elements
at once and the quad whole sectors of 32 bytes.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from twill.emit.tiles.words import pack

__all__ = ["row_words", "store_row"]

VECTOR = 4
"""Elements of a store."""


def row_words(values: Any, row: int, columns: int, dtype: Any, odd: Any) -> Any:
    """What a thread stores of a row, in words of two elements: of the row it holds first (0) or of the one 8 further down (1).

    ``values`` are the accumulator of a warpgroup with 64 rows and ``columns`` columns; ``odd`` is 1 for odd threads.
    """
    words = cute.make_rmem_tensor(columns // 8, cutlass.Int32)
    for pair in range(columns // 16):
        low, high = (pack(values[8 * pair + 4 * g + 2 * row], values[8 * pair + 4 * g + 2 * row + 1], dtype) for g in range(2))
        got = cute.arch.shuffle_sync_bfly(cutlass.Int32(cutlass.select_(odd == 1, low, high)), offset=1)
        words[2 * pair] = cutlass.Int32(cutlass.select_(odd == 1, got, low))
        words[2 * pair + 1] = cutlass.Int32(cutlass.select_(odd == 1, high, got))
    return words


def _store_words(words: Any, dtype: Any, out: Any, place: Any) -> None:
    """Two words to the four elements of a row that are ``place`` times four behind its first."""
    values = cute.make_tensor(cute.recast_ptr(words, dtype=dtype), VECTOR)
    cute.autovec_copy(values, cute.local_tile(out, (VECTOR,), (place,)))


@cute.jit
def _store_if_even(words: cute.Tensor, dtype: cutlass.Constexpr, out: cute.Tensor, place: cutlass.Int32, odd: cutlass.Int32) -> None:
    """The last two words, which for odd threads lie beyond the head dim."""
    if odd == 0:
        _store_words(words.iterator + (cute.size(words) - 2), dtype, out, place)


def store_row(words: Any, dtype: Any, out: Any, head_dim: int, lane: Any, odd: Any) -> None:
    """Store the words of a row to ``out``, a row of ``head_dim`` elements."""
    place, pairs = 2 * odd + (lane % 4) // 2, cute.size(words) // 2
    for pair in range(head_dim // 16):
        _store_words(words.iterator + 2 * pair, dtype, out, 4 * pair + place)
    if head_dim % 16:
        _store_if_even(words, dtype, out, 4 * (pairs - 1) + place, odd)
