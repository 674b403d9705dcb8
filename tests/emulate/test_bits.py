"""The bit-level model: what it rounds, what it leaves open, and what it sees that double precision cannot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from twill.build.kernelfile import find
from twill.emulate.bits import Algorithm, Modelled, backward, beside, forward, of_kernel, units_apart
from twill.emulate.gradients import gradients, problem
from twill.emulate.numbers import Dtype, Inputs, Shape, attention, from_bits, inputs, to_bits

HOW = Algorithm(keys=64, keep=8.0)
SHAPE = Shape(1, 100, 300, 2, 1, 64, 64, True, "bf16")


def test_read_from_kernels() -> None:
    assert of_kernel(find("sm90_attn_fwd_d128")) == Algorithm(keys=80, keep=8.0, together=16)
    assert of_kernel(find("sm100_attn_fwd_d64")) == Algorithm(keys=128, keep=8.0, poly_share=0.3125)


def test_units_cross_zero() -> None:
    a, b = np.array([0, 0x8000, 1, 0x3F80], np.uint16), np.array([0x8000, 1, 0x8001, 0x3F82], np.uint16)
    np.testing.assert_array_equal(units_apart(a, b), [0, 1, 2, 2])


def test_an_interval_allows_what_it_rounds_to() -> None:
    """0x3F80 is 1 and one unit above is 1 + 2^-7: in the middle both are allowed, near 1 only 1."""
    middle, near = 1 + 2.0**-8, 1 + 2.0**-10
    model = Modelled(np.array([middle, middle, near, near, near]), np.array([1e-6, 1e-6, 1e-6, 1e-6, np.inf]))
    got = np.array([0x3F80, 0x3F81, 0x3F80, 0x3F81, 0x4000], np.uint16)
    found = beside(got, model, "bf16")
    np.testing.assert_array_equal(found.outside, [False, False, False, True, False])
    not_a_number = beside(np.array([0x7FC0], np.uint16), Modelled(np.ones(1), np.zeros(1)), "bf16")
    assert not_a_number.outside.all()


def _in_fp32(given: Inputs, shape: Shape, how: Algorithm) -> np.ndarray:
    """The algorithm in fp32, one head after the other, a row and a key at a time: bit patterns of O."""
    q, k, v = (from_bits(x, shape.dtype).astype(np.float32) for x in (given.q, given.k, given.v))
    out = np.zeros((1, shape.seqlen_q, shape.heads, shape.head_dim_v), np.float32)
    factor = np.float32(given.scale * np.log2(np.e))
    for h in range(shape.heads):
        for row in range(shape.seqlen_q):
            seen = min(shape.seqlen_k, row + 1 + shape.seqlen_k - shape.seqlen_q) if shape.causal else shape.seqlen_k
            top, total, o = np.float32(-np.inf), np.float32(0), np.zeros(shape.head_dim_v, np.float32)
            for begin in range((shape.seqlen_k - 1) // how.keys * how.keys, -1, -how.keys):
                tile = slice(begin, min(begin + how.keys, seen))
                if tile.stop <= begin:
                    continue
                s = (k[0, tile, 0] @ q[0, row, h]) * factor
                new = np.maximum(top, s.max())
                if new - top <= how.keep:
                    new = top
                shrink = np.exp2(top - new)
                p = np.exp2(s - new)
                total = total * shrink + p.sum()
                o = o * shrink + from_bits(to_bits(p, shape.dtype), shape.dtype).astype(np.float32) @ v[0, tile, 0]
                top = new
            out[0, row, h] = o / total
    return to_bits(out, shape.dtype)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("causal", [False, True])
def test_an_independent_loop_in_single_precision_lies_within(causal: bool, dtype: Dtype) -> None:
    shape = replace(SHAPE, causal=causal, dtype=dtype)
    given = inputs(shape, 1)
    found = beside(_in_fp32(given, shape, HOW), forward(given, shape, HOW)[0], dtype)
    assert not found.outside.any()
    assert found.equal > 0.995 * found.size


@pytest.mark.parametrize(
    "wrong",
    [replace(HOW, keep=0.0), replace(HOW, keys=96), replace(HOW, poly_share=0.25), replace(HOW, together=16)],
    ids=["rescales always", "other tiles", "polynomials", "rows of a warp together"],
)
def test_what_double_precision_lets_pass(wrong: Algorithm) -> None:
    """Another maximum to be relative to, or another exponential: within what rounding P allows, but not what the kernel computes."""
    shape = replace(SHAPE, causal=False)
    given = inputs(shape, 1)
    other = to_bits(forward(given, shape, wrong)[0].value, "bf16")
    exact = attention(given, shape)
    assert (np.abs(from_bits(other, "bf16") - exact.o) <= exact.bound).all()
    assert beside(other, forward(given, shape, HOW)[0], "bf16").outside.sum() > 20


def test_a_rounding_of_p_towards_zero_is_seen() -> None:
    """Each P is off by less than a unit: double precision has to allow it."""
    shape = replace(SHAPE, causal=False, heads=1)
    given = inputs(shape, 2)
    q, k, v = (from_bits(x, "bf16")[0, :, 0] for x in (given.q, given.k, given.v))
    s = q @ k.T * given.scale
    p = np.exp(s - s.max(axis=1, keepdims=True))
    cut = from_bits((p.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16), "bf16")
    o = to_bits((cut @ v / p.sum(axis=1, keepdims=True))[None, :, None], "bf16")
    exact = attention(given, shape)
    assert (np.abs(from_bits(o, "bf16") - exact.o) <= 2 * exact.bound).all()
    assert beside(o, forward(given, shape, Algorithm(keys=304))[0], "bf16").outside.mean() > 0.3


def test_the_backward_lies_within_double_precision() -> None:
    given = problem(SHAPE, 4)
    exact, model = gradients(given, SHAPE), backward(given, SHAPE)
    for name, x in model.items():
        assert (np.abs(x.value - exact.values[name]) <= exact.bounds[name]).all()
        assert (x.off < 0.2 * exact.bounds[name]).mean() > 0.95, "tighter by far"
        assert not beside(to_bits(x.value, "bf16"), x, "bf16").outside.any()
        assert beside(to_bits(exact.values[name], "bf16"), x, "bf16").outside.mean() > 0.2, "exact is not what a kernel gives"


def test_rows_without_keys() -> None:
    shape = replace(SHAPE, seqlen_q=300, seqlen_k=100)
    o, lse = forward(inputs(shape, 1), shape, HOW)
    assert (o.value[0, :200] == 0).all()
    assert np.isneginf(lse.value[0, :, :200]).all()
    assert np.isfinite(lse.value[0, :, 200:]).all()
