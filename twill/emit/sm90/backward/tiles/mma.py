"""The MMAs of a warpgroup. They only issue; `wait_mma` waits."""

from __future__ import annotations

from typing import Any

import cutlass.cute as cute
from cutlass.cute.nvgpu import warpgroup

from twill.emit.sm90.backward.tiles.fragments import Accumulator, Gradient, Scores, dk_mma, dq_mma, dv_mma, qk_mma
from twill.emit.sm90.tiles.mma import wait_mma
from twill.emit.tiles.iteration import Iteration, place

__all__ = ["mma_dk", "mma_dp", "mma_dq", "mma_dv", "mma_qk", "wait_mma"]


def _slot(smem: Any, i: Iteration) -> Any:
    return place(i, cute.size(smem, mode=[2]))[0]


def _issue(mma: Any, out: Any, operands: tuple[tuple[Any, Any], ...], accumulate: bool) -> None:
    """One group: the products of all pairs of operands, each (value, row block, step of 16)."""
    if not accumulate:
        # what was there before is not read, which the assembler only knows if it is written here; a 0 would share its register with
        # the operand that says so, and leave it in doubt
        out.fill(float("nan"))
    warpgroup.fence()
    for a, b in operands:
        for step in range(cute.size(a, mode=[2])):
            mma.set(warpgroup.Field.ACCUMULATE, accumulate)
            cute.gemm(mma, out, a[None, None, step], b[None, None, step], out)
            accumulate = True
    warpgroup.commit_group()


def mma_qk(x: Scores, i: Iteration) -> None:
    """Issue S^T = K Q^T with the tile of Q in its slot."""
    b = x.block
    slot = _slot(b.smem["Q"], i)
    _issue(qk_mma(b), x.s, ((x.k[None, None, None, x.subtile], x.q[None, None, None, slot]),), accumulate=False)


def mma_dp(x: Scores, i: Iteration) -> None:
    """Issue dP^T = V dO^T with the tile of dO in its slot."""
    b = x.block
    slot = _slot(b.smem["dO"], i)
    _issue(qk_mma(b), x.dp, ((x.v[None, None, None, x.subtile], x.do[None, None, None, slot]),), accumulate=False)


def mma_dv(x: Accumulator, scores: Scores, i: Iteration) -> None:
    """Issue dV += P^T dO."""
    _issue(dv_mma(x.block), x.sum, ((scores.p, x.b[None, None, None, _slot(x.block.smem["dO"], i)]),), accumulate=True)


def mma_dk(x: Accumulator, scores: Scores, i: Iteration) -> None:
    """Issue dK += dS^T Q."""
    _issue(dk_mma(x.block), x.sum, ((scores.ds, x.b[None, None, None, _slot(x.block.smem["Q"], i)]),), accumulate=True)


def mma_dq(x: Gradient, i: Iteration) -> None:
    """Issue a part of dQ, over the keys of all sub-tiles."""
    b, pairs = x.block, []
    for letter, (one, two) in zip("abcdefgh", x.operands, strict=False):
        slot = _slot(b.smem[f"dS_{letter}"], i)
        pairs.append((one[None, None, None, slot], two) if b.tiles.divides == "queries" else (one, two[None, None, None, slot]))
    _issue(dq_mma(b), x.sum, tuple(pairs), accumulate=False)
