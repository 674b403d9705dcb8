"""Cycles of a contender's kernels by ncu. Unlike milliseconds they do not move with the clock, which is what a power limit moves."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys

from benchmarks.attention_child import PROFILED_CALLS
from benchmarks.markers import REPOSITORY
from twill.bench.rows import Row
from twill.bench.watchdog import Failed

__all__ = ["METRIC", "cycles", "parse"]

METRIC = "sm__cycles_elapsed.max"
LIMIT_S = 180.0


def parse(text: str) -> float:
    """Cycles of one call from ncu's CSV: the sum over all kernels of all calls, divided by the calls.

    Raises
    ------
    ValueError : there is no such table in it.
    """
    begin = text.find('"ID"')
    if begin < 0:
        raise ValueError("no table in the output of ncu")
    values = [
        float(r["Metric Value"].replace(",", "")) for r in csv.DictReader(io.StringIO(text[begin:])) if r.get("Metric Name") == METRIC
    ]
    if not values:
        raise ValueError(f"ncu measured no {METRIC}")
    return sum(values) / PROFILED_CALLS


def cycles(row: Row, contender: str) -> float:
    """SM cycles of one call.

    Raises
    ------
    Failed : ncu is not installed, or the contender did not run under it.
    """
    if shutil.which("ncu") is None:
        raise Failed("ncu is not installed")
    command = [
        "ncu", "--csv", "--clock-control", "none", "--profile-from-start", "off", "--metrics", METRIC,
        sys.executable, "-m", "benchmarks.attention_child", "--once", json.dumps(row.as_dict()), contender,
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=REPOSITORY)
        return parse(done.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise Failed(f"{row.name}, {contender}: {error}") from None
