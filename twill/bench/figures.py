"""Figures of a run: the state of the GPU, medians, spreads and ratios."""

from __future__ import annotations

import math
import shutil
import statistics
import subprocess
from collections.abc import Mapping, Sequence

from twill.bench.contenders import PEERS, TWILL

__all__ = ["geometric_mean", "gpu_state", "ratio", "spread"]


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
