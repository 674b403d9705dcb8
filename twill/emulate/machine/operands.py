"""Operands of matrix instructions in shared memory, found through their descriptors.

Descriptor fields (cute/arch/mma_sm100_desc.hpp; the one of sm_90 fits in it): start >> 4 in bits 0-13, leading byte offset >> 4 in
16-29, stride byte offset >> 4 in 32-45, base offset in 49-51, swizzle in 61-63 (0 none, 2 128 bytes, 4 64, 6 32). Canonical layouts are
those of cute/atom/mma_traits_sm90_gmma.hpp. The swizzle acts on the absolute address (fits all kernels run so far; no source).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from twill.emulate.errors import EmulationError

__all__ = ["Tile", "tile", "to_float"]

Array = np.ndarray[Any, Any]

SPAN = {2: 128, 4: 64, 6: 32, 0: 16}
"""Bytes of a row of the swizzle atom."""
SWIZZLE = {2: 7, 4: 3, 6: 1, 0: 0}


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """An operand of ``rows`` x ``depth`` elements: element indices in shared memory, and the 4-byte granules they cover."""

    elements: Array
    granules: slice | Array
    pages: slice
    end: int
    """First byte behind the operand."""


@lru_cache(maxsize=4096)
def tile(descriptors: tuple[int, ...], first_row: int, rows: int, depth: int, transposed: bool, size: int) -> Tile:
    """The operand of consecutive instructions, each with ``depth`` elements along K; ``transposed``: rows, not K, are contiguous.

    Raises
    ------
    EmulationError : a base offset that is not zero.
    """
    parts = [_addresses(d, first_row, rows, depth, transposed, size) for d in descriptors]
    addresses = np.concatenate(parts, axis=1)
    touched = np.unique(addresses >> 2)
    whole = touched[-1] - touched[0] + 1 == touched.size
    granules: slice | Array = slice(int(touched[0]), int(touched[-1]) + 1) if whole else touched
    shift = size.bit_length() - 1
    return Tile(addresses >> shift, granules, slice(int(touched[0]) >> 8, (int(touched[-1]) >> 8) + 1), 4 * int(touched[-1]) + 4)


def _addresses(descriptor: int, first_row: int, rows: int, depth: int, transposed: bool, size: int) -> Array:
    start, leading, stride = (descriptor & 0x3FFF) << 4, (descriptor >> 16 & 0x3FFF) << 4, (descriptor >> 32 & 0x3FFF) << 4
    mode = descriptor >> 61 & 7
    if descriptor >> 49 & 7:
        raise EmulationError("a matrix descriptor with a base offset is not supported", "align the operand to 1024 bytes")
    if mode not in SPAN:
        raise EmulationError(f"matrix descriptor swizzle {mode} is not supported", "use 128, 64, 32 bytes or none")
    span = SPAN[mode]
    row = np.arange(first_row, first_row + rows)[:, None]
    k = np.arange(depth)[None, :]
    if not transposed:
        if mode:
            at = start + row % 8 * span + row // 8 * stride + k * size
        else:
            at = start + row % 8 * 16 + row // 8 * stride + k * size % 16 + k * size // 16 * leading
    elif mode:
        wide = span // size
        at = start + row % wide * size + row // wide * leading + k % 8 * span + k // 8 * stride
    else:
        wide = 16 // size
        at = start + row % wide * size + row // wide * stride + k % 8 * 16 + k // 8 * leading
    return at ^ ((at >> 7 & SWIZZLE[mode]) << 4)


def to_float(values: Array, kind: str) -> Array:
    """Elements as fp32."""
    if kind == "bf16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    if kind == "f16":
        return values.view(np.float16).astype(np.float32)
    if kind == "tf32":
        return (values & np.uint32(0xFFFFE000)).view(np.float32)
    raise EmulationError(f"matrix operands of type {kind} are not supported", "extend twill/emulate/machine/operands.py")
