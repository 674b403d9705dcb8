"""A bit-level model of the attention that a kernel computes: a second oracle beside double precision.

Double precision has to allow for every rounding of P, which hides what is subtly wrong. The model rounds where the kernel rounds: each P
(and dS) to the type, relative to the maximum that the row holds when its tile comes, tiles from the last to the first; exponentials are
exact, or the polynomial of those columns that have one. What remains is single precision, in an order that nobody promises: it moves a
result a little, and now and then a rounding to the other side. Both are worked out element by element, so that an output has to be one
of the few numbers, mostly one, that its interval rounds to.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twill.build.kernelfile import read
from twill.emulate.gradients import Problem
from twill.emulate.numbers import Dtype, Inputs, Shape, from_bits, to_bits

__all__ = ["Algorithm", "Beside", "Modelled", "backward", "beside", "forward", "of_kernel", "units_apart"]

Array = np.ndarray[Any, Any]

SINGLE = 2.0**-22
"""What a sum of products in fp32 errs by, in relation to the sum of their magnitudes: four roundings, more than it ever took."""
POLYNOMIAL = (0.6932829022407532, 0.2422109693288803, 0.05500893294811249)
"""Coefficients of f, f^2, f^3 beside 1: what the kernels for sm_100a say 2^f is, |f| <= 1/2."""
JUMP = 2.1e-4
"""Of the polynomial from one end to the other: where the nearest integer is in doubt."""
WARP_ROWS = 16
"""Rows of a warp of a Hopper warpgroup, for which one vote decides whether maxima follow; they begin at multiples of that."""
LN_2, LOG2_E = float(np.log(2)), float(1 / np.log(2))


@dataclass(frozen=True, slots=True)
class Algorithm:
    """How a kernel computes: ``keys`` of a tile; the old maximum is kept while the true one exceeds it by at most ``keep`` powers of 2
    (0: never), and so are those of ``together`` rows on end, of which all follow where one has to; of the pairs of a tile's columns
    ``poly_share`` are polynomials, evenly spread."""

    keys: int
    keep: float = 0.0
    together: int = 1
    poly_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Modelled:
    """A result, and how far single precision may have moved it before it was rounded to the type; infinite where a choice is in doubt."""

    value: Array
    off: Array


@dataclass(frozen=True, slots=True)
class Beside:
    """An output beside its model: elements that are equal, largest distance in units of the last place, elements out of the interval."""

    equal: int
    size: int
    units: int
    outside: Array


def of_kernel(kernel: Path) -> Algorithm:
    """Read from an emitted kernel: its constant TILES, and what it says of maxima."""
    file = read(kernel)
    fields: dict[str, Any] = file.shape
    calls = [x for x in ast.walk(ast.parse(file.text)) if isinstance(x, ast.Call) and any(k.arg == "keep" for k in x.keywords)]
    kept = [k.value.value for x in calls for k in x.keywords if k.arg == "keep"]  # type: ignore[attr-defined]
    votes = any(ast.unparse(x.func) == "tiles.consumer" and all(k.arg != "factors" for k in x.keywords) for x in calls)
    together = WARP_ROWS if votes else 1
    return Algorithm(int(fields["keys"]), float(max(kept, default=0.0)), together, float(fields.get("poly_share", 0.0)))


def units_apart(a: Array, b: Array) -> Array:
    """Units in the last place between bit patterns of 16 bits."""

    def ordered(bits: Array) -> Array:
        wide = bits.astype(np.int64)
        found: Array = np.where(wide > 0x7FFF, -(wide & 0x7FFF), wide)
        return found

    apart: Array = np.abs(ordered(a) - ordered(b))
    return apart


def beside(got: Array, model: Modelled, dtype: Dtype) -> Beside:
    """Compare bit patterns with a model."""
    with np.errstate(invalid="ignore", over="ignore"):
        low, high = (from_bits(to_bits(model.value + s * model.off, dtype), dtype) for s in (-1, 1))
        values = from_bits(got, dtype)
        # -0 and 0 are one value here, and NaN is in no interval
        outside = ~((values >= low) & (values <= high)) & np.isfinite(model.off)
    apart = units_apart(got, to_bits(model.value, dtype))
    return Beside(int((apart == 0).sum()), apart.size, int(apart.max(initial=0)), outside)


def _rounded(x: Array, off: Array, dtype: Dtype) -> tuple[Array, Array]:
    """Values rounded to the type, and how far each may be from that if it was off before."""
    value, low, high = (from_bits(to_bits(y, dtype), dtype) for y in (x, x - off, x + off))
    return value, np.maximum(high - value, value - low)


def _exponential(x: Array, off: Array, columns: Array, share: float) -> tuple[Array, Array]:
    """2^x and how far it may be off, where x may be off; ``columns`` are those within the tile."""
    with np.errstate(invalid="ignore"):
        y = np.exp2(x)
        error = y * LN_2 * off
        if share:
            pair = columns // 2
            chosen = ((pair + 1) * share).astype(np.int64) > (pair * share).astype(np.int64)
            clamped = np.maximum(x, -127.0)
            whole = np.rint(clamped)
            f = clamped - whole
            c1, c2, c3 = POLYNOMIAL
            approximate = np.where(clamped > -127.0, np.exp2(whole) * (1 + f * (c1 + f * (c2 + f * c3))), 0.0)
            y = np.where(chosen, approximate, y)
            error = np.where(chosen, approximate * (off + SINGLE) + np.where(np.abs(np.abs(f) - 0.5) <= off, JUMP * approximate, 0), error)
    return y, error


def _scores(q: Array, k: Array, scale: float, hidden: Array) -> tuple[Array, Array]:
    """Scores in powers of 2, and how far each may be off."""
    factor = scale * LOG2_E
    off = SINGLE * factor * (np.abs(q) @ np.abs(k).T)
    return np.where(hidden, -np.inf, q @ k.T * factor), off


def forward(given: Inputs, shape: Shape, how: Algorithm) -> tuple[Modelled, Modelled]:
    """O and the log-sum-exp."""
    q, k, v = (from_bits(x, shape.dtype) for x in (given.q, given.k, given.v))
    o = np.zeros((shape.batch, shape.seqlen_q, shape.heads, shape.head_dim_v))
    lse = np.full((shape.batch, shape.heads, shape.seqlen_q), -np.inf)
    o_off, lse_off = np.zeros_like(o), np.zeros_like(lse)
    hidden = _hidden(shape)
    for b in range(shape.batch if shape.seqlen_k else 0):
        for h in range(shape.heads):
            kv = (b, slice(None), h // (shape.heads // shape.kv_heads))
            scores, off = _scores(q[b, :, h], k[kv], given.scale, hidden)
            own = (b, slice(None), h)
            o[own], o_off[own], lse[b, h], lse_off[b, h] = _rows(scores, off, v[kv], shape.dtype, how)
    return Modelled(o, o_off), Modelled(lse, lse_off)


def _hidden(shape: Shape) -> Array:
    row, key = np.arange(shape.seqlen_q)[:, None], np.arange(shape.seqlen_k)[None]
    whole = np.zeros((shape.seqlen_q, shape.seqlen_k), bool)
    return key > row + shape.seqlen_k - shape.seqlen_q if shape.causal else whole


def _rows(scores: Array, off: Array, v: Array, dtype: Dtype, how: Algorithm) -> tuple[Array, Array, Array, Array]:
    """One head: O and the log-sum-exp, each with how far it may be off."""
    rows, keys = scores.shape
    top = np.full(rows, -np.inf)
    total, sums, moved, magnitude = np.zeros(rows), np.zeros((rows, v.shape[1])), np.zeros((rows, v.shape[1])), np.zeros((rows, v.shape[1]))
    worst, doubt = np.zeros(rows), np.zeros(rows, bool)
    for begin in range((keys - 1) // how.keys * how.keys, -1, -how.keys):
        tile = slice(begin, min(begin + how.keys, keys))
        new = np.maximum(top, scores[:, tile].max(axis=1))
        worst = np.maximum(worst, off[:, tile].max(axis=1))
        with np.errstate(invalid="ignore"):
            growth = new - top
            if how.keep:
                grows = _together(growth > how.keep, how.together)
                near = np.isfinite(growth) & (np.abs(growth - how.keep) <= 2 * worst + SINGLE * np.abs(new))
                sure = _together((growth > how.keep) & ~near, how.together)
                doubt |= _together(near, how.together) & ~sure
                new = np.where(grows, new, top)
            shrink = np.where(np.isneginf(top), 0.0, np.exp2(top - new))
        shift = np.where(np.isneginf(new), 0.0, new)[:, None]
        x = scores[:, tile] - shift
        error = off[:, tile] + worst[:, None] + SINGLE * np.where(np.isfinite(x), np.abs(x) + np.abs(shift), 0)
        p, p_off = _exponential(x, error, np.arange(tile.stop - begin), how.poly_share)
        rounded, unsure = _rounded(p, p_off, dtype)
        total = total * shrink + p.sum(axis=1)
        sums = sums * shrink[:, None] + rounded @ v[tile]
        moved = moved * shrink[:, None] + unsure @ np.abs(v[tile])
        magnitude = magnitude * shrink[:, None] + rounded @ np.abs(v[tile])
        top = new
    some = total > 0
    safe = np.where(some, total, 1.0)
    o = sums / safe[:, None]
    relative = 4 * SINGLE + LN_2 * worst[:, None]
    o_off = (moved + relative * magnitude) / safe[:, None]
    o_off[doubt] = np.inf
    lse = np.where(some, (np.where(some, top, 0) + np.log2(safe)) * LN_2, -np.inf)
    lse_off = np.where(some, 2 * worst + 8 * SINGLE * (1 + np.abs(np.where(some, lse, 0))), 0)
    return o, o_off, lse, lse_off


def _together(chosen: Array, rows: int) -> Array:
    """Rows of which one of the ``rows`` that begin at a multiple of that is chosen."""
    groups = np.arange(len(chosen)) // rows
    found: Array = np.bincount(groups, weights=chosen)[groups] > 0
    return found


def backward(given: Problem, shape: Shape) -> dict[str, Modelled]:
    """dQ, dK and dV. The order of tiles does not matter but to single precision."""
    f = given.forward
    q, k, v, o, do = (from_bits(x, shape.dtype) for x in (f.q, f.k, f.v, given.o, given.do))
    values = {"dq": np.zeros_like(q), "dk": np.zeros_like(k), "dv": np.zeros_like(v)}
    offs = {name: np.zeros_like(x) for name, x in values.items()}
    hidden, share = _hidden(shape), shape.heads // shape.kv_heads
    for b in range(shape.batch):
        for h in range(shape.heads):
            own, kv = (b, slice(None), h), (b, slice(None), h // share)
            lse = given.lse[b, h].astype(np.float64)[:, None] * LOG2_E
            scores, off = _scores(q[own], k[kv], f.scale, hidden | np.isneginf(lse))
            x = scores - np.where(np.isneginf(lse), 0, lse)
            error = off + SINGLE * np.where(np.isfinite(x), np.abs(scores) + np.abs(lse), 0)
            p, p_off = _exponential(x, error, np.arange(shape.seqlen_k), 0.0)
            size = np.abs(do[own]) @ np.abs(v[kv]).T + (np.abs(o[own]) * np.abs(do[own])).sum(1, keepdims=True)
            ds = p * (do[own] @ v[kv].T - (o[own] * do[own]).sum(1, keepdims=True))
            ds_off = SINGLE * p * size + np.abs(ds) * (LN_2 * error + SINGLE)
            p_rounded, p_unsure = _rounded(p, p_off, shape.dtype)
            ds_rounded, ds_unsure = _rounded(ds, ds_off, shape.dtype)
            for name, place, left, unsure, right, scale in (
                ("dv", kv, p_rounded.T, p_unsure.T, do[own], 1.0), ("dk", kv, ds_rounded.T, ds_unsure.T, q[own], f.scale),
                ("dq", own, ds_rounded, ds_unsure, k[kv], f.scale),
            ):  # fmt: skip
                values[name][place] += scale * (left @ right)
                offs[name][place] += scale * ((unsure + 4 * SINGLE * np.abs(left)) @ np.abs(right))
    return {name: Modelled(values[name], offs[name]) for name in values}
