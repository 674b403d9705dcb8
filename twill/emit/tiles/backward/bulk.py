"""Bulk copies of contiguous bytes without a descriptor, each issued by one thread."""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass._mlir.dialects import llvm

__all__ = ["add_to_global", "issue", "load_bytes"]


def issue(text: str, constraints: str, operands: list[Any]) -> None:
    """An instruction without a result."""
    llvm.inline_asm(
        None, operands, text, constraints, has_side_effects=True, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT
    )  # fmt: skip


def load_bytes(to: Any, source: Any, size: int, barrier: Any) -> None:
    """``size`` bytes from global memory to SMEM; their arrival counts at ``barrier``. All multiples of 16 bytes."""
    operands = [to.toint().ir_value(), source.toint().ir_value(), cutlass.Int32(size).ir_value(), barrier.toint().ir_value()]
    issue("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];", "r,l,r,r", operands)


ADD = """{
.reg .pred here;
setp.ne.s32 here, $3, 0;
@here cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [$0], [$1], $2;
@here cp.async.bulk.commit_group;
}"""


def add_to_global(to: Any, source: Any, size: int, here: Any) -> None:
    """Add ``size`` bytes of fp32 in SMEM to those in global memory, as a bulk group of the threads where ``here`` is not 0.

    A predicate rather than a branch: beside MMAs that run on, the assembler takes a branch for a reason to serialise all of them.
    All multiples of 16 bytes.
    """
    operands = [to.toint().ir_value(), source.toint().ir_value(), cutlass.Int32(size).ir_value(), cutlass.Int32(here).ir_value()]
    issue(ADD, "l,r,r,r", operands)
