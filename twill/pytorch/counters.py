"""The counters from which a kernel's blocks draw their work tiles: one int32 each, 0 whenever no kernel runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch

__all__ = ["counter_of"]

LEGACY = 0
"""The default stream, which cannot be captured (CUDA runtime API, cudaStreamBeginCapture)."""
AT_ONCE = 256
"""Counters that are made together."""
APART = 32
"""Distance of two counters in int32, 128 bytes: streams that count at the same time do not touch the same line of L2."""

_counters: dict[tuple[int, int], torch.Tensor] = {}
_spare: dict[int, list[torch.Tensor]] = {}


def counter_of(device: int) -> torch.Tensor:
    """A counter for a launch on the device's current stream.

    Launches of one stream follow each other and share theirs. One captured into a CUDA graph gets its own, cleared by the graph: the
    graph may be replayed on any stream.
    """
    stream = torch._C._cuda_getCurrentRawStream(device)
    if stream != LEGACY and torch.cuda.is_current_stream_capturing():
        return torch.zeros(1, dtype=torch.int32, device=torch.device("cuda", device))
    key = (device, stream)
    counter = _counters.get(key)
    if counter is None:
        counter = _counters[key] = _new(device)
    return counter


def _new(device: int) -> torch.Tensor:
    """A counter to keep.

    It is made by another thread. PyTorch's compiler runs what it is about to capture with all memory of the thread from the pool of the
    graph, where nothing may stay alive but results.
    """
    spare = _spare.setdefault(device, [])
    if not spare:
        with ThreadPoolExecutor(1) as aside:
            spare.extend(aside.submit(_cleared, torch.device("cuda", device)).result())
    return spare.pop()


def _cleared(device: torch.device) -> list[torch.Tensor]:
    """Counters that are 0 by the time that this returns, for whatever stream."""
    made = torch.zeros((AT_ONCE, APART), dtype=torch.int32, device=device)
    if made.is_cuda:
        torch.cuda.current_stream(device).synchronize()
    return [row[:1] for row in made]
