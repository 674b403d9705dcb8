"""Gradients by autograd: what is saved, what is handed on, what is refused; and a way past the dispatcher where nothing looks on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from twill.pytorch.eager import nothing_looks_on
from twill.pytorch.errors import AttentionError
from twill.pytorch.gradients import backward, refuse_without_backward
from twill.pytorch.plan import forward

__all__ = ["Differentiable", "differentiate", "refuse_second_derivative", "save"]


def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep what gradients are made from.

    Raises
    ------
    AttentionError : there is no kernel that makes them.
    """
    refuse_without_backward(*inputs[:3])
    _keep(ctx, inputs, output)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, ctx.softmax_scale, ctx.causal, ctx.deterministic = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.set_materialize_grads(False)


def differentiate(ctx: Any, do: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
    """Gradients of q, k and v that are asked for; the kernel makes all three at once.

    Raises
    ------
    AttentionError : that of the log-sum-exp is given.
    """
    if dlse is not None:
        raise AttentionError(
            "a gradient of lse is wanted, and only that of o is there",
            "use lse.detach(), under torch.compile inside of what is compiled; or logsumexp of scores made with torch.matmul",
        )
    if do is None:
        return None, None, None, None, None, None
    q, k, v, o, lse = ctx.saved_tensors
    # with grad mode on, gradients of gradients may be asked for: the operator has the answer to that
    straight = not is_compiling() and not torch.is_grad_enabled() and type(do) is Tensor and nothing_looks_on(q, k, v)
    make = backward if straight else torch.ops.twill.attention_bwd.default
    found = make(do, q, k, v, o, lse, ctx.softmax_scale, ctx.causal, ctx.deterministic)
    return *(x if wanted else None for x, wanted in zip(found, ctx.needs_input_grad, strict=False)), None, None, None


def refuse_second_derivative(ctx: Any, *given: Tensor) -> tuple[None, ...]:
    """There is none."""
    raise AttentionError("a second derivative of attention is wanted, and there is none", "use PyTorch's own attention for it")


class Differentiable(torch.autograd.Function):  # type: ignore[misc]
    """``(o, lse)`` as the operator ``twill::attention_fwd_lse`` gives them, with its gradients, past the dispatcher.

    That there is a kernel of gradients has been asked before.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None, causal: bool, deterministic: bool
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        o, lse = forward(q, k, v, softmax_scale, causal, True)
        assert lse is not None
        _keep(ctx, (q, k, v, softmax_scale, causal, deterministic), (o, lse))
        return o, lse

    backward = staticmethod(differentiate)
