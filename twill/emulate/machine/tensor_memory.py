"""Tensor memory of a block on sm_100: 128 lanes of 512 columns of 4 bytes. PTX ISA 9.7.16.2 (layout, addressing, allocation).

An address has the lane in bits 16-31 and the column in bits 0-15. Accesses are recorded by quarter of 32 lanes and column: a warp reaches
one quarter, w mod 4, and every access of the shapes known here takes a quarter's lanes together.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from twill.emulate.machine.barriers import Counter
from twill.emulate.machine.clocks import Clocks, Shadow

__all__ = ["COLUMNS", "TensorMemory", "granules"]

COLUMNS = 512
Array = np.ndarray[Any, Any]


@lru_cache(maxsize=1024)
def granules(quarters: tuple[int, ...], column: int, count: int) -> Array:
    """Granule numbers of ``count`` columns in some quarters."""
    return np.concatenate([np.arange(q * COLUMNS + column, q * COLUMNS + column + count) for q in quarters])


class TensorMemory(Counter):
    """Contents, and which columns are allocated."""

    def __init__(self, clocks: Clocks) -> None:
        super().__init__()
        self.words = np.zeros((128, COLUMNS), np.uint32)
        self.shadow = Shadow(4 * COLUMNS, clocks)
        self.allocated: dict[int, int] = {}
        self.permitted = True

    def allocate(self, columns: int) -> int | None:
        """First column of the lowest free range that is aligned to its size, None if there is none."""
        for begin in range(0, COLUMNS - columns + 1, columns):
            if all(begin + columns <= b or b + n <= begin for b, n in self.allocated.items()):
                self.allocated[begin] = columns
                return begin
        return None

    def holds(self, column: int, count: int) -> bool:
        """True if all these columns are allocated."""
        inside = [(b, b + n) for b, n in sorted(self.allocated.items())]
        at = column
        for begin, end in inside:
            if begin <= at < end:
                at = end
        return at >= column + count
