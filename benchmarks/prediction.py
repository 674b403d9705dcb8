"""Predicted against measured cycles of an iteration: ``python -m benchmarks.prediction make DIR``, ``measure DIR`` and ``report DIR``.

``make`` solves and emits every case of `benchmarks.prediction_cases` and compiles it, which needs no GPU. ``measure`` needs a GPU, ncu and
TVM-FFI, but no compiler: a kernel runs with two numbers of keys, and the difference in whole-kernel SM cycles, divided by the iterations
that it comes from, is what an iteration takes in the steady state. ``report`` prints the table; with ``--write`` it goes into
``benchmarks/RESULTS.md``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.attention_cycles import METRIC, parse
from benchmarks.markers import REPOSITORY, put, table
from benchmarks.prediction_cases import CASES, HEAD_DIM
from twill.bench.rows import SCALE_CYCLES

__all__ = ["Case", "main", "spearman"]

PAGE = REPOSITORY / "benchmarks" / "RESULTS.md"
BATCH, HEADS, SEQLEN_Q = 4, 16, 8192
KEYS = (3840, 7680)
"""Multiples of every case's tile of keys, so that no iteration is cut short."""
LIMIT_S = 90.0
PAIR = 128 * 128


@dataclass(frozen=True, slots=True)
class Case:
    """A case as it was made: rows by keys of its tile, predicted cycles, and the name of its library."""

    name: str
    rows: int
    keys: int
    ii_cycles: int
    cycle_ratio_cycles: float
    length_cycles: int
    schedule: str
    library: str
    resource_cycles: int
    simulated_cycles: float

    def scaled(self, cycles: float) -> float:
        """Cycles of an iteration in the unit of a tile of 128 by 128, of which the tensor core alone takes 2048."""
        return cycles * PAIR / (self.rows * self.keys)

    def iterations(self, sm_count: int) -> float:
        """Iterations of the busiest SM that the second number of keys has more than the first."""
        work_tiles = -(-SEQLEN_Q // self.rows) * BATCH * HEADS
        return work_tiles / sm_count * (KEYS[1] - KEYS[0]) / self.keys


def make(folder: Path) -> None:
    """Solve, emit and compile every case; ``cases.json`` lists them."""
    from twill.build import LintError, Variant, library

    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for number, (name, options) in enumerate(CASES.items()):
        schedule, kernel = folder / f"case{number}.json", folder / f"case{number}.py"
        command = ["solve", "--arch", "sm90", "attn_fwd", "--head-dim", str(HEAD_DIM), *options, "-o", str(schedule)]
        built = folder / f"case{number}.so"
        _twill(command)
        refused = _refusal(["emit", str(schedule), "-o", str(kernel)])
        if refused:
            sys.stdout.write(f"{name}: left out, {refused}\n")
            continue
        try:
            shutil.copyfile(library(kernel, Variant("bf16", causal=False, lse=False)), built)
        except LintError as error:
            sys.stdout.write(f"{name}: left out, {error.problem}\n")
            continue
        made.append(_case(name, schedule, built.name))
        sys.stdout.write(f"{name}: I {made[-1].ii_cycles}, scaled {made[-1].scaled(made[-1].ii_cycles):.0f}\n")
    (folder / "cases.json").write_text(json.dumps([asdict(c) for c in made], indent=1) + "\n", encoding="utf-8")


def _twill(arguments: Sequence[str]) -> None:
    refused = _refusal(arguments)
    if refused:
        raise SystemExit(f"twill {' '.join(arguments)}: {refused}")


def _refusal(arguments: Sequence[str]) -> str:
    """Run a command; what it says where it fails."""
    done = subprocess.run([sys.executable, "-m", "twill.cli", *arguments], capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


def _case(name: str, path: Path, library: str) -> Case:
    from twill.check import checked
    from twill.check.protocol import check_protocol, cost_order, lowered_order
    from twill.cli.files import read_schedule
    from twill.cli.request import machine_of_schedule
    from twill.lower import lower

    schedule = read_schedule(str(path))
    program = lower(checked(schedule, machine_of_schedule(schedule.machine.name, None)))
    report = check_protocol(program, schedule.graph, ii_cycles=schedule.ii_cycles)
    rows, keys = (int(x) for x in str(dict(schedule.graph.parameters)["tile"]).split("x"))
    ratio = float(report.cycle_ratio_cycles or 0)
    resource = schedule.lower_bounds_cycles["resource"]
    simulated = cost_order(lowered_order(schedule, program)).period_cycles
    return Case(name, rows, keys, schedule.ii_cycles, ratio, schedule.length_cycles, schedule.hash, library, resource, simulated)


def _cases(folder: Path) -> list[Case]:
    return [Case(**c) for c in json.loads((folder / "cases.json").read_text(encoding="utf-8"))]


def measure(folder: Path, budget_s: float) -> None:
    """Run every case twice under ncu; ``measured.json`` keeps cycles of the whole kernel, by case and number of keys.

    What it holds already of the same device is kept, so that a second call goes on where the time of the first ran out.
    """
    import torch

    deadline = time.monotonic() + budget_s
    kept = folder / "measured.json"
    found: dict[str, Any] = {"sm_count": torch.cuda.get_device_properties(0).multi_processor_count, "device": torch.cuda.get_device_name()}
    before = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    found["cycles"] = before["cycles"] if before.get("device") == found["device"] else {}
    for case in _cases(folder):
        counts: dict[str, float] = found["cycles"].get(case.name, {})
        for keys in KEYS:
            if str(keys) not in counts and time.monotonic() < deadline:
                counts[str(keys)] = _count(folder, case, keys)
        found["cycles"][case.name] = counts
        sys.stdout.write(f"{case.name}: {counts}\n")
        sys.stdout.flush()
        kept.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _count(folder: Path, case: Case, keys: int) -> float:
    command = ["ncu", "--csv", "--clock-control", "none", "--profile-from-start", "off", "--metrics", METRIC]
    command += [sys.executable, "-m", "benchmarks.prediction", "once", str(folder / case.library), "--keys", str(keys)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=REPOSITORY)
    return parse(done.stdout)


def once(library: Path, keys: int) -> None:
    """Three profiled calls of a kernel; what ncu is asked to run."""
    import torch
    import tvm_ffi

    from benchmarks.attention_child import PROFILED_CALLS

    function = tvm_ffi.load_module(str(library))["attn_fwd"]
    q, o = (torch.randn(BATCH, SEQLEN_Q, HEADS, HEAD_DIM, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    k, v = (torch.randn(BATCH, keys, HEADS, HEAD_DIM, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    counter = torch.zeros(1, device="cuda", dtype=torch.int32)
    sm_count = torch.cuda.get_device_properties(0).multi_processor_count
    function(q, k, v, o, None, counter, HEAD_DIM**-0.5, sm_count)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for _ in range(PROFILED_CALLS):
        function(q, k, v, o, None, counter, HEAD_DIM**-0.5, sm_count)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1, equal values sharing the mean of theirs."""
    ordered = sorted(values)
    return [statistics.fmean(i for i, v in enumerate(ordered, 1) if v == x) for x in values]


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Rank correlation of two lists of at least two values."""
    return statistics.correlation(_ranks(one), _ranks(other))


def report(folder: Path) -> str:
    """The table, in Markdown."""
    kept = json.loads((folder / "measured.json").read_text(encoding="utf-8"))
    lines, intervals, simulated, measured = [], list[float](), list[float](), list[float]()
    for case in _cases(folder):
        counts: Mapping[str, float] = kept["cycles"].get(case.name, {})
        if len(counts) < len(KEYS):
            continue
        cycles = (counts[str(KEYS[1])] - counts[str(KEYS[0])]) / case.iterations(kept["sm_count"])
        intervals.append(case.scaled(case.ii_cycles))
        simulated.append(case.scaled(case.simulated_cycles))
        measured.append(case.scaled(cycles))
        error = (case.simulated_cycles / cycles - 1) * 100
        lines.append((measured[-1], [case.name, str(case.ii_cycles), f"{case.cycle_ratio_cycles:.0f}", str(case.resource_cycles),
                                     f"{case.simulated_cycles:.0f}", f"{cycles:.0f}", f"{error:+.1f} %", f"{simulated[-1]:.0f}",
                                     f"{measured[-1]:.0f}"]))  # fmt: skip
    heads = [
        "schedule", "I", "cycle ratio", "resource bound", "simulated", "measured", "simulated against measured", "simulated, scaled",
        "measured, scaled",
    ]  # fmt: skip
    body = table(heads, [line for _, line in sorted(lines, key=lambda x: x[0])])
    errors = [abs(p / m - 1) * 100 for p, m in zip(simulated, measured, strict=True)]
    return (
        f"{body}\n\nCycles of an iteration on {kept['device']}; scaled: for 128 by 128, where the tensor core alone takes {SCALE_CYCLES}. "
        f"Simulated: what `twill cost` says of the schedule. {len(measured)} schedules; rank correlation (Spearman) of simulation and "
        f"measurement {spearman(simulated, measured):.3f}, of I and measurement {spearman(intervals, measured):.3f}; median error of "
        f"the simulation {statistics.median(errors):.1f} %, largest {max(errors):.1f} %."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Make, measure or report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prediction", description="predicted and measured cycles of an iteration")
    parser.add_argument("action", choices=["make", "measure", "report", "once"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keys", type=int, default=KEYS[0])
    parser.add_argument("--budget", type=float, default=300.0, metavar="SECONDS", help="begin no further run after this time")
    parser.add_argument("--write", action="store_true", help=f"record the table in {PAGE.name}")
    given = parser.parse_args(arguments)
    if given.action == "make":
        make(given.folder)
    elif given.action == "measure":
        measure(given.folder, given.budget)
    elif given.action == "once":
        once(given.folder, given.keys)
    else:
        body = report(given.folder)
        sys.stdout.write(body + "\n")
        if given.write:
            PAGE.write_text(put(PAGE.read_text(encoding="utf-8"), "prediction", body), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
