"""The operators ``twill::attention_fwd``, ``attention_fwd_lse`` and ``attention_bwd``: what PyTorch's dispatcher, compiler and graphs see.

They are registered with a kernel for all devices, so a call with tensors on the wrong one ends in the error that says so. They are
functional: nothing that is passed is written to, and results alias no operand. The second is differentiable, by the third.
"""

from __future__ import annotations

import torch

from twill.pytorch.autograd import differentiate, refuse_second_derivative, save
from twill.pytorch.eager import wants_gradients
from twill.pytorch.errors import AttentionError
from twill.pytorch.gradients import Gradients, backward
from twill.pytorch.operands import shapes_of
from twill.pytorch.plan import forward

__all__ = ["attention_bwd", "attention_fwd", "attention_fwd_lse"]

OPERANDS = "Tensor q, Tensor k, Tensor v"
FLAGS = "float? softmax_scale, bool causal"
ORDER = "bool deterministic=False"

_library = torch.library.Library("twill", "DEF")
_tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
"""Exact strides: the compiler must not choose a layout of its own that would have to be copied."""
_library.define(f"attention_fwd({OPERANDS}, {FLAGS}) -> Tensor", tags=_tags)
_library.define(f"attention_fwd_lse({OPERANDS}, {FLAGS}, {ORDER}) -> (Tensor, Tensor)", tags=_tags)
_library.define(f"attention_bwd(Tensor do, {OPERANDS}, Tensor o, Tensor lse, {FLAGS}, {ORDER}) -> (Tensor, Tensor, Tensor)", tags=_tags)


def _refuse_gradients(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    if wants_gradients(q, k, v):
        raise AttentionError(
            "q, k or v requires a gradient, and twill::attention_fwd keeps nothing to make one from",
            "call twill.attention or torch.ops.twill.attention_fwd_lse, or this one under torch.no_grad()",
        )


def _run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float | None, causal: bool) -> torch.Tensor:
    _refuse_gradients(q, k, v)
    return forward(q, k, v, softmax_scale, causal, False)[0]


def _run_lse(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float | None, causal: bool, deterministic: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Deterministic or not is about gradients: the result always is."""
    o, lse = forward(q, k, v, softmax_scale, causal, True)
    if lse is None:
        raise AttentionError("the log-sum-exp was asked for and not made", "report this: it is a mistake of twill")
    return o, lse


def _fake(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float | None, causal: bool) -> torch.Tensor:
    """The result without data; the errors of wrong operands come here while a model is traced."""
    _refuse_gradients(q, k, v)
    return q.new_empty(shapes_of(q, k, v).output)


def _fake_lse(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float | None, causal: bool, deterministic: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    shapes = shapes_of(q, k, v)
    return q.new_empty(shapes.output), q.new_empty(shapes.lse, dtype=torch.float32)


def _fake_bwd(
    do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, softmax_scale: float | None,
    causal: bool, deterministic: bool = False,
) -> Gradients:  # fmt: skip
    shapes_of(q, k, v)
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


for _name, _kernel, _shape in (
    ("attention_fwd", _run, _fake), ("attention_fwd_lse", _run_lse, _fake_lse), ("attention_bwd", backward, _fake_bwd),
):  # fmt: skip
    _library.impl(_name, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"twill::{_name}", _shape, lib=_library)
torch.library.register_autograd("twill::attention_fwd_lse", differentiate, setup_context=save, lib=_library)
torch.library.register_autograd("twill::attention_bwd", refuse_second_derivative, lib=_library)

attention_fwd = torch.ops.twill.attention_fwd.default
attention_fwd_lse = torch.ops.twill.attention_fwd_lse.default
attention_bwd = torch.ops.twill.attention_bwd.default
