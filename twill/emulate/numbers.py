"""Half-precision numbers and random inputs in numpy, and attention in double precision to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

__all__ = ["Expected", "Inputs", "Shape", "attention", "from_bits", "inputs", "to_bits"]

Array = np.ndarray[Any, Any]
Dtype = Literal["bf16", "fp16"]

RISE = 64
"""Keys after which rising scores have grown: fewer than a tile has."""

ROUNDOFF = {"bf16": 2.0**-8, "fp16": 2.0**-11}
"""Largest relative error of rounding to a type."""


@dataclass(frozen=True, slots=True)
class Shape:
    """An attention problem. With ``rising`` keys the largest score of a row grows from tile to tile, as a kernel walks them, beyond any
    threshold for rescaling.
    """

    batch: int
    seqlen_q: int
    seqlen_k: int
    heads: int
    kv_heads: int
    head_dim: int
    head_dim_v: int
    causal: bool
    dtype: Dtype
    rising: bool = False


@dataclass(frozen=True, slots=True)
class Inputs:
    """Tensors of (batch, seq, heads, dim) as 16-bit patterns."""

    q: Array
    k: Array
    v: Array
    scale: float


@dataclass(frozen=True, slots=True)
class Expected:
    """Output, log-sum-exp, and how far each output may be off.

    The bound is rigorous up to fp32 arithmetic: a kernel rounds each P to the type (relative error u) and the output again, so that
    an element errs by at most u (sum of p |v| + |o|) in relation to exact arithmetic on the same inputs.
    """

    o: Array
    lse: Array
    bound: Array


def to_bits(values: Array, dtype: Dtype) -> Array:
    """Round to nearest even; the bit patterns."""
    if dtype == "fp16":
        return values.astype(np.float16).view(np.uint16)
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + (np.uint32(0x7FFF) + ((bits >> 16) & 1))) >> 16).astype(np.uint16)


def from_bits(bits: Array, dtype: Dtype) -> Array:
    """The values, as doubles."""
    if dtype == "fp16":
        return bits.view(np.float16).astype(np.float64)
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def inputs(shape: Shape, seed: int) -> Inputs:
    """Normal values; keys of the first half are scaled up, so that a kernel that walks from the last key has to rescale."""
    random = np.random.default_rng(seed)

    def tensor(seqlen: int, heads: int, dim: int) -> Array:
        return random.standard_normal((shape.batch, seqlen, heads, dim))

    q, k = tensor(shape.seqlen_q, shape.heads, shape.head_dim), tensor(shape.seqlen_k, shape.kv_heads, shape.head_dim)
    v = tensor(shape.seqlen_k, shape.kv_heads, shape.head_dim_v)
    if shape.rising:
        k *= 4 * (1 + (shape.seqlen_k - 1 - np.arange(shape.seqlen_k)) // RISE)[None, :, None, None]
    else:
        k[:, : shape.seqlen_k // 2] *= 2.5
    return Inputs(to_bits(q, shape.dtype), to_bits(k, shape.dtype), to_bits(v, shape.dtype), shape.head_dim**-0.5)


def attention(given: Inputs, shape: Shape) -> Expected:
    """softmax(Q K^T * scale) V in double precision, head by head; rows without keys give 0 and -inf."""
    q, k, v = (from_bits(x, shape.dtype) for x in (given.q, given.k, given.v))
    o = np.zeros((shape.batch, shape.seqlen_q, shape.heads, shape.head_dim_v))
    bound = np.zeros_like(o)
    lse = np.full((shape.batch, shape.heads, shape.seqlen_q), -np.inf)
    share = shape.heads // shape.kv_heads
    row, key = np.arange(shape.seqlen_q)[:, None], np.arange(shape.seqlen_k)[None]
    hidden = key > row + shape.seqlen_k - shape.seqlen_q if shape.causal else np.zeros((shape.seqlen_q, shape.seqlen_k), bool)
    some = ~hidden.all(axis=1) if shape.seqlen_k else np.zeros(shape.seqlen_q, bool)
    u = ROUNDOFF[shape.dtype]
    for b in range(shape.batch):
        for h in range(shape.heads):
            if not some.any():
                continue
            s = np.where(hidden, -np.inf, q[b, :, h] @ k[b, :, h // share].T * given.scale)[some]
            top = s.max(axis=1, keepdims=True)
            p = np.exp(s - top)
            total = p.sum(axis=1, keepdims=True)
            p /= total
            o[b, some, h] = p @ v[b, :, h // share]
            magnitude = p @ np.abs(v[b, :, h // share])
            bound[b, some, h] = 1.02 * u * (magnitude + np.abs(o[b, some, h])) + 1e-4 * magnitude
            lse[b, h, some] = (top + np.log(total))[:, 0]
    return Expected(o, lse, bound + 1e-7)
