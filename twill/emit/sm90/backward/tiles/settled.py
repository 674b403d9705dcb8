"""Converted values in registers of their own, at a place that the assembler keeps.

It moves conversions down to the first use of their results. An MMA in between that takes registers for its own result then finds those
of the values in fp32 still in use.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass._mlir.dialects import llvm

from twill.emit.sm90.backward.tiles.fragments import Scores

__all__ = ["settle"]


def settle(x: Scores, *names: str) -> None:
    """From here on "P" and "dS", if named, have registers of their own, and those of the values in fp32 are free.

    A branch that is never taken reads them: it would be if the number of queries were -1. It costs a comparison and the branch.
    """
    packed = {"P": x.p_packed, "dS": x.ds_packed}
    values = [packed[name][k].ir_value() for name in names for k in range(cute.size(packed[name]))]
    stores = [f"st.shared.b32 [$0+{4 * k}], ${k + 1};" for k in range(len(values))]
    text = "\n".join(["{", ".reg .pred out;", "setp.ne.s32 out, $0, -1;", "@out bra SETTLED;", *stores, "SETTLED:", "}"])
    operands = [cutlass.Int32(x.block.seqlen_q).ir_value(), *values]
    llvm.inline_asm(
        None, operands, text, ",".join(["r"] * len(operands)),
        has_side_effects=True, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT,
    )  # fmt: skip
