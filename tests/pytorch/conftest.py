"""A GPU of paper: everything but the compiled kernel is real; the kernel is computed on the CPU and refuses what TMA would."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    # what is left says what twill says then
    collect_ignore = [p.name for p in Path(__file__).parent.glob("test_*.py") if p.name != "test_without_pytorch.py"]
else:
    import torch

SM_COUNT = 132


@dataclass
class Call:
    """One launch, as the kernel saw it."""

    kernel: str
    variant: tuple[str, bool, bool]
    q: Any
    k: Any
    v: Any
    lse: Any
    scale: float
    sm_count: int
    deterministic: bool = False


@dataclass
class PaperGpu:
    """``gradients`` is the arithmetic of kernels of gradients, for a test to do something else."""

    calls: list[Call] = field(default_factory=list)
    gradients: Callable[..., Any] = lambda *given: _gradients(*given)

    @property
    def last(self) -> Call:
        return self.calls[-1]


def _addressable(x: Any) -> None:
    """What a tensor map demands of data and strides."""
    assert x.data_ptr() % 16 == 0
    assert x.stride(3) == 1
    for size, stride in zip(x.shape[:3], x.stride()[:3], strict=True):
        assert size > 0
        assert stride > 0 and stride * x.element_size() % 16 == 0, (x.shape, x.stride())


def _attention(q: Any, k: Any, v: Any, o: Any, lse: Any, scale: float, causal: bool) -> None:
    group = q.shape[2] // k.shape[2]
    wide_k, wide_v = (x.double().repeat_interleave(group, dim=2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q.double(), wide_k) * scale
    if causal:
        seqlen_q, seqlen_k = scores.shape[2:]
        hidden = torch.ones(seqlen_q, seqlen_k, dtype=torch.bool).triu(seqlen_k - seqlen_q + 1)
        scores = scores.masked_fill(hidden, -math.inf)
    total = torch.logsumexp(scores, dim=3)
    p = torch.exp(scores - total.clamp_min(-1e300)[..., None])
    o.copy_(torch.einsum("bhij,bjhd->bihd", p, wide_v))
    if lse is not None:
        lse.copy_(total)


def _gradients(q: Any, k: Any, v: Any, o: Any, do: Any, lse: Any, scale: float, causal: bool) -> tuple[Any, Any, Any]:
    """By the formulas that kernels use, from the output and the log-sum-exp that they are given."""
    group = q.shape[2] // k.shape[2]
    wide_q, wide_do = q.double(), do.double()
    wide_k, wide_v = (x.double().repeat_interleave(group, dim=2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", wide_q, wide_k) * scale
    if causal:
        seqlen_q, seqlen_k = scores.shape[2:]
        hidden = torch.ones(seqlen_q, seqlen_k, dtype=torch.bool).triu(seqlen_k - seqlen_q + 1)
        scores = scores.masked_fill(hidden, -math.inf)
    p = torch.exp(scores - lse.double().clamp_min(-1e300)[..., None])
    dp = torch.einsum("bihd,bjhd->bhij", wide_do, wide_v)
    ds = p * (dp - (o.double() * wide_do).sum(dim=3).transpose(1, 2)[..., None]) * scale
    dq = torch.einsum("bhij,bjhd->bihd", ds, wide_k)
    dk, dv = torch.einsum("bhij,bihd->bjhd", ds, wide_q), torch.einsum("bhij,bihd->bjhd", p, wide_do)
    return dq, *(x.unflatten(2, (-1, group)).sum(dim=3) for x in (dk, dv))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[PaperGpu]:
    from twill.pytorch import gradients, plan
    from twill.pytorch.target import Target

    paper = PaperGpu()

    @cache
    def function_of(kernel: Any, dtype: str, causal: bool, lse_wanted: bool, deterministic: bool = False) -> Any:
        if kernel.makes == "attn_bwd":
            return backward_of(kernel, dtype, causal, deterministic)

        def f(q: Any, k: Any, v: Any, o: Any, lse: Any, counter: Any, scale: float, sm_count: int) -> None:
            assert counter.dtype == torch.int32 and counter.tolist() == [0]
            assert (lse is not None) == lse_wanted
            assert {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype] == q.dtype == o.dtype
            for x in (q, k, v, o):
                _addressable(x)
            paper.calls.append(Call(kernel.name, (dtype, causal, lse_wanted), q, k, v, lse, scale, sm_count))
            _attention(q, k, v, o, lse, scale, causal)

        return f

    def backward_of(kernel: Any, dtype: str, causal: bool, deterministic: bool) -> Any:
        def f(
            q: Any, k: Any, v: Any, o: Any, do: Any, lse: Any, dq: Any, dk: Any, dv: Any, workspace: Any, counter: Any, scale: float,
            sm_count: int,
        ) -> None:  # fmt: skip
            assert counter.dtype == torch.int32 and counter.tolist() == [0]
            assert {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype] == q.dtype == dq.dtype == dk.dtype == dv.dtype
            for x in (q, k, v, o, do, dq, dk, dv):
                _addressable(x)
            assert lse.dtype == torch.float32 and lse.stride(2) == 1
            rows = -(-q.shape[1] // kernel.rows) * kernel.rows
            assert workspace.dtype == torch.float32
            assert workspace.numel() > q.shape[0] * q.shape[2] * rows * (-(-kernel.head_dim // 16) * 16 + 2)
            paper.calls.append(Call(kernel.name, (dtype, causal, False), q, k, v, lse, scale, sm_count, deterministic))
            for into, made in zip((dq, dk, dv), paper.gradients(q, k, v, o, do, lse, scale, causal), strict=True):
                into.copy_(made)

        return f

    plan.forget_plans()
    gradients.forget_backward_plans()
    for module in (plan, gradients):
        monkeypatch.setattr(module, "target_of", lambda device: Target("sm90", SM_COUNT, -1))
        monkeypatch.setattr(module, "function_of", function_of)
        monkeypatch.setattr(module, "counter_of", lambda device: torch.zeros(1, dtype=torch.int32))
    monkeypatch.setattr(plan, "current_device", lambda: -1)
    yield paper
    plan._plans.clear()
    gradients._plans.clear()
