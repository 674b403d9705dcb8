"""What attention is, twice: in float64, and as PyTorch computes it in the type of the operands. Both a slice of query rows at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

__all__ = ["ROWS", "Exact", "exact", "hidden", "same_dtype", "shared"]

ROWS = 512


@dataclass(frozen=True, slots=True)
class Exact:
    """Output and log-sum-exp in float64, and what bounds a kernel's error.

    ``weight`` is the average of ``|v|`` that ``o`` is of ``v``, ``top`` the largest scaled score in magnitude.
    """

    o: torch.Tensor
    lse: torch.Tensor
    weight: torch.Tensor
    top: float


def hidden(first: int, rows: int, seqlen_q: int, seqlen_k: int, device: torch.device) -> torch.Tensor:
    """Keys that queries from ``first`` on may not see."""
    query = torch.arange(first, first + rows, device=device)[:, None]
    return torch.arange(seqlen_k, device=device)[None, :] > query + seqlen_k - seqlen_q


def shared(x: torch.Tensor, heads: int) -> torch.Tensor:
    """K or V with a head for every head of Q."""
    return x.repeat_interleave(heads // x.shape[2], dim=2) if x.shape[2] != heads else x


def exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool) -> Exact:
    """In float64."""
    (batch, seqlen_q, heads, _), seqlen_k = q.shape, k.shape[1]
    wide_k, wide_v = shared(k.double(), heads), shared(v.double(), heads)
    o = q.new_zeros((batch, seqlen_q, heads, v.shape[3]), dtype=torch.float64)
    weight = torch.zeros_like(o)
    lse = q.new_full((batch, heads, seqlen_q), -math.inf, dtype=torch.float64)
    top = 0.0
    for first in range(0, seqlen_q if seqlen_k else 0, ROWS):
        rows = slice(first, min(first + ROWS, seqlen_q))
        scores = torch.einsum("bihd,bjhd->bhij", q[:, rows].double(), wide_k) * scale
        top = max(top, float(scores.abs().max()))
        if causal:
            scores.masked_fill_(hidden(first, scores.shape[2], seqlen_q, seqlen_k, q.device), -math.inf)
        sums = torch.logsumexp(scores, dim=3)
        p = torch.exp(scores - sums.clamp_min(-1e300)[..., None])
        lse[:, :, rows] = sums
        o[:, rows] = torch.einsum("bhij,bjhd->bihd", p, wide_v)
        weight[:, rows] = torch.einsum("bhij,bjhd->bihd", p, wide_v.abs())
    return Exact(o, lse, weight, top)


def same_dtype(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool) -> torch.Tensor:
    """Scores, probabilities and output all in the type of the operands."""
    (batch, seqlen_q, heads, _), seqlen_k = q.shape, k.shape[1]
    wide_k, wide_v = shared(k * scale, heads), shared(v, heads)
    o = q.new_zeros((batch, seqlen_q, heads, v.shape[3]))
    for first in range(0, seqlen_q if seqlen_k else 0, ROWS):
        rows = slice(first, min(first + ROWS, seqlen_q))
        scores = torch.einsum("bihd,bjhd->bhij", q[:, rows], wide_k)
        if causal:
            unseen = hidden(first, scores.shape[2], seqlen_q, seqlen_k, q.device)
            p = scores.masked_fill(unseen, -math.inf).softmax(dim=3).masked_fill(unseen.all(dim=1)[:, None], 0.0)
        else:
            p = scores.softmax(dim=3)
        o[:, rows] = torch.einsum("bhij,bjhd->bihd", p, wide_v)
    return o
