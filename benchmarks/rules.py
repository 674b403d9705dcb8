"""What each rule causes: switch it off, solve again, say what is different. ``python -m benchmarks.rules [--check]``.

Writes the tables of ``docs/rules.md``, or with ``--check`` only says whether they are what they should be.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from benchmarks.cases import ABLATED, Task, solved
from benchmarks.markers import REPOSITORY, table, write
from benchmarks.structure import changes, equally_good
from twill.model.schedule import Schedule
from twill.solver.problem import RULES

__all__ = ["main"]

PAGE = REPOSITORY / "docs" / "rules.md"
TOGETHER: tuple[tuple[str, ...], ...] = (
    ("exposed-wait", "blocking"),
    ("blocking", "register-tiles"),
    ("blocking", "concurrency"),
    ("register-limit", "register-file"),
    ("variable-latency", "exposed-wait", "blocking", "register-tiles"),
)
"""Rules that stand in for one another, so that one alone shows little."""


def _variants() -> dict[str, dict[str, tuple[str, ...]]]:
    """What to switch, by the name of the row."""
    rows: dict[str, dict[str, tuple[str, ...]]] = {"(all rules)": {}}
    for rule in RULES.values():
        rows[f"without {rule.name}" if rule.default else f"with {rule.name}"] = {"without" if rule.default else "with_rules": (rule.name,)}
    for several in TOGETHER:
        rows[f"without {', '.join(several)}"] = {"without": several}
    return rows


def _cell(base: Schedule, other: Schedule | None) -> str:
    if other is None:
        return "none"
    if other is not base and equally_good(base, other):
        return "same"
    return f"{other.ii_cycles} / {other.length_cycles} / {len(other.groups)}"


def _difference(base: Schedule, other: Schedule) -> str:
    words = changes(base, other)
    if base.ii_cycles != other.ii_cycles:
        words.insert(0, f"I {100 * (other.ii_cycles / base.ii_cycles - 1):+.1f} %")
    elif base.margin_cycles != other.margin_cycles and "queueing" not in other.options.without:
        words.insert(0, f"margin {other.margin_cycles} instead of {base.margin_cycles} cycles")
    elif base.length_cycles != other.length_cycles:
        words.insert(0, f"L {other.length_cycles - base.length_cycles:+d} cycles")
    elif not equally_good(base, other):
        words.append(
            f"{other.rank.handovers} hand-overs and {other.rank.waits} waits instead of {base.rank.handovers} and {base.rank.waits}"
        )
    return "; ".join(words)


def _solve(loops: Mapping[str, Task]) -> dict[str, dict[str, Schedule | None]]:
    """Schedules by row and loop."""
    result: dict[str, dict[str, Schedule | None]] = {}
    for row, switched in _variants().items():
        result[row] = {}
        for loop, task in loops.items():
            result[row][loop] = solved(task, **switched)
        sys.stderr.write(f"{row}\n")
    return result


def _parts() -> dict[str, str]:
    found = _solve(ABLATED)
    bases = found["(all rules)"]
    numbers, words = [], []
    for row, by_loop in found.items():
        cells = []
        for loop, schedule in by_loop.items():
            base = bases[loop]
            assert base is not None
            cells.append(_cell(base, schedule))
            text = "no schedule" if schedule is None else _difference(base, schedule)
            if text:
                words.append((row, loop, text))
        numbers.append((row, *cells))
    return {
        "ablation": table(("rules", *ABLATED), numbers),
        "changes": table(("rules", "loop", "what is different"), words),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the tables; 1 if they differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rules", description="the ablation tables of docs/rules.md")
    parser.add_argument("--check", action="store_true", help="write nothing; compare")
    return write(PAGE, _parts(), check=parser.parse_args(arguments).check)


if __name__ == "__main__":
    sys.exit(main())
