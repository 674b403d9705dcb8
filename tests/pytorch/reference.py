"""Attention in float64 with numpy, row by row, sharing no code with anything else."""

from __future__ import annotations

import math

import numpy as np
import torch


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool) -> tuple[np.ndarray, np.ndarray]:
    """O and log-sum-exp of every row."""
    a, b, c = (x.to(torch.float64).numpy() for x in (q, k, v))
    batch, seqlen_q, heads, _ = a.shape
    seqlen_k, kv_heads = b.shape[1], b.shape[2]
    o, lse = np.zeros((batch, seqlen_q, heads, c.shape[3])), np.full((batch, heads, seqlen_q), -math.inf)
    for n in range(batch):
        for h in range(heads):
            shared = h * kv_heads // heads
            for i in range(seqlen_q):
                last = min(seqlen_k, i + 1 + seqlen_k - seqlen_q) if causal else seqlen_k
                if last <= 0:
                    continue
                scores = b[n, :last, shared] @ a[n, i, h] * scale
                top = scores.max()
                weights = np.exp(scores - top)
                o[n, i, h] = weights @ c[n, :last, shared] / weights.sum()
                lse[n, h, i] = top + math.log(weights.sum())
    return o, lse
