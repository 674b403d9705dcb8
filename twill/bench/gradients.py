"""When gradients are right: what they are in float64, how far rounding may take each element, and what PyTorch makes in the same type."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from twill.bench.judge import EXPONENT, LSE, SMALLEST, UNIT, flash
from twill.bench.reference import ROWS, hidden, same_dtype, shared

__all__ = ["Truth", "judge_gradients", "theirs", "truth"]

NAMES = ("dq", "dk", "dv")
SUMS = 2.0**-20
"""What products and sums in fp32 add, in relation to the magnitudes that are summed."""
NOTHING = 1e-6
"""Gradients below are 0 but for rounding: those of q and k where every query sees one key."""


@dataclass(frozen=True, slots=True)
class Truth:
    """By name: gradients in float64, of an output in float64; gradients for the output that was given; how far an element may be off those.

    A kernel rounds P, dS and its results to the operands' type; it is given the rounded output and the log-sum-exp.
    """

    exact: dict[str, torch.Tensor]
    given: dict[str, torch.Tensor]
    bounds: dict[str, torch.Tensor]


def truth(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor, scale: float, causal: bool, o: torch.Tensor
) -> Truth:  # fmt: skip
    """In float64, a slice of query rows at a time."""
    (_, seqlen_q, heads, _), (seqlen_k, kv_heads) = q.shape, k.shape[1:3]
    unit, smallest = UNIT[q.dtype], SMALLEST[q.dtype]
    wide_k, wide_v = shared(k.double(), heads), shared(v.double(), heads)
    like = {"dq": q.double(), "dk": wide_k, "dv": wide_v}
    exact, given, bounds = ({name: torch.zeros_like(x) for name, x in like.items()} for _ in range(3))
    for first in range(0, seqlen_q if seqlen_k else 0, ROWS):
        rows = slice(first, min(first + ROWS, seqlen_q))
        wide_q, wide_do, wide_o = q[:, rows].double(), do[:, rows].double(), o[:, rows].double()
        scores = torch.einsum("bihd,bjhd->bhij", wide_q, wide_k) * scale
        top = float(scores.abs().max())
        if causal:
            scores.masked_fill_(hidden(first, scores.shape[2], seqlen_q, seqlen_k, q.device), -math.inf)
        sums = torch.logsumexp(scores, dim=3, keepdim=True).clamp_min(-1e300)
        p = torch.exp(scores - sums)
        dp = torch.einsum("bihd,bjhd->bhij", wide_do, wide_v)
        own = p * (dp - (p * dp).sum(dim=3, keepdim=True))
        ds = p * (dp - (wide_o * wide_do).sum(dim=3).transpose(1, 2)[..., None])
        summed = torch.einsum("bihd,bjhd->bhij", wide_do.abs(), wide_v.abs())
        summed += (wide_o * wide_do).abs().sum(dim=3).transpose(1, 2)[..., None]
        wrong = EXPONENT * (1 + top) + LSE * (1 + float(sums.where(sums > -1e299, 0.0).abs().max()))
        off = (unit + wrong) * ds.abs() + SUMS * p * summed + smallest
        off = off.masked_fill(p == 0, 0.0)
        for into, x in ((exact, own), (given, ds), (bounds, off)):
            a, b = (wide_q.abs(), wide_k.abs()) if into is bounds else (wide_q, wide_k)
            into["dq"][:, rows] += scale * torch.einsum("bhij,bjhd->bihd", x, b)
            into["dk"] += scale * torch.einsum("bhij,bihd->bjhd", x, a)
        for into in (exact, given):
            into["dv"] += torch.einsum("bhij,bihd->bjhd", p, wide_do)
        bounds["dv"] += torch.einsum("bhij,bihd->bjhd", (unit + wrong + SUMS) * p + smallest * (p > 0), wide_do.abs())
    for found in (exact, given, bounds):
        found |= {name: found[name].unflatten(2, (kv_heads, -1)).sum(dim=3) for name in ("dk", "dv")} if kv_heads else {}
    bounds = {name: 1.02 * (x + unit * given[name].abs()) + smallest + 1e-30 for name, x in bounds.items()}
    return Truth(exact, given, bounds)


def theirs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor, scale: float, causal: bool) -> dict[str, torch.Tensor]:
    """By PyTorch's autograd, with everything in the type of the operands."""
    with torch.enable_grad():
        q, k, v = operands = tuple(x.detach().clone().requires_grad_() for x in (q, k, v))
        o = same_dtype(q, k, v, scale, causal)
        if not o.requires_grad:
            return {name: torch.zeros_like(x) for name, x in zip(NAMES, operands, strict=True)}
        return dict(zip(NAMES, torch.autograd.grad(o, operands, do), strict=True))


def judge_gradients(
    operands: tuple[torch.Tensor, torch.Tensor, torch.Tensor], do: torch.Tensor, scale: float, causal: bool, o: torch.Tensor,
    found: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> dict[str, float]:  # fmt: skip
    """How much of each rule's allowance was used, by the worst of the three gradients: FlashAttention's rule, and that of elements.

    Raises
    ------
    AssertionError : more than all of one, or a gradient that is not finite.
    """
    right, other = truth(*operands, do, scale, causal, o), theirs(*operands, do, scale, causal)
    used: dict[str, dict[str, float]] = {"flash": {}, "element": {}}
    for name, x in zip(NAMES, found, strict=True):
        assert bool(torch.isfinite(x).all()), f"{int((~torch.isfinite(x)).sum())} of {x.numel()} elements of {name} are not finite"
        error = (x.double() - right.given[name]).abs() / right.bounds[name]
        used["element"][name] = float(error.max()) if x.numel() else 0.0
        exact = right.exact[name]
        if x.numel() and float(exact.abs().max()) > NOTHING:
            used["flash"][name] = flash(x, other[name], exact)
    over = {rule: {n: round(value, 3) for n, value in by.items() if not value <= 1} for rule, by in used.items()}
    assert not any(over.values()), f"the error is this many times what is allowed: {over} (all: {used})"
    return {rule: max(by.values(), default=0.0) for rule, by in used.items()}
