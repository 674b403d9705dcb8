"""Tensor memory to registers and back, a row a thread, by whole warpgroups. Both are asynchronous until waited for."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import tcgen05

from twill.emit.sm100.tiles.block import ROWS

__all__ = ["load", "loaded", "store", "stored", "transfer_widths"]

LANE = 1 << 16
"""Lanes are in the upper half of an address of tensor memory, columns in the lower."""


def transfer_widths(columns: int, widest: int) -> list[tuple[int, int]]:
    """First column and width of each transfer: powers of two from 16 to ``widest``."""
    found, at = [], 0
    while at < columns:
        width = widest
        while width > columns - at:
            width //= 2
        found.append((at, width))
        at += width
    return found


def _rows(address: Any, columns: int, dtype: Any) -> Any:
    pointer = cute.make_ptr(dtype, address, cute.AddressSpace.tmem, assumed_align=16)
    return cute.make_tensor(pointer, cute.make_layout((ROWS, columns), stride=(LANE, 1)))


def load(thread: Any, address: Any, into: Any, at: int, columns: int) -> None:
    """Begin to load columns from ``address`` on into values ``at`` and following of a register tensor."""
    tmem = _rows(address + at, columns, cutlass.Float32)
    atom = cute.make_copy_atom(tcgen05.copy.Ld32x32bOp(tcgen05.copy.Repetition(columns)), cutlass.Float32)
    copy = tcgen05.make_tmem_copy(atom, tmem).get_slice(thread)
    source = copy.partition_S(tmem)
    shape = copy.partition_D(cute.make_identity_tensor((ROWS, columns))).shape
    cute.copy(copy, source, cute.make_tensor(into.iterator + at, cute.make_layout(shape)))


def loaded() -> None:
    """Wait for all loads of the warp."""
    cute.arch.fence_view_async_tmem_load()


def store(thread: Any, address: Any, values: Any, at: int, columns: int) -> None:
    """Begin to store 32-bit values ``at`` and following to the columns from ``address`` on."""
    tmem = _rows(address + at, columns, values.element_type)
    atom = cute.make_copy_atom(tcgen05.copy.St32x32bOp(tcgen05.copy.Repetition(columns)), values.element_type)
    copy = tcgen05.make_tmem_copy(atom, tmem).get_slice(thread)
    to = copy.partition_D(tmem)
    shape = copy.partition_S(cute.make_identity_tensor((ROWS, columns))).shape
    cute.copy(copy, cute.make_tensor(values.iterator + at, cute.make_layout(shape)), to)


def stored() -> None:
    """Wait for all stores of the warp."""
    cute.arch.fence_view_async_tmem_store()
