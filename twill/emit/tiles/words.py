"""Values of 16 bits in words of 32, as MMAs and SMEM take them."""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T

__all__ = ["pack"]


def pack(low: Any, high: Any, dtype: Any) -> Any:
    """Two values in the input's type as one 32-bit word, rounded to nearest even."""
    name = "bf16x2" if dtype is cutlass.BFloat16 else "f16x2"
    operands = [cutlass.Float32(high).ir_value(), cutlass.Float32(low).ir_value()]
    word = llvm.inline_asm(
        T.i32(), operands, f"cvt.rn.{name}.f32 $0, $1, $2;", "=r,f,f",
        has_side_effects=False, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT,
    )  # fmt: skip
    return cutlass.Int32(word)
