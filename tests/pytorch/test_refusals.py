"""Whatever is wrong is said before anything is launched: which operand, what it is, what to do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import twill
from tests.pytorch.conftest import PaperGpu
from twill.errors import TwillError
from twill.pytorch import AttentionError, selection
from twill.pytorch import plan as plans
from twill.pytorch.target import Target, target_of


def _x(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


GOOD = (2, 4, 4, 64)
CASES: dict[str, tuple[Callable[[], object], str]] = {
    "three dimensions": (lambda: twill.attention(_x(2, 4, 64), _x(*GOOD), _x(*GOOD)), r"q has 3 dimensions\n.*\(batch, seq, heads, dim\)"),
    "sparse": (lambda: twill.attention(_x(*GOOD).to_sparse(), _x(*GOOD), _x(*GOOD)), r"q has layout torch\.sparse_coo\n.*dense"),
    "float32": (lambda: twill.attention(*(_x(*GOOD, dtype=torch.float32),) * 3), r"q is torch\.float32\n.*torch\.bfloat16 or"),
    "mixed types": (
        lambda: twill.attention(_x(*GOOD), _x(*GOOD, dtype=torch.float16), _x(*GOOD)), r"k is torch\.float16 and q is torch\.bfloat16"),
    "two devices": (lambda: twill.attention(_x(*GOOD), _x(*GOOD), _x(*GOOD).to("meta")), "v is on meta and q on cpu"),
    "batches": (lambda: twill.attention(_x(*GOOD), _x(1, 4, 4, 64), _x(*GOOD)), "batch sizes differ: q 2, k 1, v 2"),
    "lengths of k and v": (lambda: twill.attention(_x(*GOOD), _x(2, 5, 4, 64), _x(*GOOD)), r"k \(2, 5, 4, 64\) and v \(2, 4, 4, 64\)"),
    "heads of k and v": (lambda: twill.attention(_x(*GOOD), _x(2, 4, 2, 64), _x(*GOOD)), "differ in length or heads"),
    "head dims of q and k": (lambda: twill.attention(_x(*GOOD), _x(2, 4, 4, 128), _x(*GOOD)), "head dims differ: q 64, k 128"),
    "heads that do not divide": (
        lambda: twill.attention(_x(*GOOD), _x(2, 4, 3, 64), _x(2, 4, 3, 64)), "4 heads of q cannot share 3 heads of k and v"),
    "no heads to share": (lambda: twill.attention(_x(*GOOD), _x(2, 4, 0, 64), _x(2, 4, 0, 64)), "cannot share 0 heads"),
    "no head dim": (lambda: twill.attention(_x(2, 4, 4, 0), _x(2, 4, 4, 0), _x(*GOOD)), "a head dim is 0"),
    "a head dim without a kernel": (
        lambda: twill.attention(*(_x(2, 4, 4, 88),) * 3),
        r"no kernel for head dim 88 on sm90; there are 64, .*\n.*`twill emit --arch sm90 attn_fwd --head-dim 88 -o FILE`"),
    "a pair of head dims without a kernel": (
        lambda: twill.attention(_x(2, 4, 4, 128), _x(2, 4, 4, 128), _x(2, 4, 4, 64)),
        r"no kernel for head dim 128/64 on sm90.*\n.*--head-dim 128 --head-dim-v 64 -o FILE"),
    "a scale of zero": (lambda: twill.attention(*(_x(*GOOD),) * 3, softmax_scale=0.0), r"softmax_scale is 0\.0\n.*positive"),
    "a negative scale": (lambda: twill.attention(*(_x(*GOOD),) * 3, softmax_scale=-1.0), r"softmax_scale is -1\.0\n.*negate q"),
    "a scale that is no number": (lambda: twill.attention(*(_x(*GOOD),) * 3, softmax_scale=float("nan")), "softmax_scale is nan"),
    "more work tiles than 32 bits count": (
        lambda: twill.attention(*(_x(1, 1, 1, 64).expand(2**25, 1, 2**7, -1),) * 3), "make 4294967296 work tiles; kernels count at most"),
    "a mask": (lambda: twill.scaled_dot_product_attention(*(_x(*GOOD),) * 3, attn_mask=_x(4, 4)), "attn_mask is not supported"),
    "dropout": (lambda: twill.scaled_dot_product_attention(*(_x(*GOOD),) * 3, dropout_p=0.1), r"dropout_p is 0\.1"),
    "sharing not asked for": (
        lambda: twill.scaled_dot_product_attention(_x(2, 4, 8, 64), _x(2, 2, 8, 64), _x(2, 2, 8, 64)), "enable_gqa=True"),
    "two alignments of the mask": (
        lambda: twill.scaled_dot_product_attention(_x(2, 4, 8, 64), _x(2, 4, 9, 64), _x(2, 4, 9, 64), is_causal=True),
        "8 queries and 9 keys: PyTorch aligns the mask with the first key"),
}  # fmt: skip


class Passing(TorchFunctionMode):
    """Changes nothing, but is there: calls go through the operator."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("way", [nullcontext, Passing], ids=["straight", "operator"])
@pytest.mark.parametrize("name", CASES)
def test_said_before_anything_is_launched(gpu: PaperGpu, name: str, way: Callable[[], AbstractContextManager[object]]) -> None:
    call, message = CASES[name]
    with way(), pytest.raises(AttentionError, match=message):
        call()
    assert not gpu.calls


def test_it_is_a_value_error_and_one_of_ours() -> None:
    assert issubclass(AttentionError, ValueError)
    assert issubclass(AttentionError, TwillError)


@pytest.mark.parametrize("position", [0, 1, 2], ids=["q", "k", "v"])
@pytest.mark.parametrize("call", [twill.attention, torch.ops.twill.attention_fwd_lse], ids=["function", "operator"])
def test_no_kernel_for_gradients(
    gpu: PaperGpu, position: int, call: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(selection, "backward_kernels", lambda: ())
    operands = [_x(*GOOD).requires_grad_(n == position) for n in range(3)]
    with pytest.raises(AttentionError, match=r"a gradient is wanted, and there is no kernel for it at head dim 64.*; there are none"):
        call(*operands, None, False)
    launched = len(gpu.calls)
    with torch.no_grad():
        call(*operands, None, False)
    assert len(gpu.calls) == launched + 1
    assert launched == 0 or call is not twill.attention


def test_not_on_a_gpu() -> None:
    with pytest.raises(AttentionError, match=r"these are on cpu\n.*\.to\('cuda'\)"):
        twill.attention(*(_x(*GOOD),) * 3)


def test_a_gpu_without_kernels(gpu: PaperGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "target_of", lambda device: Target("sm120", 148, -1))
    with pytest.raises(AttentionError, match=r"no attention kernel for sm120 yet; there are kernels for sm100, sm103, sm90"):
        twill.attention(*(_x(*GOOD),) * 3)


def test_a_gpu_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        name, major, minor, multi_processor_count = "Elder", 8, 0, 108

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Old)
    target_of.cache_clear()
    with pytest.raises(AttentionError, match=r"Elder has compute capability 8\.0.*\n.*sm90 \(compute capability 9\.0\)"):
        target_of(torch.device("cuda:0"))


def test_lengths_are_32_bits_wide(gpu: PaperGpu) -> None:
    q = _x(1, 1, 1, 64)
    k = q.expand(-1, 2**31, -1, -1)
    with pytest.raises(AttentionError, match="k and v have 2147483648 positions; kernels count at most 2147418112"):
        twill.attention(q, k, k)


def test_a_failure_is_not_remembered(gpu: PaperGpu, tmp_path: Path) -> None:
    with pytest.raises(AttentionError):
        twill.attention(*(_x(2, 4, 4, 88),) * 3)
    assert not plans._plans
