"""TMA descriptors: reading their 128 bytes, and boxes of a tensor as they lie in shared memory.

The layout of the descriptor was found from descriptors that CuTe DSL builds (it is not published): address in words 0-1; in word 2 rank - 1
in bits 4-6, element type in 7-10, interleave in 11-12, swizzle in 13-14; strides of dimensions 1.. in units of 16 bytes in words 3-6, their
bits 32-35 in word 7; sizes - 1 in words 8-12; box - 1 a byte each from byte 55.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from twill.emulate.errors import EmulationError

__all__ = ["Box", "TensorMap", "decode", "swizzled_chunks"]

Array = np.ndarray[Any, Any]

ELEMENT_BYTES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 8, 10: 2, 11: 4, 12: 4, 13: 4}
"""CUtensorMapDataType to bytes."""
SWIZZLE_BITS = {0: 0, 1: 1, 2: 2, 3: 3}
"""None, 32, 64 and 128 bytes: how many bits of the 16-byte chunk number are changed."""


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A decoded descriptor; dimension 0 is contiguous, strides in bytes."""

    address: int
    element_bytes: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int

    @property
    def box_bytes(self) -> int:
        """Bytes of a whole box: also those outside of the tensor count in a barrier's transactions."""
        return int(np.prod(self.box)) * self.element_bytes


@dataclass(frozen=True, slots=True)
class Box:
    """The part of a box that is inside of the tensor: offset and strides in bytes, where it lies in the box, its shape (slowest first)."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    inner: tuple[slice, ...]


@lru_cache(maxsize=256)
def decode(data: bytes) -> TensorMap:
    """Decode the 128 bytes of a descriptor.

    Raises
    ------
    EmulationError : an interleaved layout, or an element type that is not known.
    """
    words = struct.unpack("<32I", data)
    rank = (words[2] >> 4 & 7) + 1
    kind = words[2] >> 7 & 15
    if words[2] >> 11 & 3 or kind not in ELEMENT_BYTES:
        raise EmulationError(f"TMA descriptor with flags {words[2]:#x} is not understood", "extend twill/emulate/machine/tensormap.py")
    strides = [ELEMENT_BYTES[kind], *((words[3 + i] | (words[7] >> (4 * i) & 15) << 32) << 4 for i in range(rank - 1))]
    return TensorMap(
        words[0] | words[1] << 32, ELEMENT_BYTES[kind], tuple(words[8 + i] + 1 for i in range(rank)), tuple(strides),
        tuple(data[55 + i] + 1 for i in range(rank)), SWIZZLE_BITS[words[2] >> 13 & 3],
    )  # fmt: skip


def inside(tensor: TensorMap, at: tuple[int, ...]) -> Box | None:
    """The part of the box at coordinates ``at`` that exists; None if nothing does."""
    offset, shape, strides, inner = 0, [], [], []
    for start, size, box, stride in zip(at, tensor.sizes, tensor.box, tensor.strides, strict=True):
        low, high = max(start, 0), min(start + box, size)
        if low >= high:
            return None
        offset += low * stride
        shape.append(high - low)
        strides.append(stride)
        inner.append(slice(low - start, high - start))
    return Box(offset, tuple(shape[::-1]), tuple(strides[::-1]), tuple(inner[::-1]))


@lru_cache(maxsize=1024)
def swizzled_chunks(start: int, count: int, bits: int) -> slice | Array:
    """Positions, in units of 16 bytes, of ``count`` consecutive chunks from chunk ``start`` on, under a swizzle of ``bits`` bits.

    Bits 4.. of the address are xored with bits 7.. (cute::Swizzle<bits, 4, 3>; the absolute shared memory address counts).
    """
    if bits == 0:
        return slice(start, start + count)
    chunk = np.arange(start, start + count)
    return chunk ^ ((chunk >> 3) & ((1 << bits) - 1))
