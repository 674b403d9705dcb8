"""The GPU that tensors are on, as far as a choice of kernel needs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from twill.pytorch.errors import AttentionError

__all__ = ["Target", "current_device", "target_of"]

current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
"""``torch.cuda.current_device`` without looking whether CUDA is initialized: where there is a tensor on a GPU, it is."""

ARCHITECTURES = {(9, 0): "sm90", (10, 0): "sm100", (10, 3): "sm103"}
"""Compute capabilities by the names of `twill list machines`. They are exact: sm90 code with wgmma runs on 9.0 alone."""


@dataclass(frozen=True, slots=True)
class Target:
    """Architecture and number of SMs; ``index`` is the device's number among CUDA devices."""

    arch: str
    sm_count: int
    index: int


@cache
def target_of(device: torch.device) -> Target:
    """The GPU of a device.

    Raises
    ------
    AttentionError : not a CUDA device, or an architecture that is not known.
    """
    if device.type != "cuda" or torch.version.hip:
        raise AttentionError(f"attention needs tensors on a CUDA device; these are on {device}", "move them with .to('cuda')")
    found = torch.cuda.get_device_properties(device)
    arch = ARCHITECTURES.get((found.major, found.minor))
    if arch is None:
        known = ", ".join(f"{name} (compute capability {a}.{b})" for (a, b), name in ARCHITECTURES.items())
        raise AttentionError(
            f"{found.name} has compute capability {found.major}.{found.minor}, for which twill knows no kernels", f"it knows {known}"
        )
    return Target(arch, found.multi_processor_count, device.index if device.index is not None else torch.cuda.current_device())
