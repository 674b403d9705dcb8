"""The tables of ``docs/results.md``: ``python -m benchmarks.results [--check]``.

``--check`` compares everything but the seconds, which are of the machine that wrote the page.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence

from benchmarks.cases import LEVERS, MEASURED, PAPER_CASES, Task
from benchmarks.hand_written import fa4_table
from benchmarks.markers import REPOSITORY, table, write
from benchmarks.structure import copies, groups_in_words
from twill.check import checked
from twill.model.machine import load_machine
from twill.model.registry import GraphRequest
from twill.model.schedule import Schedule
from twill.view.words import bottleneck

__all__ = ["main"]

PAGE = REPOSITORY / "docs" / "results.md"
HEAD_DIMS: tuple[tuple[int, int | None], ...] = ((64, None), (96, None), (128, None), (192, 128), (256, None))
LOOPS = (("h200", "attn_fwd"), ("h200", "attn_bwd"), ("b200", "attn_fwd"), ("b300", "attn_fwd"), ("b200", "attn_bwd"))


def _best(task: Task) -> tuple[Schedule, float]:
    began = time.monotonic()
    outcome = task.solve()
    seconds = time.monotonic() - began
    if outcome.status != "optimal" or not outcome.schedules[0].proof.rank_proved:
        raise RuntimeError(f"{task} was not solved to proof: {outcome.status}")
    return checked(outcome.schedules[0], load_machine(task.machine)).schedule, seconds


def _paper() -> tuple[str, str]:
    numbers, groups = [], []
    for case in PAPER_CASES:
        schedule, _ = _best(case.task)
        proof = schedule.proof.ii
        why = f"the {proof.bound} bound" if proof.by == "lower-bound" else ", ".join(case.task.needed_rules(schedule.ii_cycles - 1))
        tensor = f"{100 * schedule.utilization['tensor']:.1f} %"
        numbers.append((case.title, schedule.ii_cycles, schedule.length_cycles, copies(schedule), tensor, bottleneck(schedule), f"{why}"))
        groups.append((case.title, groups_in_words(schedule).replace("; ", "<br>")))
        sys.stderr.write(f"{case.title}\n")
    headers = ("case", "I", "L", "iterations in flight", "tensor core", "what limits I", "what forbids I - 1")
    return table(headers, numbers), table(("case", "groups, ops in the order of one period"), groups)


def _levers() -> str:
    rows = []
    for title, task in LEVERS.items():
        schedule, _ = _best(task)
        bounds = schedule.lower_bounds_cycles
        rows.append((title, schedule.ii_cycles, schedule.length_cycles, f"{100 * schedule.utilization['tensor']:.1f} %",
                     bounds["memory"], bounds["resource"], len(schedule.groups)))  # fmt: skip
    return table(("loop", "I", "L", "tensor core", "memory bound", "resource bound", "groups"), rows)


def _measured() -> str:
    rows = []
    for case in MEASURED:
        schedule, _ = _best(case.task)
        off = f"{100 * (schedule.ii_cycles / case.cycles - 1):+.1f} %"
        rows.append((case.title, "whole kernel" if case.whole_kernel else "loop", case.cycles, schedule.ii_cycles, off))
    return table(("Hopper loop", "measured on", "measured", "I of the model", "model against measurement"), rows)


def _shipped() -> str:
    rows = []
    for machine, graph in LOOPS:
        for d, dv in HEAD_DIMS:
            schedule, seconds = _best(Task(graph, machine, GraphRequest(head_dim=d, head_dim_v=dv)))
            bounds = schedule.lower_bounds_cycles
            parameters = schedule.graph.parameters
            rows.append(
                (f"{schedule.machine.arch} {graph} {d}{f'/{dv}' if dv else ''}", parameters["tile"], schedule.ii_cycles,
                 schedule.length_cycles, *(bounds[name] for name in ("resource", "recurrence", "memory")), bottleneck(schedule),
                 f"{100 * schedule.utilization['tensor']:.1f} %", " ".join(g.name for g in schedule.groups), f"{seconds:.1f}")
            )  # fmt: skip
            sys.stderr.write(f"{rows[-1][0]}\n")
    headers = ("loop", "tile", "I", "L", "resource", "recurrence", "memory", "what limits I", "tensor core", "groups", "seconds")
    return table(headers, rows)


def _without_seconds(text: str) -> str:
    return re.sub(r"\| [0-9.]+ \|$", "| |", text, flags=re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the tables; 1 if they differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description="the tables of docs/results.md")
    parser.add_argument("--check", action="store_true", help="write nothing; compare")
    given = parser.parse_args(arguments)
    numbers, groups = _paper()
    parts = {"cases": numbers, "groups": groups, "levers": _levers(), "fa4": fa4_table(), "measured": _measured()}
    shipped = _shipped()
    if given.check and _without_seconds(shipped) not in _without_seconds(PAGE.read_text()):
        sys.stdout.write(f"{PAGE.name}: shipped differs from what the code makes\n")
        write(PAGE, parts, check=True)
        return 1
    return write(PAGE, parts if given.check else {**parts, "shipped": shipped}, check=given.check)


if __name__ == "__main__":
    sys.exit(main())
