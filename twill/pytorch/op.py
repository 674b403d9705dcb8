"""The operators ``twill::attention_fwd`` and ``twill::attention_fwd_lse``: what PyTorch's dispatcher, compiler and graphs see.

They are registered with a kernel for all devices, so a call with tensors on the wrong one ends in the error that says so. They are
functional: nothing that is passed is written to, and results alias no operand.
"""

from __future__ import annotations

import torch

from twill.pytorch.errors import AttentionError
from twill.pytorch.operands import shapes_of
from twill.pytorch.plan import forward, refuse_gradients

__all__ = ["attention_fwd", "attention_fwd_lse"]

ARGUMENTS = "(Tensor q, Tensor k, Tensor v, float? softmax_scale, bool causal)"

_library = torch.library.Library("twill", "DEF")
_tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
"""Exact strides: the compiler must not choose a layout of its own that would have to be copied."""
_library.define(f"attention_fwd{ARGUMENTS} -> Tensor", tags=_tags)
_library.define(f"attention_fwd_lse{ARGUMENTS} -> (Tensor, Tensor)", tags=_tags)


def _run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float | None, causal: bool) -> torch.Tensor:
    refuse_gradients(q, k, v)
    return forward(q, k, v, softmax_scale, causal, False)[0]


def _run_lse(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float | None, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    refuse_gradients(q, k, v)
    o, lse = forward(q, k, v, softmax_scale, causal, True)
    if lse is None:
        raise AttentionError("the log-sum-exp was asked for and not made", "report this: it is a mistake of twill")
    return o, lse


def _fake(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float | None, causal: bool) -> torch.Tensor:
    """The result without data; the errors of wrong operands come here while a model is traced."""
    refuse_gradients(q, k, v)
    return q.new_empty(shapes_of(q, k, v).output)


def _fake_lse(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float | None, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    refuse_gradients(q, k, v)
    shapes = shapes_of(q, k, v)
    return q.new_empty(shapes.output), q.new_empty(shapes.lse, dtype=torch.float32)


for _name, _kernel, _shape in (("attention_fwd", _run, _fake), ("attention_fwd_lse", _run_lse, _fake_lse)):
    _library.impl(_name, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"twill::{_name}", _shape, lib=_library)

attention_fwd = torch.ops.twill.attention_fwd.default
attention_fwd_lse = torch.ops.twill.attention_fwd_lse.default
