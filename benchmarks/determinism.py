"""What deterministic gradients cost: ``python -m benchmarks.determinism [--json FILE]``, on a GPU; ``--from FILE --write`` for the table.

Both ways are timed in turns, as `benchmarks.attention` times contenders, on its rows of gradients for which there is a kernel.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import markers
from twill.bench.rows import BACKWARD_ROWS, Row

__all__ = ["main", "table"]

RESULTS = Path(__file__).with_name("RESULTS.md")
WAYS = ("default", "deterministic")


def _times(row: Row, rounds: int, burst_ms: float) -> dict[str, list[float]]:
    import torch

    import twill
    from twill.bench.contenders import backward_of
    from twill.bench.timing import Clock, gradient, operands, times

    given, do = operands(row), gradient(row)

    def forward(deterministic: bool) -> Any:
        return lambda q, k, v, causal: twill.attention(q, k, v, causal=causal, deterministic=deterministic)

    calls = {way: backward_of(forward(way == WAYS[1]), *given, do, row.causal) for way in WAYS}
    with torch.no_grad():
        return times(calls, given, row.causal, rounds=rounds, burst_ms=burst_ms, clock=Clock())


def measure(pattern: str, rounds: int, burst_ms: float, budget_s: float) -> dict[str, Any]:
    """Milliseconds of both ways for every row that there is a kernel for."""
    import torch

    from twill.pytorch.errors import AttentionError

    found: dict[str, Any] = {"device": torch.cuda.get_device_name(0), "torch": str(torch.__version__), "rows": []}
    began = time.monotonic()
    for row in BACKWARD_ROWS:
        if not re.search(pattern, row.name) or time.monotonic() - began > budget_s:
            continue
        try:
            found["rows"].append({"row": row.as_dict(), "ms": _times(row, rounds, burst_ms)})
        except AttentionError as error:
            sys.stderr.write(f"{row.name}: {error}\n")
    return found


def table(found: Mapping[str, Any]) -> str:
    """Both rates and their ratio, and the geometric mean of ratios."""
    rows, ratios = list[Sequence[object]](), list[float]()
    for one in found["rows"]:
        row = Row(**one["row"])
        rate = {way: row.flops / statistics.median(ms) / 1e9 for way, ms in one["ms"].items()}
        ratios.append(rate[WAYS[1]] / rate[WAYS[0]])
        mask = "causal" if row.causal else "no"
        shape = (row.head_dim, row.seqlen, mask, f"{row.batch} x {row.heads}")
        rows.append((*shape, *(f"{rate[way]:.0f}" for way in WAYS), f"{ratios[-1]:.3f}"))
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    head = f"{found['device']}, torch {found['torch']}, bf16. TFLOP/s, median of bursts that took turns."
    listed = markers.table(("head dim", "S", "mask", "batch x heads", *WAYS, "of the default"), rows)
    return f"{head}\n\n{listed}\n\nGeometric mean of the ratios over {len(ratios)} rows: {mean:.3f}; the least is {min(ratios):.3f}."


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="what deterministic gradients cost")
    parser.add_argument("--rows", default=".", metavar="REGEX", help="only rows whose name this is found in")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--burst-ms", type=float, default=15.0)
    parser.add_argument("--budget", type=float, default=200.0, metavar="SECONDS", help="start no row after this time")
    parser.add_argument("--json", type=Path, help="keep the measurements")
    parser.add_argument("--from", dest="source", type=Path, help="measure nothing; report kept measurements")
    parser.add_argument("--write", action="store_true", help="record the table in RESULTS.md")
    given = parser.parse_args(arguments)
    if given.source:
        found = json.loads(given.source.read_text(encoding="utf-8"))
    else:
        found = measure(given.rows, given.rounds, given.burst_ms, given.budget)
    if given.json:
        given.json.write_text(json.dumps(found) + "\n", encoding="utf-8")
    if not found["rows"]:
        sys.stderr.write("nothing was measured\n")
        return 1
    sys.stdout.write(table(found) + "\n")
    if given.write:
        return markers.write(RESULTS, {"determinism": table(found)}, check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
