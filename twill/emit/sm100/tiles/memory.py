"""Tensor memory to registers and back: a row a thread, a warp for its 32 lanes. Both are asynchronous until waited for.

Addresses are those of the warp's first lane. PTX is written out: a copy of CuTe DSL packs what it loads into pairs before any wait.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T

__all__ = ["lanes", "load", "loaded", "store", "stored", "tied", "transfer_widths"]

LANE = 1 << 16
"""Lanes are in the upper half of an address of tensor memory, columns in the lower."""
TIED = 32
"""Values that go through one empty instruction."""


def lanes(warp: Any) -> Any:
    """What a warp adds to addresses: warps 4k to 4k + 3 can reach 32 lanes each."""
    return (warp % 4) * (32 * LANE)


def transfer_widths(columns: int, widest: int) -> list[tuple[int, int]]:
    """First column and width of each transfer: powers of two up to ``widest``."""
    found, at = [], 0
    while at < columns:
        width = widest
        while width > columns - at:
            width //= 2
        found.append((at, width))
        at += width
    return found


def _asm(result: Any, operands: list[Any], text: str, constraints: str) -> Any:
    return llvm.inline_asm(
        result, operands, text, constraints, has_side_effects=True, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT
    )


def _names(first: int, count: int) -> str:
    return ", ".join(f"${first + k}" for k in range(count))


def _floats(into: Any, at: int, values: Any, count: int) -> None:
    for k in range(count):
        into[at + k] = cutlass.Float32(llvm.extractvalue(T.f32(), values, [k]))


def load(address: Any, into: Any, at: int, columns: int) -> None:
    """Begin to load columns ``at`` and following from ``address`` on into the same values of a register tensor of floats."""
    text = f"tcgen05.ld.sync.aligned.32x32b.x{columns}.b32 {{{_names(0, columns)}}}, [${columns}];"
    struct = llvm.StructType.get_literal([T.f32()] * columns)
    _floats(into, at, _asm(struct, [cutlass.Int32(address + at).ir_value()], text, ",".join(["=f"] * columns + ["r"])), columns)


def loaded(values: Any) -> None:
    """Wait for all loads of the warp, ``values`` being what they brought.

    The values go through an empty instruction behind the wait, so that nothing that reads them can come before it.
    """
    cute.arch.fence_view_async_tmem_load()
    tied(values)


def tied(values: Any) -> None:
    """Values of loads that were waited for, each behind the wait."""
    for at in range(0, cute.size(values), TIED):
        count = min(TIED, cute.size(values) - at)
        operands = [values[at + k].ir_value() for k in range(count)]
        constraints = ",".join(["=f"] * count + [str(k) for k in range(count)])
        _floats(values, at, _asm(llvm.StructType.get_literal([T.f32()] * count), operands, "", constraints), count)


def store(address: Any, values: Any, at: int, columns: int) -> None:
    """Begin to store 32-bit values ``at`` and following to the same columns from ``address`` on."""
    kind = "f" if values.element_type is cutlass.Float32 else "r"
    operands = [cutlass.Int32(address + at).ir_value(), *(values[at + k].ir_value() for k in range(columns))]
    text = f"tcgen05.st.sync.aligned.32x32b.x{columns}.b32 [$0], {{{_names(1, columns)}}};"
    _asm(None, operands, text, ",".join(["r"] + [kind] * columns))


def stored() -> None:
    """Wait for all stores of the warp."""
    cute.arch.fence_view_async_tmem_store()
