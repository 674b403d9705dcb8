"""The attention backward in double precision, and how far a kernel may be off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from twill.emulate.numbers import ROUNDOFF, Inputs, Shape, attention, from_bits, inputs, to_bits

__all__ = ["Gradients", "Problem", "gradients", "problem"]

Array = np.ndarray[Any, Any]

SINGLE = 2e-5
"""What exponentials, products and sums in fp32 add, in relation to the magnitudes that are summed."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Inputs of a backward kernel: those of the forward, what came out of it, and dO; LSE in fp32, the rest as 16-bit patterns."""

    forward: Inputs
    o: Array
    lse: Array
    do: Array


@dataclass(frozen=True, slots=True)
class Gradients:
    """dQ, dK and dV by name, and for each how far an element may be off.

    A kernel rounds P, dS and its results to the type (relative error u each), everything else is fp32.
    """

    values: dict[str, Array]
    bounds: dict[str, Array]


def problem(shape: Shape, seed: int) -> Problem:
    """Random inputs, with the output of an exact forward rounded to the type."""
    given = inputs(shape, seed)
    expected = attention(given, shape)
    do: Array = np.asarray(np.random.default_rng(seed + 1).standard_normal(expected.o.shape))
    return Problem(given, to_bits(expected.o, shape.dtype), expected.lse.astype(np.float32), to_bits(do, shape.dtype))


def gradients(given: Problem, shape: Shape) -> Gradients:
    """dQ, dK and dV in double precision, head by head; dK and dV are summed over the heads of Q that share them."""
    forward, u = given.forward, ROUNDOFF[shape.dtype]
    q, k, v, o, do = (from_bits(x, shape.dtype) for x in (forward.q, forward.k, forward.v, given.o, given.do))
    values = {"dq": np.zeros_like(q), "dk": np.zeros_like(k), "dv": np.zeros_like(v)}
    bounds = {name: np.zeros_like(x) for name, x in values.items()}
    row, key = np.arange(shape.seqlen_q)[:, None], np.arange(shape.seqlen_k)[None]
    hidden = key > row + shape.seqlen_k - shape.seqlen_q if shape.causal else np.zeros((shape.seqlen_q, shape.seqlen_k), bool)
    share = shape.heads // shape.kv_heads
    for b in range(shape.batch):
        for h in range(shape.heads):
            own, kv = (b, slice(None), h), (b, slice(None), h // share)
            lse = given.lse[b, h].astype(np.float64)[:, None]
            scores = np.where(hidden | np.isneginf(lse), -np.inf, q[own] @ k[kv].T * forward.scale)
            p = np.exp(scores - np.where(np.isneginf(lse), 0, lse))
            total = (o[own] * do[own]).sum(axis=1, keepdims=True)
            dp = do[own] @ v[kv].T
            ds = p * (dp - total)
            off = u * np.abs(ds) + SINGLE * p * (
                np.abs(do[own]) @ np.abs(v[kv]).T + (np.abs(o[own]) * np.abs(do[own])).sum(1, keepdims=True)
            )
            values["dv"][kv] += p.T @ do[own]
            bounds["dv"][kv] += (u + SINGLE) * (p.T @ np.abs(do[own]))
            values["dk"][kv] += forward.scale * (ds.T @ q[own])
            bounds["dk"][kv] += forward.scale * (off.T @ np.abs(q[own]))
            values["dq"][own] += forward.scale * (ds @ k[kv])
            bounds["dq"][own] += forward.scale * (off @ np.abs(k[kv]))
    return Gradients(values, {name: 1.02 * (bound + u * np.abs(values[name])) + 1e-6 for name, bound in bounds.items()})
