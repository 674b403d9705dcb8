"""Figures of a run: the state of the GPU, medians, spreads and ratios."""

from __future__ import annotations

import math
import shutil
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from twill.bench.contenders import PEERS, TWILL
from twill.bench.rows import Row

__all__ = ["geometric_mean", "gpu_state", "missing", "ratio", "spread"]


def gpu_state() -> dict[str, str]:
    """Driver, limits and clocks as nvidia-smi tells them; empty where it is not there."""
    asked = ("driver_version", "power.limit", "clocks.sm", "clocks.max.sm", "temperature.gpu", "power.draw")
    if shutil.which("nvidia-smi") is None:
        return {}
    command = ["nvidia-smi", f"--query-gpu={','.join(asked)}", "--format=csv,noheader", "--id=0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return dict(zip(asked, (x.strip() for x in done.stdout.split(",")), strict=False)) if done.returncode == 0 else {}


def geometric_mean(values: Sequence[float]) -> float:
    """Of at least one positive value."""
    return math.exp(statistics.fmean(math.log(v) for v in values))


def spread(ms: Sequence[float]) -> float:
    """Largest less smallest, in percent of the median."""
    return (max(ms) - min(ms)) / statistics.median(ms) * 100


def ratio(ms: Mapping[str, Sequence[float]]) -> tuple[float, str] | None:
    """Twill's speed over the best peer's, and that peer; ``None`` unless there are both."""
    peers = {name: statistics.median(ms[name]) for name in PEERS if name in ms}
    if TWILL not in ms or not peers:
        return None
    best = min(peers, key=lambda name: peers[name])
    return peers[best] / statistics.median(ms[TWILL]), best


def missing(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Why something was not measured, each reason once with the rows that it is for."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        name = Row(**entry["row"]).name
        if entry["failure"]:
            found.setdefault(entry["failure"].strip().splitlines()[-1], []).append(name)
        for contender, reason in entry.get("reasons", {}).items():
            found.setdefault(f"{contender}: {reason.strip().splitlines()[-1]}", []).append(name)
    return [f"{reason} ({len(rows)} rows, first {rows[0]})" for reason, rows in found.items()]
