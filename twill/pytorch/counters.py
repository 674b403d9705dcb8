"""The counters from which a kernel's blocks draw their work tiles: one int32 each, 0 whenever no kernel runs."""

from __future__ import annotations

import torch

__all__ = ["counter_of"]

LEGACY = 0
"""The default stream, which cannot be captured (CUDA runtime API, cudaStreamBeginCapture)."""

_counters: dict[tuple[int, int], torch.Tensor] = {}


def counter_of(device: int) -> torch.Tensor:
    """A counter for a launch on the device's current stream.

    Launches of one stream follow each other and share theirs. One captured into a CUDA graph gets its own, cleared by the graph: the
    graph may be replayed on any stream.
    """
    stream = torch._C._cuda_getCurrentRawStream(device)
    if stream != LEGACY and torch.cuda.is_current_stream_capturing():
        return _new(device)
    key = (device, stream)
    counter = _counters.get(key)
    if counter is None:
        counter = _counters[key] = _new(device)
    return counter


def _new(device: int) -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int32, device=torch.device("cuda", device))
