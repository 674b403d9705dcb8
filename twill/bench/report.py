"""What a run found, as Markdown for people."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from twill.bench.cases import Variant
from twill.bench.contenders import CONTENDERS
from twill.bench.figures import geometric_mean, missing, ratio, spread
from twill.bench.rows import Row

__all__ = ["markdown", "wrong"]


def wrong(record: Mapping[str, Any]) -> int:
    """Kernels that failed somewhere, and rows that failed."""
    return sum(bool(k["failures"]) for k in record["kernels"]) + sum(bool(r["failure"]) for r in record["rows"])


def markdown(record: Mapping[str, Any]) -> str:
    """The report."""
    return "\n\n".join(("# twill on this GPU", *_parts(record))) + "\n"


def _parts(record: Mapping[str, Any]) -> Iterator[str]:
    before, after = record["before"], record.get("after", record["before"])
    installed = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    yield (
        f"{record['date']} UTC, {record['device']} (compute capability {record['capability']}, {record['sm_count']} SMs, driver "
        f"{before.get('driver_version', '?')}, power limit {before.get('power.limit', '?')}, at most {before.get('clocks.max.sm', '?')}, "
        f"{before.get('temperature.gpu', '?')} to {after.get('temperature.gpu', '?')} degrees), {installed}."
    )
    yield _verdict(record)
    yield "## Verified" + ("" if not record["quick"] else " (quick: few shapes)")
    yield (
        "Outputs and log-sum-exp against float64. *flash*: the largest error, as a part of twice that of PyTorch in the same type plus "
        "rounding (FlashAttention's rule); *element*: every element against what rounding allows; *lse* likewise. 1 is the limit."
    )
    yield _table(("kernel", "from", "shapes right", "wrong", "left out", "flash", "element", "lse", "s"), map(_kernel, record["kernels"]))
    failures = [f for k in record["kernels"] for f in k["failures"]]
    if failures:
        yield "### What went wrong"
        yield from (f"**{f['case']}**\n\n```\n{f['text'].strip()}\n```" for f in failures)
    yield "## Timed"
    yield (
        f"TFLOP/s, median of {record['rounds']} rounds in which all take turns in random order, each burst (about "
        f"{record['burst_ms']:g} ms) warmed by its own kernel; in brackets largest less smallest, of the median. *model*: the part "
        "of what the schedule's I allows at the highest clock in the steady state."
    )
    names = [n for n in CONTENDERS if any(n in r["ms"] for r in record["rows"])]
    headers = ("head dim", "type", "S", "mask", "batch x heads", *names, "twill to the best", "model")
    yield _table(headers, (_row(entry, names, record) for entry in record["rows"]))
    if reasons := missing(record["rows"]):
        yield "Not in the table:"
        yield "\n".join(f"* {reason}" for reason in reasons)
    if record["left"]:
        yield "No time was left for: " + ", ".join(record["left"])


def _verdict(record: Mapping[str, Any]) -> str:
    shapes = sum(k["passed"] for k in record["kernels"])
    bad = [k["name"] for k in record["kernels"] if k["failures"]]
    first = f"**{shapes} shapes of {len(record['kernels'])} kernels right; " + (f"wrong: {', '.join(bad)}.**" if bad else "none wrong.**")
    ratios = {Row(**r["row"]).name: found[0] for r in record["rows"] if (found := ratio(r["ms"]))}
    if not ratios:
        return first
    least = min(ratios, key=lambda name: ratios[name])
    mean = geometric_mean(list(ratios.values()))
    return f"{first} Speed beside the best other, {len(ratios)} shapes: {mean:.3f} (geometric mean), least {ratios[least]:.3f} ({least})."


def _table(headers: Sequence[str], rows: Any) -> str:
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    return "\n".join([*lines, *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)])


def _kernel(k: Mapping[str, Any]) -> list[object]:
    loaded = k["loaded"]
    source = f"{loaded['kernel']} ({loaded['schedule'][:12]}, I = {loaded['interval']})" if loaded else "not loaded"
    used = [f"{k['used'][rule]:.2f}" if rule in k["used"] else "-" for rule in ("flash", "element", "lse")]
    return [k["name"], source, k["passed"], len(k["failures"]), k["skipped"], *used, k["seconds"]]


def _row(entry: Mapping[str, Any], names: Sequence[str], record: Mapping[str, Any]) -> list[str]:
    row, ms = Row(**entry["row"]), entry["ms"]
    dims = f"{row.head_dim}" if row.head_dim == row.head_dim_v else f"{row.head_dim}/{row.head_dim_v}"
    speed = {n: row.flops / statistics.median(ms[n]) / 1e9 for n in ms}
    cells = [f"{speed[n]:.0f} ({spread(ms[n]):.0f} %)" if n in ms else "-" for n in names]
    found = ratio(ms)
    against = f"**{found[0]:.3f}** of {found[1]}" if found else "-"
    mask = "causal" if row.causal else "no"
    return [dims, row.dtype, str(row.seqlen), mask, f"{row.batch} x {row.heads}", *cells, against, _of_model(row, speed, record)]


def _of_model(row: Row, speed: Mapping[str, float], record: Mapping[str, Any]) -> str:
    """The part that was reached of one iteration every I cycles on every SM, at the highest clock that the driver allows."""
    name = Variant(row.head_dim, row.head_dim_v, "fp16" if row.dtype == "fp16" else "bf16", row.causal).name
    loaded = next((k["loaded"] for k in record["kernels"] if k["name"] == name), None)
    clock = str(record["before"].get("clocks.max.sm", "")).split()
    if "twill" not in speed or not loaded or not clock or not clock[0].isdigit():
        return "-"
    flop = 2 * loaded["rows"] * loaded["keys"] * (row.head_dim + row.head_dim_v)
    return f"{speed['twill'] / (flop / loaded['interval'] * record['sm_count'] * int(clock[0]) / 1e6):.0%}"
