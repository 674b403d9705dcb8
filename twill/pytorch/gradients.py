"""From operands, results and the gradient of the output to dQ, dK and dV. What a signature decides is worked out once and kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from twill.pytorch.catalogue import KernelFile
from twill.pytorch.counters import counter_of
from twill.pytorch.errors import AttentionError
from twill.pytorch.libraries import function_of
from twill.pytorch.operands import AS_IT_IS, DTYPE_NAMES, MOST, Layout, Shapes, addressable, checked_scale, layout, shapes_of
from twill.pytorch.selection import choose_backward
from twill.pytorch.target import Target, target_of

__all__ = ["Gradients", "backward", "forget_backward_plans", "refuse_without_backward", "workspace_words"]

MOST_PLANS = 4096
MMA_DEPTH = 16
"""Head dims of tiles are rounded up to it."""
MOST_ITERATIONS = 2**20
"""Of a work tile of keys: kernels tell tiles of queries and heads of a group apart by a reciprocal (`tiles_before` of their `Work`)."""

Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class BackwardPlan:
    """How calls of one signature run; ``function`` is ``None`` if all gradients are zero or empty. Layouts are of q, k, v, o and dO."""

    function: Callable[..., Any] | None
    target: Target
    layouts: tuple[Layout, Layout, Layout, Layout, Layout]
    lse_in_rows: bool
    workspace_words: int
    scale: float


_plans: dict[tuple[object, ...], BackwardPlan] = {}


def forget_backward_plans() -> None:
    """After the kernels have changed."""
    _plans.clear()
    _kernel.cache_clear()


@cache
def _kernel(arch: str | None, head_dim: int, head_dim_v: int) -> KernelFile:
    return choose_backward(arch, head_dim, head_dim_v)


def workspace_words(kernel: KernelFile, shapes: Shapes) -> int:
    """What a launch needs in words of 32 bits: for every row of every tile of queries its sum for dQ, its log-sum-exp and its sum of
    O * dO, and for every tile how many additions are over.
    """
    columns = -(-shapes.head_dim // MMA_DEPTH) * MMA_DEPTH
    tiles = shapes.batch * shapes.heads * -(-shapes.seqlen_q // kernel.rows)
    return tiles * (kernel.rows * (columns + 2) + 1)


def refuse_without_backward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Say before the forward runs that there is no kernel for its gradients.

    Fake tensors may be on a GPU that is not there: then only head dims are looked at. Those are numbers in whatever is traced.

    Raises
    ------
    AttentionError : there is none; or the operands do not fit together.
    """
    shapes = shapes_of(q, k, v)
    here = q.device.type == "cuda" and torch.cuda.is_available()
    _kernel(target_of(q.device).arch if here else None, int(shapes.head_dim), int(shapes.head_dim_v))


def backward(
    do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, softmax_scale: float | None,
    causal: bool, deterministic: bool = False,
) -> Gradients:  # fmt: skip
    """dQ, dK and dV for the gradient ``do`` of ``o``, contiguous and in the type of the operands, on the current stream.

    ``o`` and ``lse`` are what the forward gave for the same ``q``, ``k``, ``v``, scale and mask. ``deterministic`` gradients are the same
    to the bit in every run, and so are all while PyTorch is told to use deterministic algorithms: blocks then add to dQ in one order, not
    as they come. dK and dV always are.

    Raises
    ------
    AttentionError : before anything is launched, whatever is wrong with the tensors.
    """
    plan = _plan_of(do, q, k, v, o, lse, causal, deterministic or torch.are_deterministic_algorithms_enabled())
    scale = plan.scale if softmax_scale is None else checked_scale(softmax_scale)
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    if plan.function is None:
        return dq.zero_(), dk.zero_(), dv.zero_()
    given = [addressable(x, how) for x, how in zip((q, k, v, o, do), plan.layouts, strict=True)]
    rows = lse if plan.lse_in_rows else lse.contiguous()
    workspace = torch.empty(plan.workspace_words, dtype=torch.float32, device=q.device)
    with torch.cuda.device(plan.target.index):
        plan.function(*given, rows, dq, dk, dv, workspace, counter_of(plan.target.index), scale, plan.target.sm_count)
    return dq, dk, dv


def _plan_of(
    do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, causal: bool,
    deterministic: bool,
) -> BackwardPlan:  # fmt: skip
    tensors = (do, q, k, v, o, lse)
    try:
        key = (causal, deterministic, *((x.shape, x.stride(), x.dtype, x.device) for x in tensors))
    except RuntimeError:  # there are tensors without strides
        _refuse_mismatch(shapes_of(q, k, v), q, o, do, lse)
        raise
    plan = _plans.get(key)
    if plan is None:
        plan = _make_plan(do, q, k, v, o, lse, causal, deterministic)
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        _plans[key] = plan
    return plan


def _make_plan(
    do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, causal: bool,
    deterministic: bool,
) -> BackwardPlan:  # fmt: skip
    target, shapes = target_of(q.device), shapes_of(q, k, v)
    _refuse_mismatch(shapes, q, o, do, lse)
    kernel = choose_backward(target.arch, shapes.head_dim, shapes.head_dim_v, causal, shapes.seqlen_q)
    scale = shapes.head_dim**-0.5
    if 0 in shapes.output or shapes.seqlen_k == 0:
        return BackwardPlan(None, target, (AS_IT_IS,) * 5, True, 0, scale)
    _refuse_sizes(shapes, kernel)
    function = function_of(kernel, DTYPE_NAMES[q.dtype], causal, False, deterministic)
    layouts = (layout(q), layout(k), layout(v), layout(o), layout(do))
    return BackwardPlan(function, target, layouts, lse.stride(2) == 1, workspace_words(kernel, shapes), scale)


def _refuse_mismatch(shapes: Shapes, q: torch.Tensor, o: torch.Tensor, do: torch.Tensor, lse: torch.Tensor) -> None:
    """What the forward gave, and its gradient, have to be of the same call."""
    wanted = {"o": (o, shapes.output, q.dtype), "the gradient of o": (do, shapes.output, q.dtype), "lse": (lse, shapes.lse, torch.float32)}
    for name, (x, shape, dtype) in wanted.items():
        if (tuple(x.shape), x.dtype, x.device, x.layout) != (shape, dtype, q.device, torch.strided):
            raise AttentionError(
                f"{name} is {tuple(x.shape)}, {x.dtype}, {x.layout}, on {x.device}",
                f"for these operands it has to be {shape}, {dtype}, dense, on {q.device}: pass what attention_fwd_lse gave for them",
            )


def _refuse_sizes(shapes: Shapes, kernel: KernelFile) -> None:
    """What kernels would count beyond 32 bits."""
    counted = {
        "queries": shapes.seqlen_q, "keys": shapes.seqlen_k,
        "tiles of queries": shapes.batch * shapes.heads * -(-shapes.seqlen_q // kernel.rows),
        "tiles of keys": shapes.batch * shapes.kv_heads * -(-shapes.seqlen_k // kernel.keys),
    }  # fmt: skip
    for name, count in counted.items():
        if count > MOST:
            raise AttentionError(f"there are {count} {name}; kernels of gradients count at most {MOST}", "call it in parts")
    iterations = -(-shapes.seqlen_q // kernel.rows) * (shapes.heads // shapes.kv_heads)
    if iterations >= MOST_ITERATIONS:
        text = f"{iterations} tiles of queries share a head of k and v; kernels of gradients count fewer than {MOST_ITERATIONS}"
        raise AttentionError(text, "call it for some of the heads at a time")
