"""A call goes past the dispatcher only where nobody looks on, and then it gives what the operator gives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NoReturn

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import twill
from tests.pytorch.conftest import PaperGpu
from twill.pytorch import functional
from twill.pytorch.op import attention_fwd, attention_fwd_lse


def _operands(seqlen_q: int = 5) -> list[torch.Tensor]:
    make = torch.Generator().manual_seed(3)
    shapes = ((2, seqlen_q, 4, 64), (2, 7, 2, 64), (2, 7, 2, 64))
    return [torch.randn(shape, generator=make).to(torch.bfloat16) for shape in shapes]


@pytest.fixture
def no_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> NoReturn:
        raise AssertionError("the operator was called")

    monkeypatch.setattr(functional, "attention_fwd", refuse)
    monkeypatch.setattr(functional, "attention_fwd_lse", refuse)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("seqlen_q", [5, 0])
def test_what_the_operator_gives(gpu: PaperGpu, causal: bool, scale: float | None, seqlen_q: int) -> None:
    operands = _operands(seqlen_q)
    for ours, its in zip(
        (twill.attention(*operands, scale, causal), *twill.attention(*operands, scale, causal, return_lse=True)),
        (attention_fwd(*operands, scale, causal), *attention_fwd_lse(*operands, scale, causal)),
        strict=True,
    ):
        assert torch.equal(ours, its)
        assert (ours.dtype, ours.stride(), ours.requires_grad) == (its.dtype, its.stride(), its.requires_grad)


@pytest.mark.usefixtures("gpu", "no_operator")
def test_straight_to_the_kernel() -> None:
    twill.attention(*_operands())
    twill.attention(*_operands(), causal=True, return_lse=True)
    with torch.no_grad():
        twill.attention(*(x.requires_grad_() for x in _operands()))
    with torch.inference_mode():
        assert twill.attention(*_operands()).is_inference()


@pytest.mark.usefixtures("gpu", "no_operator")
def test_a_plan_made_in_inference_mode_serves_outside_of_it() -> None:
    with torch.inference_mode():
        twill.attention(*_operands())
    assert not twill.attention(*_operands()).is_inference()


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Functions, Operators])
def test_modes_see_it(gpu: PaperGpu, mode: Callable[[], Any]) -> None:
    look: Any = mode()
    with look:
        twill.attention(*_operands())
        twill.attention(*_operands(), return_lse=True)
    assert [name for name in look.seen if "twill" in name] == ["twill.attention_fwd.default", "twill.attention_fwd_lse.default"]


class Tagged(torch.Tensor):
    seen: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(str(function))
        return super().__torch_function__(function, types, args, kwargs or {})


@pytest.mark.parametrize("position", [0, 1, 2], ids=["q", "k", "v"])
def test_subclasses_see_it(gpu: PaperGpu, position: int) -> None:
    Tagged.seen.clear()
    operands = [x.as_subclass(Tagged) if n == position else x for n, x in enumerate(_operands())]
    assert isinstance(twill.attention(*operands), Tagged)
    assert "twill.attention_fwd.default" in Tagged.seen


def test_the_profiler_sees_it(gpu: PaperGpu) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        twill.attention(*_operands())
    assert "twill::attention_fwd" in {event.name for event in found.events()}


def test_tracers_see_it(gpu: PaperGpu) -> None:
    traced = make_fx(lambda q, k, v: twill.attention(q, k, v))(*_operands())
    assert torch.ops.twill.attention_fwd.default in {n.target for n in traced.graph.nodes}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_scripts_see_it(gpu: PaperGpu) -> None:
    traced = torch.jit.trace(lambda q, k, v: twill.attention(q, k, v), tuple(_operands()), check_trace=False)
    assert "twill::attention_fwd" in str(traced.graph)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_transforms_see_it(gpu: PaperGpu) -> None:
    """PyTorch calls the operator once for every element of the batch; a kernel would have read memory that is not there."""
    batched = [torch.stack([x, -2 * x]) for x in _operands()]
    got = torch.vmap(twill.attention)(*batched)
    assert torch.equal(got, torch.stack([twill.attention(*x) for x in zip(*batched, strict=True)]))


@pytest.mark.parametrize("active", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_grad_modes_are_nobody(gpu: PaperGpu, no_operator: None, active: Callable[[], AbstractContextManager[None]]) -> None:
    with active():
        twill.attention(*_operands())
    assert len(gpu.calls) == 1


@pytest.mark.usefixtures("no_operator")
def test_gradients_go_straight_too(gpu: PaperGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """And give what the operators give."""
    make = torch.Generator().manual_seed(4)
    q, k, v, do = (torch.randn(2, n, heads, 96, generator=make).bfloat16() for n, heads in ((5, 4), (7, 2), (7, 2), (5, 4)))
    given = [x.requires_grad_() for x in (q, k, v)]
    o, lse = attention_fwd_lse(*given, 0.2, True)
    expected = (o, lse, *torch.autograd.grad(o, given, do))
    names: list[str] = []
    monkeypatch.setattr(torch.ops.twill.attention_bwd, "default", lambda *given: names.append("attention_bwd"))
    o, lse = twill.attention(*given, 0.2, True, return_lse=True)
    for ours, its in zip((o, lse, *torch.autograd.grad(o, given, do)), expected, strict=True):
        assert torch.equal(ours, its)
    assert not names


def test_modes_see_gradients(gpu: PaperGpu) -> None:
    given = [torch.randn(1, 5, 2, 96).bfloat16().requires_grad_() for _ in range(3)]
    with Operators() as look:
        twill.attention(*given).sum().backward()
    assert [n for n in look.seen if "twill" in n] == ["twill.attention_fwd_lse.default", "twill.attention_bwd.default"]
