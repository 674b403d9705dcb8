"""The row maximum out of the load of tensor memory: the scores arrive with the largest of each transfer."""

from __future__ import annotations

import functools
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T

from twill.emit.sm100.tiles import memory, softmax
from twill.emit.sm100.tiles.rows import Rows
from twill.emit.tiles.iteration import Iteration, place

__all__ = ["row_max"]


def _load_with_max(address: Any, into: Any, at: int, columns: int) -> Any:
    """`twill.emit.sm100.tiles.memory.load`; the largest of the values, to be read once they are."""
    names = ", ".join(f"${k}" for k in range(columns))
    text = f"tcgen05.ld.red.sync.aligned.32x32b.x{columns}.max.f32 {{{names}}}, ${columns}, [${columns + 1}];"
    struct = llvm.StructType.get_literal([T.f32()] * (columns + 1))
    values = llvm.inline_asm(
        struct, [cutlass.Int32(address + at).ir_value()], text, ",".join(["=f"] * (columns + 1) + ["r"]),
        has_side_effects=True, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT,
    )  # fmt: skip
    for k in range(columns):
        into[at + k] = cutlass.Float32(llvm.extractvalue(T.f32(), values, [k]))
    return cutlass.Float32(llvm.extractvalue(T.f32(), values, [columns]))


def row_max(x: Rows, i: Iteration, masked: bool, keep: float = 0.0) -> None:
    """As `twill.emit.sm100.tiles.softmax.row_max`. Where scores are masked, the largest that arrived may be one of them: it is not used."""
    if masked:
        softmax.row_max(x, i, masked, keep)
        return
    b, s = x.block, softmax.age_scores(x)
    address = x.address(x.scores_buffer, place(i, b.stages(x.scores_buffer))[0])
    transfers = memory.transfer_widths(b.tiles.keys, softmax.WIDTH)
    largest = cute.make_rmem_tensor(len(transfers), cutlass.Float32)
    for n, (at, width) in enumerate(transfers):
        largest[n] = _load_with_max(address, s, at, width)
    memory.loaded(s)
    memory.tied(largest)
    softmax.take_max(x, i, functools.reduce(cute.arch.fmax, [largest[n] for n in range(len(transfers))]), masked, keep)
