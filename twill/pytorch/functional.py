"""The functions that users call."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, overload

import torch
from torch.compiler import is_compiling

from twill.pytorch import catalogue
from twill.pytorch.autograd import Differentiable
from twill.pytorch.catalogue import KernelFile, read_kernel
from twill.pytorch.eager import nothing_looks_on, wants_gradients
from twill.pytorch.errors import AttentionError
from twill.pytorch.gradients import forget_backward_plans, refuse_without_backward
from twill.pytorch.libraries import set_libraries
from twill.pytorch.op import attention_fwd, attention_fwd_lse
from twill.pytorch.plan import forget_plans, forward

__all__ = ["attention", "register_kernel", "scaled_dot_product_attention", "unregister_kernel", "use_libraries"]


@overload
def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float | None = None, causal: bool = False,
    return_lse: Literal[False] = False, *, deterministic: bool = False,
) -> torch.Tensor: ...  # fmt: skip
@overload
def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float | None = None, causal: bool = False, *,
    return_lse: Literal[True], deterministic: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]: ...  # fmt: skip
def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float | None = None, causal: bool = False,
    return_lse: bool = False, *, deterministic: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """``softmax(q k^T * softmax_scale) v`` for every batch and head, by a kernel that twill emitted.

    Parameters
    ----------
    q : (batch, seqlen_q, heads, head_dim), bfloat16 or float16, on a CUDA device.
    k : (batch, seqlen_k, kv_heads, head_dim). ``kv_heads`` divides ``heads``: query head ``h`` reads head ``h // (heads // kv_heads)``.
    v : (batch, seqlen_k, kv_heads, head_dim_v).
    softmax_scale : positive; by default ``head_dim ** -0.5``.
    causal : query ``i`` sees key ``j`` only if ``j <= i + seqlen_k - seqlen_q``: the last query sees the last key.
    return_lse : return ``(o, lse)``.
    deterministic : gradients that are the same to the bit in every run, for some speed (docs/backward.md); so they are while
        ``torch.use_deterministic_algorithms`` is on. The output always is.

    Returns
    -------
    o : (batch, seqlen_q, heads, head_dim_v), contiguous, in the type of ``q``. A query without keys gives zeros.
    lse : (batch, heads, seqlen_q), float32, the natural logarithm of the sum of exponentials of scaled scores; ``-inf`` without keys.

    Notes
    -----
    Any length may be 0, and so may batch and heads. Operands need not be contiguous: they are read where they lie as long as the last
    stride is 1, the others are positive multiples of 8 elements, and the first element is aligned to 16 bytes. An operand that is not so,
    and one that is expanded (stride 0) along batch or sequence, is copied first. k and v that are both expanded along their heads are not
    copied: one head is read by all.

    The kernel runs on the current stream. The first call for a pair of head dims compiles the kernel, if no cache and no folder of
    libraries has it; it cannot be inside the capture of a CUDA graph.

    It is differentiable, once, with respect to q, k and v through ``o``, for the head dims for which there is a kernel of gradients.
    ``lse`` has no gradient.

    Raises
    ------
    AttentionError : before anything is launched: wrong type, shape or device, an architecture or a head dim for which there is no kernel,
        none of gradients if one is wanted.
    BuildError : the kernel cannot be compiled.
    """
    if wants_gradients(q, k, v):
        return _differentiable(q, k, v, softmax_scale, causal, return_lse, deterministic)
    if not is_compiling() and nothing_looks_on(q, k, v):
        o, lse = forward(q, k, v, softmax_scale, causal, return_lse)
        return o if lse is None else (o, lse)
    if return_lse:
        return attention_fwd_lse(q, k, v, softmax_scale, causal)
    return attention_fwd(q, k, v, softmax_scale, causal)


def _differentiable(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float | None, causal: bool, return_lse: bool, deterministic: bool
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """By the operator that keeps the log-sum-exp, from which gradients are made."""
    make = attention_fwd_lse
    if not is_compiling():
        refuse_without_backward(q, k, v)
        if nothing_looks_on(q, k, v):
            make = Differentiable.apply
    o, lse = make(q, k, v, softmax_scale, causal, deterministic)
    return (o, lse) if return_lse else o


def scaled_dot_product_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:  # fmt: skip
    """`attention` with the arguments, layout and conventions of ``torch.nn.functional.scaled_dot_product_attention``.

    Operands and result are (batch, heads, seq, dim); nothing is copied to get there, so the result is a view whose heads are not
    contiguous. What would not be what PyTorch computes is refused: masks, dropout, sharing heads without ``enable_gqa``, and a causal
    mask for different lengths, which PyTorch aligns with the first key and `attention` with the last.

    Raises
    ------
    AttentionError, BuildError : as `attention`.
    """
    if attn_mask is not None:
        raise AttentionError("attn_mask is not supported", "pass is_causal=True, or use torch.nn.functional.scaled_dot_product_attention")
    if dropout_p != 0.0:
        raise AttentionError(f"dropout_p is {dropout_p}; there is no dropout", "pass 0.0")
    if query.dim() != 4:
        raise AttentionError(f"query has {query.dim()} dimensions", "pass (batch, heads, seq, dim)")
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise AttentionError(f"{query.shape[1]} heads of query and {key.shape[1]} of key", "pass enable_gqa=True to share heads")
    if is_causal and query.shape[2] != key.shape[2]:
        raise AttentionError(
            f"is_causal with {query.shape[2]} queries and {key.shape[2]} keys: PyTorch aligns the mask with the first key",
            "call twill.attention(..., causal=True), which aligns it with the last",
        )
    o = attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), scale, is_causal)
    return o.transpose(1, 2)


def register_kernel(path: str | Path) -> KernelFile:
    """Use an emitted kernel of one's own: for its architecture and head dims it goes before all others until another is registered.

    Raises
    ------
    AttentionError : the file cannot be read or is not a kernel of attention as ``twill emit`` writes them.
    """
    kernel = read_kernel(Path(path))
    catalogue.add(kernel)
    _forget_plans()
    return kernel


def unregister_kernel(kernel: KernelFile) -> None:
    """Do without a kernel that was registered."""
    catalogue.remove(kernel)
    _forget_plans()


def use_libraries(folder: str | Path | None) -> None:
    """Take compiled kernels from a folder that ``twill build --all -o DIR`` wrote, and compile none; ``None`` undoes it.

    The environment variable ``TWILL_LIBRARIES`` does the same for a whole process.
    """
    set_libraries(None if folder is None else Path(folder))
    _forget_plans()


def _forget_plans() -> None:
    forget_plans()
    forget_backward_plans()
