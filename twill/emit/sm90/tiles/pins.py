"""Hold the place of a wait among arithmetic. PTX keeps the order of the file; the assembler moves instructions within a basic block.

A pin ends the block: a loop on a value that is only known at run time, and that never loops. It costs a comparison and a branch. It
can also lose time, since the assembler then cannot fill the gaps behind a wait either: `twill build --report` says where
instructions went, and only cycles on a GPU say whether a pin pays.
"""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass._mlir.dialects import llvm

from twill.emit.sm90.tiles.mma import Consumer

__all__ = ["pin"]

SPIN = """{
.reg .pred out;
setp.ne.s32 out, $0, -1;
PIN:
@out bra PINNED;
nanosleep.u32 1;
bra PIN;
PINNED:
}"""


def pin(x: Consumer) -> None:
    """What is written before comes before in machine code, what is written behind comes behind.

    Loops while the number of queries is -1, which it never is. A trip count would not do: inside the loop over tiles the assembler
    knows that it is positive, and removes the pin.
    """
    _spin(x.block.seqlen_q)


def _spin(value: Any) -> None:
    llvm.inline_asm(
        None, [cutlass.Int32(value).ir_value()], SPIN, "r",
        has_side_effects=True, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT,
    )  # fmt: skip
