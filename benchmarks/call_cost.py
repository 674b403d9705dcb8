"""What a call of ``twill.attention`` costs the host, step by step: ``python -m benchmarks.call_cost [--json FILE]``, on a GPU.

A step is timed alone, in bursts that the GPU's queue takes without waiting, with the GPU idle before each; the figure is the median over
bursts, and the least. Steps need not add up to the whole: what one leaves in the processor's caches the next one finds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["main", "microseconds", "steps"]

BURSTS = 40
BURST = 100


def microseconds(step: Callable[[], object], idle: Callable[[], object]) -> tuple[float, float]:
    """Of one call of a step: median over bursts, and the least."""
    found = []
    for _ in range(BURSTS):
        idle()
        began = time.perf_counter()
        for _ in range(BURST):
            step()
        found.append((time.perf_counter() - began) / BURST * 1e6)
    return statistics.median(found), min(found)


def steps(q: Any, k: Any, v: Any) -> dict[str, Callable[[], object]]:
    """The whole call in its three ways, and its steps by themselves."""
    import torch

    import twill
    from twill.pytorch import plan as plans
    from twill.pytorch.counters import counter_of
    from twill.pytorch.eager import nothing_looks_on, wants_gradients
    from twill.pytorch.op import attention_fwd
    from twill.pytorch.target import current_device

    o, lse = twill.attention(q, k, v, return_lse=True)
    plan = plans._plan_of(q, k, v, False, True)
    index, sm_count = plan.target.index, plan.target.sm_count
    function: Any = plan.function
    counter = counter_of(index)
    return {
        "twill.attention": lambda: twill.attention(q, k, v),
        "twill.attention with the log-sum-exp": lambda: twill.attention(q, k, v, return_lse=True),
        "the operator": lambda: attention_fwd(q, k, v, None, False),
        "host function and launch": lambda: function(q, k, v, o, lse, counter, plan.scale, sm_count),
        "a kernel of PyTorch's, for comparison": lambda: counter.zero_(),
        "signature and plan": lambda: plans._plan_of(q, k, v, False, True),
        "allocate the output": lambda: torch.empty_like(plan.o),
        "allocate the log-sum-exp": lambda: torch.empty_like(lse),
        "counter of the stream": lambda: counter_of(index),
        "current device": current_device,
        "who looks on": lambda: nothing_looks_on(q, k, v) and not wants_gradients(q, k, v),
        "nothing": lambda: None,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    import torch

    parser = argparse.ArgumentParser(prog="python -m benchmarks.call_cost", description="what a call costs the host")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the measurements")
    given = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        sys.stderr.write("there is no CUDA device to launch on\n")
        return 1
    q, k, v = (torch.randn(2, 128, 6, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    found = {name: microseconds(step, torch.cuda.synchronize) for name, step in steps(q, k, v).items()}
    sys.stdout.write(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; microseconds, median and least of {BURSTS} bursts\n")
    for name, (median, least) in found.items():
        sys.stdout.write(f"{median:8.2f} {least:8.2f}  {name}\n")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
