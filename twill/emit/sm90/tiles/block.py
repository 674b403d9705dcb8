"""Shapes of the Hopper kernels: sub-tiles of 64 query rows, one wgmma high."""

from __future__ import annotations

from typing import Any

from cutlass import tensor_utils
from cutlass.utils import hopper_helpers

from twill.emit.tiles import block

__all__ = ["ROWS", "Tiles"]

ROWS = 64
"""Query rows of a sub-tile: those of one wgmma of one warpgroup."""


class Tiles(block.Tiles):
    """Tile shapes of a Hopper kernel."""

    @property
    def sub_rows(self) -> int:
        return ROWS

    @property
    def missing_rows_first(self) -> bool:
        return self.subtiles > 1

    @property
    def stores_registers(self) -> bool:
        return True

    @property
    def takes_turns(self) -> bool:
        return True

    def layouts(self, dtype: Any, k_stages: int, v_stages: int) -> tuple[Any, Any, Any, Any]:
        row, column = tensor_utils.LayoutEnum.ROW_MAJOR, tensor_utils.LayoutEnum.COL_MAJOR
        q = hopper_helpers.make_smem_layout_a(row, (ROWS, self.keys, self.columns), dtype, self.subtiles)
        k = hopper_helpers.make_smem_layout_b(row, (ROWS, self.keys, self.columns), dtype, k_stages)
        v = hopper_helpers.make_smem_layout_b(column, (ROWS, self.columns_v, self.keys), dtype, v_stages)
        o = hopper_helpers.make_smem_layout_a(row, (ROWS, self.keys, self.columns_v), dtype, 1)
        return q, k, v, o
