"""Global memory: the tensors of a launch at made-up addresses, with what has been written and by which block."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["PARAMETERS", "Allocation", "GlobalMemory"]

Array = np.ndarray[Any, Any]

PARAMETERS = 0x6000_0000_0000
"""Where the parameters of the kernel appear in the generic address space."""
FIRST = 0x7F00_0000_0000
GAP = 1 << 21


@dataclass(eq=False)
class Allocation:
    """A tensor in global memory: its bytes, and for each byte whether it has a value and which block wrote it (-1: none)."""

    name: str
    base: int
    size: int
    data: Array
    valid: Array
    owner: Array
    output: bool

    def array(self, dtype: Any) -> Array:
        """The contents as a flat array of a type."""
        found: Array = self.data[: self.size].view(dtype)
        return found


class GlobalMemory:
    """Allocations far apart, so that a wrong address hits none."""

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self._bases: list[int] = []

    def add(self, name: str, data: Array, *, output: bool = False, valid: bool | None = None) -> Allocation:
        """Give a tensor a place; its bytes are copied. An output holds nothing valid unless ``valid``."""
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        room = np.zeros(max(16, -(-flat.size // 16) * 16), np.uint8)
        room[: flat.size] = flat
        last = self.allocations[-1] if self.allocations else None
        base = FIRST if last is None else -(-(last.base + last.data.size + GAP) // GAP) * GAP
        good = (not output) if valid is None else valid
        made = Allocation(name, base, flat.size, room, np.full(room.size, good), np.full(room.size, -1, np.int32), output)
        self.allocations.append(made)
        self._bases.append(base)
        return made

    def find(self, address: int, size: int) -> tuple[Allocation, int] | None:
        """Allocation and offset of ``size`` bytes, None if they are not all inside of one."""
        i = bisect_right(self._bases, address) - 1
        if i < 0:
            return None
        found = self.allocations[i]
        offset = address - found.base
        return (found, offset) if offset + size <= found.size else None
