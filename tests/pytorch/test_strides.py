"""Operands are read where they lie whenever a tensor map can describe them, and copied, with the same result, when it cannot."""

from __future__ import annotations

import pytest
import torch

import twill
from tests.pytorch.conftest import PaperGpu
from tests.pytorch.layouts import COPIED, READ_IN_PLACE
from twill.pytorch.operands import AS_IT_IS, Layout, layout_of

B, S, H, D = 2, 6, 4, 64


def _flat(size: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16)


def _check(gpu: PaperGpu, position: int, x: torch.Tensor, *, in_place: bool) -> None:
    plain = [_flat(B * S * H * D).view(B, S, H, D) + n for n in range(3)]
    plain[position] = x.clone(memory_format=torch.contiguous_format)
    expected = twill.attention(*plain)
    given = [x if n == position else y for n, y in enumerate(plain)]
    before = x.clone()
    assert torch.equal(twill.attention(*given), expected)
    seen = (gpu.last.q, gpu.last.k, gpu.last.v)[position]
    assert (seen.data_ptr() == x.data_ptr()) == in_place
    assert torch.equal(x, before), "an operand was written to"


@pytest.mark.parametrize("position", [0, 1, 2], ids=["q", "k", "v"])
@pytest.mark.parametrize("name", READ_IN_PLACE)
def test_read_in_place(gpu: PaperGpu, position: int, name: str) -> None:
    _check(gpu, position, READ_IN_PLACE[name](_flat, B, S, H, D), in_place=True)


@pytest.mark.parametrize("position", [0, 1, 2], ids=["q", "k", "v"])
@pytest.mark.parametrize("name", COPIED)
def test_copied(gpu: PaperGpu, position: int, name: str) -> None:
    _check(gpu, position, COPIED[name](_flat, B, S, H, D), in_place=False)


def test_a_plan_of_aligned_data_is_not_used_for_other_data(gpu: PaperGpu) -> None:
    """Alignment is no part of a signature: two calls of one signature, of which only the second must copy."""
    data = _flat(B * S * H * D + 8)
    q, same_signature = data[: B * S * H * D].view(B, S, H, D), data[4 : 4 + B * S * H * D].view(B, S, H, D)
    twill.attention(q, q, q)
    twill.attention(same_signature, q, q)
    assert gpu.last.q.data_ptr() != same_signature.data_ptr()
    assert torch.equal(gpu.last.q, same_signature)


def test_heads_expanded_in_both_are_one_head_read_by_all(gpu: PaperGpu) -> None:
    q = _flat(B * S * H * D).view(B, S, H, D)
    k, v = (_flat(2 * B * S * D).view(2, B, S, 1, D)[n].expand(-1, -1, H, -1) for n in (0, 1))
    got = twill.attention(q, k, v)
    assert gpu.last.k.shape == gpu.last.v.shape == (B, S, 1, D)
    assert (gpu.last.k.data_ptr(), gpu.last.v.data_ptr()) == (k.data_ptr(), v.data_ptr())
    assert torch.equal(got, twill.attention(q, k.contiguous(), v.contiguous()))


def test_heads_expanded_in_one_are_copied(gpu: PaperGpu) -> None:
    q = _flat(B * S * H * D).view(B, S, H, D)
    k = q[:, :, :1].expand(-1, -1, H, -1)
    got = twill.attention(q, k, q)
    assert gpu.last.k.shape == (B, S, H, D)
    assert gpu.last.k.data_ptr() != k.data_ptr()
    assert torch.equal(got, twill.attention(q, k.contiguous(), q))


@pytest.mark.parametrize("axis", [0, 1, 2], ids=["batch", "sequence", "heads"])
@pytest.mark.parametrize("stride", [0, 1, 3, 2**50])
def test_the_stride_of_a_size_of_one_means_nothing(gpu: PaperGpu, axis: int, stride: int) -> None:
    shape = [B, S, H, D]
    shape[axis] = 1
    plain = _flat(shape[0] * shape[1] * shape[2] * D).view(shape)
    strides = list(plain.stride())
    strides[axis] = stride
    odd = plain.as_strided(shape, strides)
    assert torch.equal(twill.attention(odd, odd, odd), twill.attention(plain, plain, plain))
    twill.attention(odd, odd, odd)
    assert gpu.last.q.data_ptr() == plain.data_ptr()


def test_strides_beyond_two_to_the_31_elements() -> None:
    """Only the layout: nobody here has the memory."""
    assert layout_of((2, 2**16, 16, 128), (2**37, 2**21, 2**17, 1), 2) == AS_IT_IS
    assert layout_of((2, 8, 16, 128), (2**39, 2048, 128, 1), 2) == Layout(copy=True, strides=None)
    assert layout_of((2, 8, 16, 128), (2**39 - 8, 2048, 128, 1), 2) == AS_IT_IS
