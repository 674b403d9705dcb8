"""Which kernel a call gets, decided by what the kernel files say about themselves and by measured lengths in ``measured.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from twill.pytorch.catalogue import KernelFile, backward_kernels, kernels
from twill.pytorch.errors import AttentionError

__all__ = ["Workload", "choose", "choose_backward", "measured", "predicted_cycles"]


@dataclass(frozen=True, slots=True)
class Workload:
    """What decides the kernel: architecture and head dims must fit, the rest decides which of those that fit is the fastest."""

    arch: str
    sm_count: int
    head_dim: int
    head_dim_v: int
    causal: bool
    tiles_of_heads: int
    """Batch times query heads."""
    seqlen_q: int
    seqlen_k: int


@cache
def measured() -> tuple[tuple[str, bool, int], ...]:
    """``(kernel, causal, seqlen_q)`` of every line of ``measured.toml``: up to that many queries this kernel is the fastest one."""
    table = tomllib.loads(files("twill.pytorch").joinpath("measured.toml").read_text(encoding="utf-8"))
    return tuple((line["kernel"], bool(line["causal"]), int(line["seqlen_q"])) for line in table.get("fastest", ()))


def predicted_cycles(kernel: KernelFile, work: Workload) -> int:
    """Cycles of the busiest SM by the schedule's own count: its blocks, times key tiles of a block, times I.

    A causal mask halves the key tiles of all kernels alike and does not enter.
    """
    blocks = -(-work.seqlen_q // kernel.rows) * work.tiles_of_heads
    return -(-blocks // work.sm_count) * -(-work.seqlen_k // kernel.keys) * kernel.interval_cycles


def choose(work: Workload) -> KernelFile:
    """The user's latest kernel that fits; else the shipped one that was measured to be the fastest; else the one predicted to be.

    Raises
    ------
    AttentionError : there is none for this architecture and these head dims; says which there are and how to make one.
    """
    fits = [k for k in kernels() if (k.arch, k.head_dim, k.head_dim_v) == (work.arch, work.head_dim, work.head_dim_v)]
    if not fits:
        raise _none_fits(work, kernels())
    if fits[-1].own:
        return fits[-1]
    return _fastest(fits, work.causal, work.seqlen_q) or min(fits, key=lambda k: (predicted_cycles(k, work), -k.rows))


def _fastest(fits: Sequence[KernelFile], causal: bool, seqlen_q: int) -> KernelFile | None:
    """The one that was measured to be the fastest, if any was."""
    by_name = {k.name: k for k in fits}
    lines = [(upto, name) for name, masked, upto in measured() if name in by_name and masked == causal and seqlen_q <= upto]
    return by_name[min(lines)[1]] if lines else None


def choose_backward(arch: str | None, head_dim: int, head_dim_v: int, causal: bool = False, seqlen_q: int | None = None) -> KernelFile:
    """The user's latest kernel of gradients that fits; else the shipped one that was measured to be the fastest for so many queries; else
    the one of the fewest cycles a score. ``None`` fits every architecture, and stands for a length that is not known yet.

    Raises
    ------
    AttentionError : there is none for this architecture and these head dims; says which there are.
    """
    there = [k for k in backward_kernels() if arch in (k.arch, None)]
    fits = [k for k in there if (k.head_dim, k.head_dim_v) == (head_dim, head_dim_v)]
    if fits:
        if fits[-1].own:
            return fits[-1]
        known = _fastest(fits, causal, seqlen_q) if seqlen_q is not None else None
        return known or min(fits, key=lambda k: k.interval_cycles / (k.rows * k.keys))
    dims = ", ".join(_dims(*pair) for pair in sorted({(k.head_dim, k.head_dim_v) for k in there})) or "none"
    where = f" on {arch}" if arch else ""
    raise AttentionError(
        f"a gradient is wanted, and there is no kernel for it at head dim {_dims(head_dim, head_dim_v)}{where}; there are {dims}",
        "call it under torch.no_grad() or pass x.detach(); to train, use torch.nn.functional.scaled_dot_product_attention",
    )


def _dims(head_dim: int, head_dim_v: int) -> str:
    return f"{head_dim}" if head_dim == head_dim_v else f"{head_dim}/{head_dim_v}"


def _none_fits(work: Workload, there: Sequence[KernelFile]) -> AttentionError:
    archs = sorted({k.arch for k in there})
    if work.arch not in archs:
        return AttentionError(
            f"there is no attention kernel for {work.arch} yet; there are kernels for {', '.join(archs)}",
            f"run on a GPU of {' or '.join(archs)}, or use torch.nn.functional.scaled_dot_product_attention",
        )
    dims = ", ".join(_dims(*pair) for pair in sorted({(k.head_dim, k.head_dim_v) for k in there if k.arch == work.arch}))
    wanted = f"--head-dim {work.head_dim}" + (f" --head-dim-v {work.head_dim_v}" if work.head_dim_v != work.head_dim else "")
    return AttentionError(
        f"there is no kernel for head dim {_dims(work.head_dim, work.head_dim_v)} on {work.arch}; there are {dims}",
        f"make one with `twill emit --arch {work.arch} attn_fwd {wanted} -o FILE`, then twill.register_kernel(FILE)",
    )
