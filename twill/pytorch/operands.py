"""What q, k and v must be, and the views of them that a kernel can take.

Everything here looks at shapes, strides and types only, so it holds for fake tensors as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from twill.pytorch.errors import AttentionError

__all__ = [
    "ALIGNMENT_BYTES", "AS_IT_IS", "DTYPE_NAMES", "MOST", "UNALIGNED", "Layout", "Shapes", "addressable", "checked_scale", "layout",
    "layout_of", "shapes_of", "shared_heads",
]  # fmt: skip

DTYPE_NAMES: dict[torch.dtype, Literal["bf16", "fp16"]] = {torch.bfloat16: "bf16", torch.float16: "fp16"}
ALIGNMENT_BYTES = 16
"""Of a tensor's first element and of its strides: what TMA can address (PTX ISA, tensor maps)."""
UNALIGNED = ALIGNMENT_BYTES - 1
MOST = 2**31 - 2**16
"""Kernels count positions, tiles of keys and work tiles in 32 bits, some tiles or blocks beyond the last. The number of elements is not
limited: addresses are 64-bit."""
MOST_STRIDE_BYTES = 2**40
"""A tensor map holds smaller strides only."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """The sizes of one call."""

    batch: int
    seqlen_q: int
    seqlen_k: int
    heads: int
    kv_heads: int
    head_dim: int
    head_dim_v: int

    @property
    def output(self) -> tuple[int, int, int, int]:
        return (self.batch, self.seqlen_q, self.heads, self.head_dim_v)

    @property
    def lse(self) -> tuple[int, int, int]:
        return (self.batch, self.heads, self.seqlen_q)


def _said(shape: Sequence[int]) -> str:
    return "(" + ", ".join(str(n) for n in shape) + ")"


def shapes_of(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Shapes:
    """The sizes, if these three tensors belong together.

    Raises
    ------
    AttentionError : with the tensor and the sizes at fault.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != 4:
            raise AttentionError(f"{name} has {x.dim()} dimensions", "pass (batch, seq, heads, dim)")
        if x.dtype not in DTYPE_NAMES:
            raise AttentionError(f"{name} is {x.dtype}", "convert to torch.bfloat16 or torch.float16")
        if x.layout is not torch.strided:
            raise AttentionError(f"{name} has layout {x.layout}", "pass dense tensors")
    for name, x in (("k", k), ("v", v)):
        if x.dtype != q.dtype:
            raise AttentionError(f"{name} is {x.dtype} and q is {q.dtype}", "convert all three to one type")
        if x.device != q.device:
            raise AttentionError(f"{name} is on {x.device} and q on {q.device}", "move all three to one device")
    batch, seqlen_q, heads, head_dim = q.shape
    _, seqlen_k, kv_heads, head_dim_v = v.shape
    if k.shape[0] != batch or v.shape[0] != batch:
        raise AttentionError(f"batch sizes differ: q {batch}, k {k.shape[0]}, v {v.shape[0]}", "expand k and v to the batch of q")
    if k.shape[1] != seqlen_k or k.shape[2] != kv_heads:
        raise AttentionError(f"k {_said(k.shape)} and v {_said(v.shape)} differ in length or heads", "only their head dims may differ")
    if k.shape[3] != head_dim:
        raise AttentionError(f"head dims differ: q {head_dim}, k {k.shape[3]}", "q and k must have the same; v may have another")
    if head_dim == 0 or head_dim_v == 0:
        raise AttentionError(f"a head dim is 0: q {_said(q.shape)}, v {_said(v.shape)}", "pass (batch, seq, heads, dim)")
    if heads != kv_heads and (kv_heads == 0 or heads % kv_heads != 0):
        raise AttentionError(f"{heads} heads of q cannot share {kv_heads} heads of k and v", "the second must divide the first")
    return Shapes(batch, seqlen_q, seqlen_k, heads, kv_heads, head_dim, head_dim_v)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a tensor gets into a form that TMA can address.

    ``copy`` says that it has to be copied; ``strides`` are those to view it with (``None``: as it is). A view differs from the
    tensor only in the strides of dimensions of size 1.
    """

    copy: bool
    strides: tuple[int, ...] | None


AS_IT_IS = Layout(copy=False, strides=None)


def layout(x: torch.Tensor) -> Layout:
    """The layout for a tensor (batch, seq, heads, dim), no size of which is 0."""
    return layout_of(x.shape, x.stride(), x.element_size())


def layout_of(shape: Sequence[int], strides: Sequence[int], element_bytes: int) -> Layout:
    """The layout for a tensor of these sizes and strides."""
    step = ALIGNMENT_BYTES // element_bytes
    most = MOST_STRIDE_BYTES // element_bytes
    *outer, last = zip(shape, strides, strict=True)
    if last[0] > 1 and last[1] != 1:
        return Layout(True, None)
    if any(size > 1 and (stride <= 0 or stride % step or stride >= most) for size, stride in outer):
        return Layout(True, None)
    if all(size > 1 or (stride > 0 and stride % step == 0 and stride < most) for size, stride in outer) and last[1] == 1:
        return AS_IT_IS
    usable = tuple(stride if size > 1 else -(-shape[3] // step) * step for size, stride in outer)
    return Layout(False, (*usable, 1))


def addressable(x: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The tensor as a kernel can address it; copied only where no view will do."""
    if layout.copy or x.data_ptr() & UNALIGNED:
        return x.clone(memory_format=torch.contiguous_format)
    return x if layout.strides is None else x.as_strided(x.shape, layout.strides)


def checked_scale(scale: float) -> float:
    """The scale.

    Raises
    ------
    AttentionError : it is not positive and finite.
    """
    if not 0.0 < scale < math.inf:
        raise AttentionError(f"softmax_scale is {scale}", "it must be positive and finite; for a negative one negate q")
    return scale


def shared_heads(shape: Sequence[int], *strides: Sequence[int]) -> bool:
    """Whether all heads of k and of v are one and the same head, expanded: then one head is shared by all of q, with nothing copied."""
    return shape[2] > 1 and all(s[2] == 0 for s in strides)
