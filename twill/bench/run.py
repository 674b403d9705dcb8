"""Verify, then time: one question after the other to a child that is killed when it hangs. What is known is written after every answer."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from twill.bench.cases import Variant, cases, variants
from twill.bench.figures import gpu_state
from twill.bench.rows import ROWS
from twill.bench.watchdog import Failed

__all__ = ["Asked", "Refused", "Wanted", "measure"]

LOAD_S = 400.0
CASE_S = 60.0
ROW_S = 200.0
"""Contenders that compile when first called take up to a minute for each of a row's kernels."""
PATIENCE = 3
"""So many failures of a kernel, and the rest of its shapes is left out."""
VERIFYING = 0.6
"""Part of the time after which no further kernel is verified, so that something is timed."""


class Asked(Protocol):
    """The child, or something in its place."""

    def ask(self, name: str, question: dict[str, object], timeout_s: float) -> dict[str, Any]: ...


class Refused(Exception):
    """Nothing can be measured on this machine; says why and what to do."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """``only`` is searched in names of kernels and rows; ``budget_s`` is for everything."""

    arch: str
    only: str
    contenders: Sequence[str]
    budget_s: float
    rounds: int
    burst_ms: float
    quick: bool


def measure(wanted: Wanted, child: Asked, keep: Callable[[dict[str, Any]], None], say: Callable[[str], None]) -> dict[str, Any]:
    """Everything that was found, as data.

    Raises
    ------
    Refused : there is no GPU of the wanted architecture.
    """
    begin = time.monotonic()
    record: dict[str, Any] = {**_device(wanted, child), "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M}", "before": gpu_state()}
    record |= {"rounds": wanted.rounds, "burst_ms": wanted.burst_ms, "quick": wanted.quick, "kernels": [], "rows": [], "left": []}
    for variant in variants():
        if not re.search(wanted.only, variant.name):
            continue
        if time.monotonic() - begin > VERIFYING * wanted.budget_s:
            record["left"].append(f"verify {variant.name}")
            continue
        record["kernels"].append(_verified(variant, wanted, child, say))
        keep(record)
    right = {k["name"] for k in record["kernels"] if k["loaded"] and not k["failures"]}
    for row in ROWS:
        variant = Variant(row.head_dim, row.head_dim_v, "fp16" if row.dtype == "fp16" else "bf16", row.causal)
        if not re.search(wanted.only, variant.name):
            continue
        if time.monotonic() - begin > wanted.budget_s:
            record["left"].append(f"time {row.name}")
            continue
        # a kernel that hangs or is wrong would cost the row; the others are timed all the same
        names = [n for n in wanted.contenders if n != "twill" or variant.name in right]
        record["rows"].append(_timed(row, names, wanted, child, say))
        record["after"] = gpu_state()
        keep(record)
    return record


def _device(wanted: Wanted, child: Asked) -> dict[str, Any]:
    try:
        found = child.ask("about the device", {"do": "about"}, 120.0)
    except Failed as failure:
        raise Refused(
            f"the device cannot be asked: {failure}\nnext step: install 'twill-gpu[kernels]' and a CUDA build of PyTorch"
        ) from None
    if found["device"] is None:
        raise Refused("PyTorch sees no CUDA device\nnext step: run this on a machine with a GPU and a driver for it")
    if found["arch"] != wanted.arch:
        step = f"run it with --arch {found['arch']}" if found["arch"] else "there are kernels for compute capabilities 9.0, 10.0 and 10.3"
        raise Refused(f"{found['device']} has compute capability {found['capability']}, which is not {wanted.arch}\nnext step: {step}")
    return found


def _verified(variant: Variant, wanted: Wanted, child: Asked, say: Callable[[str], None]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": variant.name, "loaded": {}, "passed": 0, "failures": [], "skipped": 0, "used": {}, "seconds": 0.0}
    began = time.monotonic()
    try:
        found["loaded"] = child.ask(variant.name, {"do": "load", **variant.as_dict()}, LOAD_S)
    except Failed as failure:
        found["failures"].append({"case": f"{variant.name}: load", "text": str(failure)[-1500:]})
        say(f"{variant.name}: cannot be loaded: {_last(str(failure))}")
        return found
    for case in cases(variant, quick=wanted.quick):
        if len(found["failures"]) >= PATIENCE:
            found["skipped"] += 1
            continue
        try:
            used = child.ask(case.name, {"do": "verify", **case.as_dict()}, CASE_S)
        except Failed as failure:
            found["failures"].append({"case": case.name, "text": str(failure)[-1500:]})
            say(f"FAILED {case.name}: {_last(str(failure))}")
            continue
        found["passed"] += 1
        for rule, value in used.items():
            found["used"][rule] = max(found["used"].get(rule, 0.0), value)
    found["seconds"] = round(time.monotonic() - began, 1)
    worst = ", ".join(f"{rule} {value:.2f}" for rule, value in found["used"].items())
    counts = f"{found['passed']} right, {len(found['failures'])} wrong, {found['skipped']} left out"
    say(f"{variant.name}: {counts}; used of what is allowed: {worst}")
    return found


def _timed(row: Any, names: Sequence[str], wanted: Wanted, child: Asked, say: Callable[[str], None]) -> dict[str, Any]:
    question = {"do": "time", "row": row.as_dict(), "contenders": list(names), "rounds": wanted.rounds, "burst_ms": wanted.burst_ms}
    try:
        found = child.ask(row.name, question, ROW_S)
    except Failed as failure:
        say(f"FAILED {row.name}: {_last(str(failure))}")
        return {"row": row.as_dict(), "failure": str(failure)[-1500:], "ms": {}, "reasons": {}}
    if "twill" in wanted.contenders and "twill" not in names:
        found["reasons"]["twill"] = "its kernel was not found right"
    found["clock_mhz"] = gpu_state().get("clocks.sm", "")
    say(f"{row.name}: " + ", ".join(f"{n} {row.flops / sorted(ms)[len(ms) // 2] / 1e9:.0f}" for n, ms in found["ms"].items()))
    return {"row": row.as_dict(), "failure": "", **found}


def _last(text: str) -> str:
    return text.strip().splitlines()[-1]
