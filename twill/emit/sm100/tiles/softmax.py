"""The softmax of one tile of scores: from tensor memory to registers, and back as P, chunk by chunk."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T

from twill.emit.sm100.tiles import memory
from twill.emit.sm100.tiles.exponential import exp2_pair, polynomial_pair, uses_polynomial
from twill.emit.sm100.tiles.rows import Rows, grow_older
from twill.emit.tiles.iteration import Iteration, index_of, place
from twill.emit.tiles.words import pack

__all__ = ["WIDTH", "age_scores", "exp2", "rescale", "rescale_if_grown", "row_max", "row_sum", "take_max"]

NEVER = float("-inf")
WIDTH = 32
"""Columns of a transfer from or to tensor memory."""
CHAINS = 4
"""Independent chains of a maximum or a sum."""


def _lowest_bits(count: Any) -> Any:
    """A word whose ``count`` lowest bits are set; none if ``count`` is negative, all from 32 on (shl shifts everything out)."""
    word = llvm.inline_asm(
        T.i32(), [cutlass.max(count, cutlass.Int32(0)).ir_value()], "{\n.reg .b32 m;\nshl.b32 m, -1, $1;\nnot.b32 $0, m;\n}", "=r,r",
        has_side_effects=False, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT,
    )  # fmt: skip
    return cutlass.Int32(word)


def _mask(x: Rows, s: Any, i: Iteration) -> None:
    """Scores of keys that the row may not see become -inf. A word of bits a transfer: the bits can be moved to predicates at once."""
    b = x.block
    # 0 for all we know, but not for all the assembler knows: without it, it holds the words below in registers from tile to tile
    limit = b.seqlen_k + cutlass.min(x.work.first_row, cutlass.Int32(0))
    if b.causal:
        position = x.work.first_row + b.tiles.sub_rows * x.subtile + x.thread
        limit = cutlass.min(limit, position + 1 + b.seqlen_k - b.seqlen_q)
    left = limit - x.work.key_tile(index_of(i)) * b.tiles.keys
    for at in range(0, b.tiles.keys, WIDTH):
        seen = _lowest_bits(left - at)
        for column in range(min(WIDTH, b.tiles.keys - at)):
            bit = 1 << column
            s[at + column] = cutlass.Float32(
                cutlass.select_((seen & (bit - (1 << 32) if bit >> 31 else bit)) != 0, s[at + column], cutlass.Float32(NEVER))
            )


def row_max(x: Rows, i: Iteration, masked: bool, keep: float = 0.0) -> None:
    """Take the scores of an iteration out of tensor memory; row maximum of them and all before, and the factor by which old sums shrink.

    With ``keep`` > 0 the old maximum stays, and the factor is exactly 1, while the true one exceeds it by at most ``keep`` powers of 2.
    The factor also goes to its slot in SMEM, if another role rescales.
    """
    b, s = x.block, age_scores(x)
    address = x.address(x.scores_buffer, place(i, b.stages(x.scores_buffer))[0])
    for at, width in memory.transfer_widths(b.tiles.keys, WIDTH):
        memory.load(address, s, at, width)
    memory.loaded(s)
    if masked:
        _mask(x, s, i)
    chains = [s[c] for c in range(CHAINS)]
    for v in range(CHAINS, b.tiles.keys, 2 * CHAINS):
        for c in range(CHAINS):
            for at in (v + 2 * c, v + 2 * c + 1):
                if at < b.tiles.keys:
                    chains[c] = cute.arch.fmax(chains[c], s[at])
    take_max(x, i, cute.arch.fmax(cute.arch.fmax(chains[0], chains[1]), cute.arch.fmax(chains[2], chains[3])), masked, keep)


def age_scores(x: Rows) -> Any:
    """Room for the scores of a new iteration."""
    grow_older(x.scores)
    grow_older(x.factor)
    grow_older(x.scaled_max)
    return x.scores[0]


def take_max(x: Rows, i: Iteration, new: Any, masked: bool, keep: float) -> None:
    """Go over to the largest score of an iteration, ``new``: the rest of `row_max`."""
    b, old = x.block, x.row_max[0]
    new = cute.arch.fmax(new, old)
    growth = (new - old) * x.scale_log2
    if keep:
        # NaN where no key was seen yet: not grown, and a factor of 1
        grown = growth > keep
        new = cutlass.Float32(cutlass.select_(grown, new, old))
        growth = cutlass.Float32(cutlass.select_(grown, growth, cutlass.Float32(0.0)))
    x.row_max[0] = new
    finite = new
    if masked:
        finite = cutlass.Float32(cutlass.select_(new == NEVER, cutlass.Float32(0.0), new))
        if not keep:
            growth = (finite - old) * x.scale_log2
    x.factor[0][0] = cute.math.exp2(-growth, fastmath=True)
    x.scaled_max[0][0] = finite * x.scale_log2
    if x.factors in b.storage:
        b.rows_of(x.factors, place(i, b.stages(x.factors))[0])[x.thread] = x.factor[0][0]


def exp2(x: Rows, i: Iteration, chunk: int = 0, age: int = 0) -> None:
    """A chunk of scores becomes exp2(score * scale - row maximum * scale), in registers, and P of the input's type in tensor memory."""
    b, s = x.block, x.scores[age]
    scale, shift = (x.scale_log2,) * 2, (-x.scaled_max[age][0],) * 2
    address = x.address(x.scores_buffer, place(i, b.stages(x.scores_buffer))[0])
    first, width = b.tiles.chunk(chunk)
    packed = cute.make_rmem_tensor(width // 2, cutlass.Int32)
    for at, columns in memory.transfer_widths(width // 2, WIDTH // 2):
        for v in range(at, at + columns):
            column = first + 2 * v
            scaled = cute.arch.fma_packed_f32x2((s[column], s[column + 1]), scale, shift)
            power = polynomial_pair if uses_polynomial(column // 2, b.tiles.poly_share) else exp2_pair
            s[column], s[column + 1] = power(scaled)
            packed[v] = pack(s[column], s[column + 1], b.dtype)
        memory.store(address + first // 2, packed, at, columns)
    memory.stored()


def row_sum(x: Rows, i: Iteration, age: int = 0) -> None:
    """The row sum, earlier tiles scaled by the factor."""
    s = x.scores[age]
    chains = [(s[2 * c], s[2 * c + 1]) for c in range(CHAINS)]
    for v in range(2 * CHAINS, x.block.tiles.keys, 2):
        c = v // 2 % CHAINS
        chains[c] = cute.arch.add_packed_f32x2(chains[c], (s[v], s[v + 1]))
    one, two = cute.arch.add_packed_f32x2(chains[0], chains[1]), cute.arch.add_packed_f32x2(chains[2], chains[3])
    total = cute.arch.add_packed_f32x2(one, two)
    x.row_sum[0] = cute.math.fma(x.row_sum[0], x.factor[age][0], total[0] + total[1])


def _factor(x: Rows, i: Iteration, age: int) -> Any:
    """The row's factor, from the slot in SMEM if another role made it. All threads of the warp have to have it before one arrives."""
    b = x.block
    if x.factors not in b.storage:
        return x.factor[age][0]
    return b.rows_of(x.factors, place(i, b.stages(x.factors))[0])[x.thread]


def _scale(x: Rows, factor: Any) -> None:
    address, pair = x.address(x.output), (factor, factor)
    for at, width in memory.transfer_widths(x.block.tiles.columns_v, WIDTH):
        o = cute.make_rmem_tensor(width, cutlass.Float32)
        memory.load(address + at, o, 0, width)
        memory.loaded(o)
        for v in range(0, width, 2):
            o[v], o[v + 1] = cute.arch.mul_packed_f32x2((o[v], o[v + 1]), pair)
        memory.store(address + at, o, 0, width)
    memory.stored()


@cute.jit
def _rescale(x: cutlass.Constexpr, index: cutlass.Int32, factor: cutlass.Float32) -> None:
    if index > 0:
        _scale(x, factor)


@cute.jit
def _rescale_where_any(x: cutlass.Constexpr, index: cutlass.Int32, factor: cutlass.Float32) -> None:
    # the vote also stands for the warp's having read its factors
    if (index > 0) & cute.arch.vote_any_sync(factor < 1.0):
        _scale(x, factor)


def rescale(x: Rows, i: Iteration, age: int = 0) -> None:
    """O times the factor of its row, once there is an O."""
    factor = _factor(x, i, age)
    cute.arch.sync_warp()
    _rescale(x, index_of(i), factor)


def rescale_if_grown(x: Rows, i: Iteration, age: int = 0) -> None:
    """O times the factor of its row, skipped by warps in which all factors are 1."""
    _rescale_where_any(x, index_of(i), _factor(x, i, age))
