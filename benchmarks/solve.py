"""How long whole commands take and how much memory: ``python -m benchmarks.solve [--quick] [--repeat N] [--write]``.

Every time is the wall time of ``python -m twill.cli ...`` in a fresh process, start of the interpreter included; the memory is
the sum of the peaks of that process and its children (Linux only). ``--write`` puts the tables into ``benchmarks/RESULTS.md``.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.cases import PAPER_CASES
from benchmarks.markers import REPOSITORY, put, table
from benchmarks.scaling import scaling_graph

__all__ = ["Run", "main", "measure"]

PAGE = REPOSITORY / "benchmarks" / "RESULTS.md"
POLL_S = 0.01
LIMIT_S = 120
SIZES = (10, 20, 30, 40, 50, 60, 80, 100)
QUICK_SIZES = (10, 30, 50)
MEMORY_TARGET_MB = 400
UNROLLED = ("--without", "blocking")
"""Unrolled loops are solved without the rule blocking, which does not see that copies are one after the other."""


@dataclass(frozen=True, slots=True)
class Run:
    """One command: wall and processor seconds (medians over repeats), peak megabytes (the most), and what it said."""

    seconds: float
    cpu_s: float
    spread_s: float
    peak_mb: float
    exit_code: int
    result: str


def _peaks(pid: int, seen: dict[int, int]) -> None:
    """Record the peak resident size of a process and its descendants, in KB."""
    with suppress(OSError, ValueError, StopIteration):
        status = Path(f"/proc/{pid}/status").read_text()
        line = next(text for text in status.splitlines() if text.startswith("VmHWM"))
        seen[pid] = max(seen.get(pid, 0), int(line.split()[1]))
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            _peaks(int(child), seen)


def _cpu_s() -> float:
    """Processor time of all children that have ended, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _once(words: Sequence[str]) -> tuple[float, float, float, int, str]:
    with tempfile.TemporaryFile("w+") as out:
        began, before = time.monotonic(), _cpu_s()
        process = subprocess.Popen([sys.executable, "-m", "twill.cli", *words], stdout=out, stderr=subprocess.DEVNULL, cwd=REPOSITORY)
        seen: dict[int, int] = {}
        while process.poll() is None:
            _peaks(process.pid, seen)
            time.sleep(POLL_S)
        seconds = time.monotonic() - began
        out.seek(0)
        text = out.read()
    return seconds, _cpu_s() - before, sum(seen.values()) / 1024, process.returncode, _said(text)


def _said(text: str) -> str:
    try:
        answer = json.loads(text)
    except ValueError:
        return "no JSON"
    if "ii_cycles" not in answer:
        return str(answer.get("status", "?"))
    proved = "" if answer["status"] == "optimal" and answer["proof"]["rank_proved"] else ", not all proved"
    return f"I {answer['ii_cycles']}, L {answer['length_cycles']}{proved}"


def measure(words: Sequence[str], repeat: int) -> Run:
    """Run ``twill`` with these arguments."""
    runs = [_once(words) for _ in range(repeat)]
    times = [r[0] for r in runs]
    cpu_s = statistics.median(r[1] for r in runs)
    return Run(statistics.median(times), cpu_s, max(times) - min(times), max(r[2] for r in runs), runs[0][3], runs[0][4])


def _solve(*words: str) -> tuple[str, ...]:
    return ("solve", *words, "--json", "--timeout", str(LIMIT_S))


def _row(title: str, run: Run, target_s: float | None = None) -> tuple[str, ...]:
    target = "" if target_s is None else f"{target_s:g}"
    return (title, f"{run.seconds:.2f}", f"{run.spread_s:.2f}", f"{run.cpu_s:.2f}", target, f"{run.peak_mb:.0f}", run.result)


HEADERS = ("command", "seconds", "spread", "processor s", "target", "peak MB", "result")


def _graph_file(folder: Path, ops: int) -> str:
    path = folder / f"unrolled_{ops}.json"
    path.write_text(scaling_graph(ops).to_json())
    return str(path)


def _cases(folder: Path, repeat: int) -> str:
    rows = [_row("twill list (no solve)", measure(("list",), repeat))]
    rows.append(_row("toy", measure(_solve("toy"), repeat)))
    rows.append(_row("gemm, b200", measure(_solve("gemm", "--machine", "b200"), repeat)))
    rows += [_row(case.title, measure(_solve(*case.task.words), repeat), case.target_s) for case in PAPER_CASES]
    rows.append(_row("a graph of 50 ops, without blocking", measure(_solve(_graph_file(folder, 50), *UNROLLED), repeat), 30.0))
    return table(HEADERS, rows)


def _growth(folder: Path, sizes: Sequence[int], repeat: int) -> str:
    rows = [_row(f"{n} ops", measure(_solve(_graph_file(folder, n), *UNROLLED), repeat)) for n in sizes]
    for groups in (4, 5, 6, 7, 8):
        words = _solve("attn_bwd", "--machine", "b200", "--groups", str(groups))
        rows.append(_row(f"Blackwell backward, at most {groups} groups", measure(words, repeat)))
    for unit in (1, 4, 16, 64):
        for graph in ("attn_fwd", "attn_bwd"):
            words = _solve(graph, "--machine", "b200", "--time-unit", str(unit))
            rows.append(_row(f"{graph} on b200, time unit {unit}", measure(words, repeat)))
    return table(HEADERS, rows)


def _processor() -> str:
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or "unknown processor"


def _setting(note: str) -> str:
    cores = Path("/proc/cpuinfo").read_text().count("processor\t") if Path("/proc/cpuinfo").exists() else 0
    load = Path("/proc/loadavg").read_text().split()[0] if Path("/proc/loadavg").exists() else "?"
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {_processor()}, {cores} cores, load {load} before the first run{f' ({note})' if note else ''}. "
        f"Python {platform.python_version()}, z3 {version('z3-solver')}. "
        f"Limit {LIMIT_S} s a command, target for memory {MEMORY_TARGET_MB} MB."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and, if asked, record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.solve", description="wall time and memory of whole commands")
    parser.add_argument("--quick", action="store_true", help="only the cases and three sizes")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each command; the median counts")
    parser.add_argument("--write", action="store_true", help=f"record in {PAGE.name}")
    parser.add_argument("--note", default="", help="what else ran on the machine")
    given = parser.parse_args(arguments)
    setting = _setting(given.note)
    with tempfile.TemporaryDirectory() as folder:
        cases = _cases(Path(folder), given.repeat)
        sys.stdout.write(f"{setting}\n\n{cases}\n")
        sys.stdout.flush()
        growth = _growth(Path(folder), QUICK_SIZES if given.quick else SIZES, 1)
        sys.stdout.write(f"\n{growth}\n")
    if given.write:
        body = f"{setting}\n\nMedians of {given.repeat} runs; growth: one run each.\n\n{cases}\n\nGrowth:\n\n{growth}"
        PAGE.write_text(put(PAGE.read_text(), "solve", body))
    return 0


if __name__ == "__main__":
    sys.exit(main())
