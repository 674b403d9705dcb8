"""exp2 of pairs of values: on the exponential unit, or as a polynomial on the FMA pipe, which takes two values an instruction."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T

__all__ = ["exp2_pair", "polynomial_pair", "uses_polynomial"]

Pair = tuple[Any, Any]

MAGIC = 12582912.0
"""1.5 * 2^23: added to a float, it leaves the nearest integer in the lowest bits."""
LEAST = -127.0
"""Below, results are 0 for our purposes; here the exponent's arithmetic gives exactly 0."""
POLYNOMIAL = (0.6932829022407532, 0.2422109693288803, 0.05500893294811249)
"""1 + c1 f + c2 f^2 + c3 f^3 has a relative error of at most 1.02e-4 for 2^f, |f| <= 1/2: minimax with the constant held at 1, so that
2^LEAST is 0. bf16 rounds at 2e-3, fp16 at 2.4e-4."""


def uses_polynomial(pair: int, share: float) -> bool:
    """Whether a pair of a row is among the ``share`` that are polynomials: evenly spread."""
    return int((pair + 1) * share) > int(pair * share)


def exp2_pair(x: Pair) -> Pair:
    """2 to the x on the exponential unit."""
    return cute.math.exp2(x[0], fastmath=True), cute.math.exp2(x[1], fastmath=True)


def _with_exponent(mantissa: Any, rounded: Any) -> Any:
    operands = [cutlass.Float32(mantissa).ir_value(), cutlass.Float32(rounded).ir_value()]
    word = llvm.inline_asm(
        T.f32(), operands, "{\n.reg .b32 n;\nshl.b32 n, $2, 23;\nadd.s32 $0, $1, n;\n}", "=r,r,r",
        has_side_effects=False, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT,
    )  # fmt: skip
    return cutlass.Float32(word)


def polynomial_pair(x: Pair) -> Pair:
    """2 to the x, x at most 127: the integer part goes to the exponent's bits, the rest through the polynomial."""
    magic, (c1, c2, c3) = (cutlass.Float32(MAGIC),) * 2, ((cutlass.Float32(c),) * 2 for c in POLYNOMIAL)
    x = (cute.arch.fmax(x[0], cutlass.Float32(LEAST)), cute.arch.fmax(x[1], cutlass.Float32(LEAST)))
    rounded = cute.arch.add_packed_f32x2(x, magic)
    f = cute.arch.sub_packed_f32x2(x, cute.arch.sub_packed_f32x2(rounded, magic))
    y = cute.arch.fma_packed_f32x2(f, c3, c2)
    y = cute.arch.fma_packed_f32x2(f, y, c1)
    y = cute.arch.fma_packed_f32x2(f, y, (cutlass.Float32(1.0),) * 2)
    return _with_exponent(y[0], rounded[0]), _with_exponent(y[1], rounded[1])
