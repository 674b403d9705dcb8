"""Attention beside the best hand-written kernels, all in one run: ``python -m benchmarks.attention [--direction backward] [--write]``.

A chip under load throttles, so only ratios inside a run mean something: contenders take turns in random order, each burst is warmed by its
own kernel, and a row's figure is the median over rounds. A contender that is not installed, fails or computes something else is reported
and left out; one that hangs costs its row, not the run. ``--json`` keeps the measurements; ``--from`` makes the tables of kept ones, on any
machine; ``--write`` puts them into ``benchmarks/RESULTS.md``.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.attention_cycles import cycles
from benchmarks.markers import REPOSITORY, put, table
from twill.bench.contenders import BACKWARD, CONTENDERS
from twill.bench.figures import geometric_mean, gpu_state, missing, ratio, spread
from twill.bench.rows import BACKWARD_ROWS, ROWS, Row
from twill.bench.watchdog import Child, Failed

__all__ = ["PAGE", "main", "measure", "report"]

PAGE = REPOSITORY / "benchmarks" / "RESULTS.md"
PARTS = {"forward": "attention", "backward": "attention backward"}
ROWS_OF = {"forward": ROWS, "backward": BACKWARD_ROWS}
NAMES_OF = {"forward": tuple(CONTENDERS), "backward": BACKWARD}
LEAST = {"forward": 0.98, "backward": 0.97}
"""Ratios below are named: what no row should fall short of."""
LATE = "no time was left"
ROW_LIMIT_S = 150.0
"""Contenders that compile when first called take up to a minute for each of a row's kernels."""


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Run the rows for as long as there is time; everything that was measured, as data."""
    deadline = time.monotonic() + given.budget
    with closing(Child("benchmarks.attention_child")) as child:
        about = child.ask("versions", {"versions": True}, 60.0)
        record: dict[str, Any] = {
            **about,
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "direction": given.direction,
            "rounds": given.rounds,
            "rows": [],
        }
        record["before"] = record["after"] = gpu_state()
        for row in (row for row in ROWS_OF[given.direction] if re.search(given.rows, row.name)):
            late = time.monotonic() > deadline
            record["rows"].append({"row": row.as_dict(), "failure": LATE} if late else _row(child, row, given, deadline))
            record["after"] = gpu_state()
            _keep(record, given.json)
    return record


def _keep(record: Mapping[str, Any], path: Path | None) -> None:
    """After every row: a run that is ended from outside has measured something all the same."""
    if path:
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _names(given: argparse.Namespace) -> list[str]:
    """Those asked for that have this direction."""
    return [name for name in given.contenders if name in NAMES_OF[given.direction]]


def _row(child: Child, row: Row, given: argparse.Namespace, deadline: float) -> dict[str, Any]:
    question = {"row": row.as_dict(), "contenders": _names(given), "rounds": given.rounds, "burst_ms": given.burst_ms}
    try:
        found = child.ask(row.name, question, ROW_LIMIT_S)
    except Failed as failure:
        _say(f"FAILED {failure}")
        return {"row": row.as_dict(), "failure": str(failure)[-600:]}
    found["clocks"] = gpu_state().get("clocks.sm", "")
    if re.search(given.ncu, row.name) if given.ncu else False:
        found["cycles"] = {}
        for name in found["ms"]:
            if time.monotonic() > deadline:
                break
            try:
                found["cycles"][name] = cycles(row, name)
            except Failed as failure:
                found["reasons"][f"{name}, ncu"] = str(failure)
    _say(f"{row.name}: " + ", ".join(f"{n} {_tflops(row, ms):.0f}" for n, ms in found["ms"].items()) + f" ({found['seconds']:.1f} s)")
    return {"row": row.as_dict(), "failure": "", **found}


def _tflops(row: Row, ms: Sequence[float]) -> float:
    return row.flops / statistics.median(ms) / 1e9


def _line(entry: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    row = Row(**entry["row"])
    dims = f"{row.head_dim}" if row.head_dim == row.head_dim_v else f"{row.head_dim}/{row.head_dim_v}"
    start = [dims, row.dtype, str(row.seqlen), "causal" if row.causal else "no", f"{row.batch} x {row.heads}"]
    ms = entry.get("ms", {})
    cells = [f"{_tflops(row, ms[name]):.0f} ({spread(ms[name]):.0f} %)" if name in ms else "-" for name in names]
    found = ratio(ms)
    return [*start, *cells, f"**{found[0]:.3f}** of {found[1]}" if found else "-"]


def report(record: Mapping[str, Any]) -> str:
    """The tables, in Markdown."""
    direction = record.get("direction", "forward")
    names = NAMES_OF[direction]
    body = [_line(entry, names) for entry in record["rows"]]
    ratios = {Row(**e["row"]).name: r[0] for e in record["rows"] if (r := ratio(e.get("ms", {})))}
    parts = [_setting(record), table(["head dim", "type", "S", "mask", "batch x heads", *names, "twill to the best peer"], body)]
    if ratios:
        worst = min(ratios, key=lambda name: ratios[name])
        below = [f"{name} {value:.3f}" for name, value in ratios.items() if value < LEAST[direction]]
        parts.append(
            f"Geometric mean of the ratios over {len(ratios)} rows: {geometric_mean(list(ratios.values())):.3f}; the least is "
            f"{ratios[worst]:.3f} ({worst}). Below {LEAST[direction]}: {', '.join(below) or 'none'}."
        )
    if any(entry.get("cycles") for entry in record["rows"]):
        parts.append(_cycle_table(record, names))
    reasons = missing(record["rows"])
    if reasons:
        parts.append("Not in the table:\n\n" + "\n".join(f"* {reason}" for reason in reasons))
    return "\n\n".join(parts)


def _setting(record: Mapping[str, Any]) -> str:
    before, after = record["before"], record["after"]
    installed = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    clocks = sorted({e["clocks"] for e in record["rows"] if e.get("clocks")})
    seen = f" SM clocks seen after rows: {clocks[0]} to {clocks[-1]} of at most {before.get('clocks.max.sm', '?')}." if clocks else ""
    return (
        f"{record['date']}, {record['device']} ({record['sm_count']} SMs, driver {before.get('driver_version', '?')}, power limit "
        f"{before.get('power.limit', '?')}), {installed}. TFLOP/s, median of {record['rounds']} rounds in random order, with the spread "
        f"(largest less smallest, of the median).{seen} Temperature {before.get('temperature.gpu', '?')} to "
        f"{after.get('temperature.gpu', '?')} degrees."
    )


def _cycle_table(record: Mapping[str, Any], names: Sequence[str]) -> str:
    lines = []
    for entry in record["rows"]:
        if entry.get("cycles"):
            row = Row(**entry["row"])
            scaled = {n: row.scaled_cycles(c, record["sm_count"]) for n, c in entry["cycles"].items()}
            lines.append([row.name, *(f"{scaled[n]:.0f}" if n in scaled else "-" for n in names)])
    return "Whole-kernel SM cycles by ncu, scaled so that tensor cores busy all the time are 2048:\n\n" + table(["row", *names], lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention", description="attention beside its peers")
    parser.add_argument("--direction", choices=list(PARTS), default="forward", help="what is timed")
    parser.add_argument("--budget", type=float, default=480.0, metavar="SECONDS", help="start no row after this time")
    parser.add_argument("--rows", default="", metavar="REGEX", help="only rows whose name this is found in")
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--rounds", type=int, default=7, help="bursts of each contender in a row")
    parser.add_argument("--burst-ms", type=float, default=40.0, help="about how long a burst is")
    parser.add_argument("--ncu", default="", metavar="REGEX", help="also count cycles, for rows whose name this is found in")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the measurements")
    parser.add_argument("--from", dest="kept", type=Path, metavar="FILE", help="measure nothing; report kept measurements")
    parser.add_argument("--write", action="store_true", help=f"record the tables in {PAGE.name}")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure or read, print and, if asked, record."""
    given = _parser().parse_args(arguments)
    try:
        record = json.loads(given.kept.read_text(encoding="utf-8")) if given.kept else measure(given)
    except Failed as failure:
        sys.stderr.write(f"nothing was measured: {failure}\n")
        return 1
    body = report(record)
    _say(body)
    if given.write:
        PAGE.write_text(put(PAGE.read_text(encoding="utf-8"), PARTS[record.get("direction", "forward")], body), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
