"""What is computed: masks, shared heads, scales, empty operands, both layouts. The kernel is one of paper, all around it is real."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import twill
from tests.pytorch.conftest import SM_COUNT, PaperGpu
from tests.pytorch.reference import reference


def _operands(
    batch: int, seqlen_q: int, seqlen_k: int, heads: int, kv_heads: int, d: int, dv: int, dtype: torch.dtype
) -> list[torch.Tensor]:
    make = torch.Generator().manual_seed(17)
    shapes = ((batch, seqlen_q, heads, d), (batch, seqlen_k, kv_heads, d), (batch, seqlen_k, kv_heads, dv))
    return [torch.randn(shape, generator=make).to(dtype) for shape in shapes]


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize(
    ("seqlen_q", "seqlen_k", "heads", "kv_heads", "d", "dv"),
    [
        (1, 1, 1, 1, 64, 64), (5, 5, 4, 4, 64, 64), (5, 9, 4, 2, 96, 96), (9, 5, 6, 1, 128, 128), (3, 4, 2, 2, 192, 128),
        (4, 3, 6, 3, 256, 256), (0, 4, 2, 2, 64, 64), (4, 0, 2, 2, 64, 64), (0, 0, 2, 2, 64, 64), (4, 4, 0, 0, 64, 64),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_against_numpy(
    gpu: PaperGpu, seqlen_q: int, seqlen_k: int, heads: int, kv_heads: int, d: int, dv: int, causal: bool, dtype: torch.dtype
) -> None:
    q, k, v = _operands(2, seqlen_q, seqlen_k, heads, kv_heads, d, dv, dtype)
    o, lse = twill.attention(q, k, v, causal=causal, return_lse=True)
    expected, sums = reference(q, k, v, d**-0.5, causal)
    assert (o.dtype, o.shape, o.is_contiguous()) == (dtype, (2, seqlen_q, heads, dv), True)
    assert (lse.dtype, lse.shape, lse.is_contiguous()) == (torch.float32, (2, heads, seqlen_q), True)
    np.testing.assert_allclose(o.double().numpy(), expected, rtol=0, atol=2**-8 * 4)
    np.testing.assert_allclose(lse.numpy(), sums, rtol=1e-6, atol=1e-6)
    alone = twill.attention(q, k, v, causal=causal)
    assert torch.equal(alone, o)


def test_batch_of_none(gpu: PaperGpu) -> None:
    q, k, v = _operands(0, 3, 4, 2, 2, 64, 64, torch.bfloat16)
    o, lse = twill.attention(q, k, v, return_lse=True)
    assert (o.shape, lse.shape) == ((0, 3, 2, 64), (0, 2, 3))
    assert not gpu.calls


def test_nothing_is_launched_without_work(gpu: PaperGpu) -> None:
    for sizes in ((2, 0, 4, 2, 2), (2, 4, 0, 2, 2), (2, 4, 4, 0, 0)):
        twill.attention(*_operands(*sizes, 64, 64, torch.bfloat16))
    assert not gpu.calls


def test_no_keys_give_zeros_and_minus_infinity(gpu: PaperGpu) -> None:
    o, lse = twill.attention(*_operands(2, 4, 0, 2, 2, 64, 64, torch.bfloat16), return_lse=True)
    assert torch.equal(o, torch.zeros_like(o))
    assert torch.equal(lse, torch.full_like(lse, -math.inf))


def test_the_scale(gpu: PaperGpu) -> None:
    q, k, v = _operands(1, 4, 4, 1, 1, 64, 64, torch.bfloat16)
    o = twill.attention(q, k, v, softmax_scale=0.5)
    np.testing.assert_allclose(o.double().numpy(), reference(q, k, v, 0.5, False)[0], rtol=0, atol=2**-6)
    assert gpu.last.scale == 0.5
    twill.attention(q, k, v)
    assert gpu.last.scale == 0.125


def test_what_the_kernel_is_given(gpu: PaperGpu) -> None:
    q, k, v = _operands(2, 4, 4, 2, 1, 128, 128, torch.float16)
    twill.attention(q, k, v, causal=True, return_lse=True)
    assert gpu.last.variant == ("fp16", True, True)
    assert gpu.last.sm_count == SM_COUNT
    assert gpu.last.kernel.startswith("sm90_attn_fwd_d128")
    twill.attention(q, k, v)
    assert gpu.last.variant == ("fp16", False, False)
    assert gpu.last.lse is None


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_as_pytorch_does_it(gpu: PaperGpu, causal: bool, kv_heads: int) -> None:
    q, k, v = (x.transpose(1, 2) for x in _operands(2, 6, 6, 4, kv_heads, 64, 64, torch.bfloat16))
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.2, enable_gqa=kv_heads != 4)
    ours = twill.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.2, enable_gqa=kv_heads != 4)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2**-6)
    assert ours.shape == theirs.shape


def test_the_other_layout_copies_nothing(gpu: PaperGpu) -> None:
    q, k, v = (torch.randn(2, 4, 6, 64).to(torch.bfloat16) for _ in range(3))
    o = twill.scaled_dot_product_attention(q, k, v)
    seen = gpu.last
    assert [x.data_ptr() for x in (seen.q, seen.k, seen.v)] == [x.data_ptr() for x in (q, k, v)]
    assert o.transpose(1, 2).is_contiguous()
