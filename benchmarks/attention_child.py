"""``python -m benchmarks.attention_child``: times one row in the process that `benchmarks.attention` watches over.

With ``--once ROW CONTENDER`` it calls one contender three times between start and stop of the profiler, for ncu.
"""

from __future__ import annotations

import json
import random
import sys
import time
import traceback
from typing import Any

from benchmarks.attention_rows import Row
from benchmarks.contenders import CONTENDERS, Attention, versions
from benchmarks.watchdog import serve

__all__ = ["PROFILED_CALLS", "answer", "times"]

PROFILED_CALLS = 3
WARM_S = 0.02
SEED = 20261130
DIFFERENCE = 0.05
"""More than rounding can make of normally distributed operands: a contender that is further from the others computes something else."""


def _operands(row: Row, device: str = "cuda") -> tuple[Any, Any, Any]:
    import torch

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[row.dtype]
    make = torch.Generator(device=device).manual_seed(SEED)
    shape = (row.batch, row.seqlen, row.heads)
    q, k, v = (torch.randn((*shape, d), generator=make, device=device, dtype=dtype) for d in (row.head_dim, row.head_dim, row.head_dim_v))
    return q, k, v


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


def agreeing(outputs: dict[str, Any]) -> dict[str, str]:
    """Contenders whose output is not that of the majority, with how far they are from it."""
    names = list(outputs)
    apart = {a: {b: float((outputs[a].float() - outputs[b].float()).abs().max()) for b in names if b != a} for a in names}
    return {
        name: f"differs from the others by {min(others.values()):.3g}"
        for name, others in apart.items()
        if others and sum(not d <= DIFFERENCE for d in others.values()) * 2 > len(others)
    }


def _loaded(names: list[str], row: Row, given: tuple[Any, Any, Any]) -> tuple[dict[str, Attention], dict[str, str]]:
    """Contenders that run this row, and why the others do not."""
    import torch

    calls: dict[str, Attention] = {}
    reasons: dict[str, str] = {}
    outputs: dict[str, Any] = {}
    for name in names:
        try:
            calls[name] = CONTENDERS[name]()
            outputs[name] = calls[name](*given, row.causal)
            torch.cuda.synchronize()
        except Exception:
            calls.pop(name, None)
            reasons[name] = traceback.format_exc(limit=-1).strip()[-600:]
    for name, reason in agreeing(outputs).items():
        del calls[name]
        reasons[name] = reason
    return calls, reasons


def answer(question: dict[str, Any]) -> dict[str, object]:
    """Times of a row; or, asked for nothing but ``versions``, what is installed."""
    import torch

    if "versions" in question:
        properties = torch.cuda.get_device_properties(0)
        return {"versions": versions(), "device": properties.name, "sm_count": properties.multi_processor_count}
    row = Row(**question["row"])
    given = _operands(row)
    with torch.no_grad():
        calls, reasons = _loaded(question["contenders"], row, given)
        began = time.monotonic()
        found = times(calls, given, row.causal, rounds=question["rounds"], burst_ms=question["burst_ms"], clock=Clock())
    return {"ms": found, "reasons": reasons, "seconds": time.monotonic() - began}


def _once(row: Row, contender: str) -> None:
    import torch

    given = _operands(row)
    with torch.no_grad():
        call = CONTENDERS[contender]()
        for _ in range(2):
            call(*given, row.causal)
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        for _ in range(PROFILED_CALLS):
            call(*given, row.causal)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--once"]:
        _once(Row(**json.loads(sys.argv[2])), sys.argv[3])
    else:
        serve(answer)
