"""Attention kernels timed beside each other on one GPU, in this process."""

from __future__ import annotations

import math
import random
import traceback
from typing import Any

from twill.bench.contenders import CONTENDERS, Attention, backward_of
from twill.bench.rows import Row

__all__ = ["Clock", "agreeing", "gradient", "loaded", "operands", "times"]

WARM_S = 0.02
SEED = 20261130
DIFFERENCE = 0.05
"""More than rounding can make of normally distributed operands: a contender that is further from the others computes something else."""


def operands(row: Row, device: str = "cuda") -> tuple[Any, Any, Any]:
    """Q, K and V of a row, normally distributed, the same for the same row."""
    import torch

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[row.dtype]
    make = torch.Generator(device=device).manual_seed(SEED)
    shape = (row.batch, row.seqlen, row.heads)
    q, k, v = (torch.randn((*shape, d), generator=make, device=device, dtype=dtype) for d in (row.head_dim, row.head_dim, row.head_dim_v))
    return q, k, v


def gradient(row: Row, device: str = "cuda") -> Any:
    """The gradient of a row's output, normally distributed."""
    import torch

    make = torch.Generator(device=device).manual_seed(SEED + 1)
    shape = (row.batch, row.seqlen, row.heads, row.head_dim_v)
    return torch.randn(shape, generator=make, device=device, dtype={"bf16": torch.bfloat16, "fp16": torch.float16}[row.dtype])


class Clock:
    """Times bursts on the GPU with events."""

    def burst(self, call: Attention, given: tuple[Any, Any, Any], causal: bool, calls: int) -> float:
        """Milliseconds a call."""
        import torch

        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            call(*given, causal)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / calls


def times(
    calls: dict[str, Attention], given: tuple[Any, Any, Any], causal: bool, *, rounds: int, burst_ms: float, clock: Any
) -> dict[str, list[float]]:
    """Milliseconds a call: a burst of each contender a round, in a new random order each round, each burst warmed by its own kernel."""
    shuffle = random.Random(SEED)
    estimate = {name: max(clock.burst(call, given, causal, 2), 1e-3) for name, call in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        order = list(calls)
        shuffle.shuffle(order)
        for name in order:
            clock.burst(calls[name], given, causal, max(1, round(WARM_S * 1e3 / estimate[name])))
            found[name].append(clock.burst(calls[name], given, causal, max(2, round(burst_ms / estimate[name]))))
    return found


def _apart(one: Any, other: Any) -> float:
    """The largest difference of outputs; of gradients, whose size is not known beforehand, the norm of the difference, relative."""
    if isinstance(one, tuple):
        parts = [float((a.float() - b.float()).norm() / b.float().norm()) for a, b in zip(one, other, strict=True)]
        return math.nan if any(math.isnan(x) for x in parts) else max(parts)
    return float((one.float() - other.float()).abs().max())


def agreeing(outputs: dict[str, Any]) -> dict[str, str]:
    """Contenders whose output, or three gradients, are not those of the majority, with how far they are from it."""
    names = list(outputs)
    apart = {a: {b: _apart(outputs[a], outputs[b]) for b in names if b != a} for a in names}
    return {
        name: f"differs from the others by {min(others.values()):.3g}"
        for name, others in apart.items()
        if others and sum(not d <= DIFFERENCE for d in others.values()) * 2 > len(others)
    }


def loaded(names: list[str], row: Row, given: tuple[Any, Any, Any]) -> tuple[dict[str, Attention], dict[str, str]]:
    """Contenders that run this row, and why the others do not."""
    import torch

    calls: dict[str, Attention] = {}
    reasons: dict[str, str] = {}
    outputs: dict[str, Any] = {}
    for name in names:
        try:
            forward = CONTENDERS[name]()
            calls[name] = backward_of(forward, *given, gradient(row), row.causal) if row.gradients else forward
            outputs[name] = calls[name](*given, row.causal)
            torch.cuda.synchronize()
        except Exception:
            calls.pop(name, None)
            reasons[name] = traceback.format_exc(limit=-1).strip()[-600:]
    for name, reason in agreeing(outputs).items():
        del calls[name]
        reasons[name] = reason
    return calls, reasons
