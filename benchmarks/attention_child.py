"""``python -m benchmarks.attention_child``: times one row in the process that `benchmarks.attention` watches over.

With ``--once ROW CONTENDER`` it calls one contender three times between start and stop of the profiler, for ncu.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from twill.bench.contenders import CONTENDERS, backward_of, versions
from twill.bench.rows import Row
from twill.bench.timing import Clock, gradient, loaded, operands, times
from twill.bench.watchdog import serve

__all__ = ["PROFILED_CALLS", "answer"]

PROFILED_CALLS = 3


def answer(question: dict[str, Any]) -> dict[str, object]:
    """Times of a row; or, asked for nothing but ``versions``, what is installed."""
    import torch

    if "versions" in question:
        properties = torch.cuda.get_device_properties(0)
        return {"versions": versions(), "device": properties.name, "sm_count": properties.multi_processor_count}
    row = Row(**question["row"])
    given = operands(row)
    with torch.no_grad():
        calls, reasons = loaded(question["contenders"], row, given)
        began = time.monotonic()
        found = times(calls, given, row.causal, rounds=question["rounds"], burst_ms=question["burst_ms"], clock=Clock())
    return {"ms": found, "reasons": reasons, "seconds": time.monotonic() - began}


def _once(row: Row, contender: str) -> None:
    import torch

    given = operands(row)
    with torch.no_grad():
        forward = CONTENDERS[contender]()
        call = backward_of(forward, *given, gradient(row), row.causal) if row.gradients else forward
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
