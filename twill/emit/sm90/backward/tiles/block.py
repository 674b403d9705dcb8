"""Shapes of the Hopper backward kernels: a warpgroup has 64 keys, one wgmma high, as rows of S^T."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutlass import tensor_utils
from cutlass.utils import hopper_helpers

from twill.emit.tiles.backward import block

__all__ = ["HEIGHT", "LETTERS", "Tiles"]

HEIGHT = 64
"""Rows of one wgmma."""
LETTERS = "abcdefgh"
QUAD_FLOATS = 4
"""Values of a fragment that lie side by side in the sum for dQ: two columns of a row, and of the row 8 below."""
ROUND = 512
"""Floats of one quad of each thread of a warpgroup."""


class Tiles(block.Tiles):
    """Tile shapes of a Hopper kernel."""

    def layouts(self, dtype: Any, stages: Mapping[str, int]) -> Mapping[str, Any]:
        row = tensor_utils.LayoutEnum.ROW_MAJOR

        def rows(count: int, columns: int, slots: int) -> Any:
            return hopper_helpers.make_smem_layout_a(row, (count, HEIGHT, columns), dtype, slots)

        made = {
            "Q": rows(self.queries, self.columns, stages["Q"]), "dO": rows(self.queries, self.columns_v, stages["dO"]),
            "K": rows(self.sub_keys, self.columns, self.subtiles), "V": rows(self.sub_keys, self.columns_v, self.subtiles),
        }  # fmt: skip
        return made | {f"dS_{x}": rows(self.queries, self.sub_keys, stages[f"dS_{x}"]) for x in LETTERS[: self.subtiles]}

    @property
    def dq_shape(self) -> tuple[int, int]:
        """Rows and columns of the MMA of a part of dQ, or of dQ^T."""
        if self.divides == "queries":
            return self.queries // self.parts, self.columns
        return self.columns // self.parts, self.queries

    def dq_index(self, query: Any, chunk: Any) -> tuple[Any, int, int]:
        # a fragment's quad g of rows r and r + 8 is in round g of its warpgroup's, at thread 4 (r mod 8) + its pair of columns
        rows, columns = self.dq_shape
        part_floats, rounds = rows * columns, columns // 8
        if self.divides == "queries":
            part, row = query // rows, query % rows
            return part * part_floats + self._at(row, rounds) + chunk * ROUND, QUAD_FLOATS, 1
        part, row, pair = chunk * 8 // rows, chunk * 8 % rows, query % 8 // 2
        first = part * part_floats + self._at(row, rounds) + query // 8 * ROUND + pair * QUAD_FLOATS + query % 2
        return first, 8 * QUAD_FLOATS, 4 * QUAD_FLOATS

    @staticmethod
    def _at(row: Any, rounds: int) -> Any:
        """Place of the first value of a row."""
        block, within = row // HEIGHT, row % HEIGHT
        return block * rounds * ROUND + (within // 16 * 32 + within % 8 * 4) * QUAD_FLOATS + within % 16 // 8 * 2
