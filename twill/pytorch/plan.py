"""From a call's signature to a launch. What a signature decides is worked out once and kept: a `Plan`.

The signature is types, devices, shapes, strides and flags. What it does not tell, the alignment of the data and the scale, is looked at in
every call. The way of a call whose signature was seen before is meant to take a few microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import empty_like

from twill.pytorch.counters import counter_of
from twill.pytorch.errors import AttentionError
from twill.pytorch.libraries import function_of
from twill.pytorch.operands import (
    AS_IT_IS,
    DTYPE_NAMES,
    MOST,
    UNALIGNED,
    Layout,
    Shapes,
    addressable,
    checked_scale,
    layout,
    shapes_of,
    shared_heads,
)  # fmt: skip
from twill.pytorch.selection import Workload, choose
from twill.pytorch.target import Target, current_device, target_of

__all__ = ["Plan", "forget_plans", "forward"]

MOST_PLANS = 4096
"""Where lengths change from call to call signatures never end: beyond this many all are forgotten."""

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Results = tuple[torch.Tensor, torch.Tensor | None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How calls of one signature run. ``function`` is ``None`` if there are no keys or nothing to write."""

    function: Callable[..., Any] | None
    o: torch.Tensor
    lse: torch.Tensor | None
    """What results are like: tensors without memory, for to make one like another takes half as long as to make one from sizes."""
    scale: float
    target: Target
    layouts: tuple[Layout, Layout, Layout]
    as_they_are: bool
    heads_shared: bool

    def operands(self, given: Tensors) -> Tensors:
        """The operands as the kernel can address them; copied only where no view will do."""
        q, k, v = given
        if self.heads_shared:
            k, v = k[:, :, :1], v[:, :, :1]
        return addressable(q, self.layouts[0]), addressable(k, self.layouts[1]), addressable(v, self.layouts[2])


_plans: dict[tuple[object, ...], Plan] = {}


def forget_plans() -> None:
    """After the kernels have changed."""
    _plans.clear()
    function_of.cache_clear()


def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float | None, causal: bool, with_lse: bool) -> Results:
    """Validate, allocate and launch on the current stream; the log-sum-exp is ``None`` unless asked for.

    Raises
    ------
    AttentionError : before anything is launched, whatever is wrong with the operands.
    """
    plan = _plan_of(q, k, v, causal, with_lse)
    scale = plan.scale if softmax_scale is None else checked_scale(softmax_scale)
    o = empty_like(plan.o)
    lse = None if plan.lse is None else empty_like(plan.lse)
    if plan.function is None:
        o.zero_()
        return o, None if lse is None else lse.fill_(-math.inf)
    if not plan.as_they_are or (q.data_ptr() | k.data_ptr() | v.data_ptr()) & UNALIGNED:
        q, k, v = plan.operands((q, k, v))
    target = plan.target
    if target.index == current_device():
        plan.function(q, k, v, o, lse, counter_of(target.index), scale, target.sm_count)
    else:
        with torch.cuda.device(target.index):
            plan.function(q, k, v, o, lse, counter_of(target.index), scale, target.sm_count)
    return o, lse


def _plan_of(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, with_lse: bool) -> Plan:
    try:
        key = (
            q.shape, q.stride(), q.dtype, q.device, k.shape, k.stride(), k.dtype, k.device, v.shape, v.stride(), v.dtype, v.device,
            causal, with_lse,
        )  # fmt: skip
    except RuntimeError:  # there are tensors without strides
        shapes_of(q, k, v)
        raise
    plan = _plans.get(key)
    if plan is None:
        plan = _make_plan(q, k, v, causal, with_lse)
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        _plans[key] = plan
    return plan


def _make_plan(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, with_lse: bool) -> Plan:
    target, shapes = target_of(q.device), shapes_of(q, k, v)
    kernel = choose(
        Workload(
            target.arch, target.sm_count, shapes.head_dim, shapes.head_dim_v, causal, shapes.batch * shapes.heads, shapes.seqlen_q,
            shapes.seqlen_k,
        )
    )  # fmt: skip
    _refuse_sizes(shapes, kernel.rows)
    scale, o = shapes.head_dim**-0.5, _like(q, shapes.output, q.dtype)
    lse = _like(q, shapes.lse, torch.float32) if with_lse else None
    if 0 in shapes.output or shapes.seqlen_k == 0:
        return Plan(None, o, lse, scale, target, (AS_IT_IS, AS_IT_IS, AS_IT_IS), True, False)
    function = function_of(kernel, DTYPE_NAMES[q.dtype], causal, with_lse)
    shared = shared_heads(k.shape, k.stride(), v.stride())
    if shared:
        k, v = k[:, :, :1], v[:, :, :1]
    layouts = (layout(q), layout(k), layout(v))
    return Plan(function, o, lse, scale, target, layouts, not shared and layouts == (AS_IT_IS,) * 3, shared)


def _like(q: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A contiguous tensor on the device of q, without memory."""
    made = q.new_empty(shape, dtype=dtype)
    made.untyped_storage().resize_(0)
    return made


def _refuse_sizes(shapes: Shapes, rows: int) -> None:
    """What kernels would count beyond 32 bits; ``rows`` is the height of a work tile."""
    for name, length in (("q has", shapes.seqlen_q), ("k and v have", shapes.seqlen_k)):
        if length > MOST:
            raise AttentionError(f"{name} {length} positions; kernels count at most {MOST}", "split the sequence")
    work_tiles = shapes.batch * shapes.heads * -(-shapes.seqlen_q // rows)
    if work_tiles > MOST:
        raise AttentionError(f"batch, heads and queries make {work_tiles} work tiles; kernels count at most {MOST}", "call it in parts")
