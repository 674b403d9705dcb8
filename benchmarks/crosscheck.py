"""Ask CP-SAT, with a formulation of its own, about every shipped schedule: is it legal, and is a smaller I impossible?

Prints a table; exits with 1 if anything is contradicted. Needs the extra ``crosscheck``.
"""

from __future__ import annotations

import argparse
import sys

from twill.schedules import load, names

from twill.model.machine import load_machine
from twill.solver.crosscheck import crosscheck


def main() -> int:
    """Check all shipped schedules, or those named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="schedules to check; all by default")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for each")
    parser.add_argument("--length", action="store_true", help="ask about a smaller L too")
    arguments = parser.parse_args()
    print("| schedule | I | accepted | I - 1 | L - 1 | seconds |\n|---|---|---|---|---|---|", flush=True)
    agreed = True
    for name in arguments.names or names():
        schedule = load(name)
        report = crosscheck(schedule, load_machine(schedule.machine.name), timeout_s=arguments.timeout, length=arguments.length)
        agreed &= report.agrees
        accepted = "yes" if report.accepted else "no" if report.accepted is False else "open"
        length = report.length or "-"
        print(
            f"| {name} | {schedule.ii_cycles} | {accepted} | {report.smaller_ii} | {length} | {report.seconds:.1f} |",
            flush=True,
        )
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
