"""Attention kernels to time beside each other, all with one signature: ``f(q, k, v, causal) -> o``, (batch, seq, heads, dim), no gradient.

Each is looked up when asked for, and says in an exception why it cannot run here.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

__all__ = ["BACKWARD", "CONTENDERS", "PEERS", "TWILL", "backward_of", "versions"]

Attention = Callable[[Any, Any, Any, bool], Any]


def _first(result: Any) -> Any:
    """The output, where a library returns the log-sum-exp as well."""
    return result[0] if isinstance(result, tuple) else result


def _twill() -> Attention:
    import twill

    return lambda q, k, v, causal: twill.attention(q, k, v, causal=causal)


def _fa4() -> Attention:
    from flash_attn.cute import flash_attn_func

    return lambda q, k, v, causal: _first(flash_attn_func(q, k, v, causal=causal))


def _fa3() -> Attention:
    from fa3_fwd_interface import flash_attn_func

    return lambda q, k, v, causal: _first(flash_attn_func(q, k, v, causal=causal))


def _cudnn() -> Attention:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def run(q: Any, k: Any, v: Any, causal: bool) -> Any:
        seen = (x.transpose(1, 2) for x in (q, k, v))
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(*seen, is_causal=causal).transpose(1, 2)

    return run


def backward_of(forward: Attention, q: Any, k: Any, v: Any, do: Any, causal: bool) -> Callable[..., tuple[Any, Any, Any]]:
    """A function that makes dQ, dK and dV by autograd, of a forward that runs now and once; whatever it is given it takes no notice of."""
    import torch

    with torch.enable_grad():
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        o = forward(q, k, v, causal)
    return lambda *_: torch.autograd.grad(o, (q, k, v), do, retain_graph=True)


TWILL = "twill"
PEERS = ("FA4", "FA3", "cuDNN")
BACKWARD = (TWILL, "FA4", "cuDNN")
"""Those that have a backward here."""
CONTENDERS: dict[str, Callable[[], Attention]] = {TWILL: _twill, "FA4": _fa4, "FA3": _fa3, "cuDNN": _cudnn}


def versions() -> dict[str, str]:
    """What is installed here, by name."""
    import torch

    found = {"torch": str(torch.__version__), "CUDA": str(torch.version.cuda)}
    if torch.backends.cudnn.is_available():
        found["cuDNN"] = str(torch.backends.cudnn.version())
    for package in ("flash-attn-4", "fa3-fwd", "nvidia-cutlass-dsl", "apache-tvm-ffi"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
