"""``twill check``: the independent checker on a file."""

from __future__ import annotations

import json
import sys

from twill.cli.files import read_schedule
from twill.cli.request import machine_of_schedule
from twill.errors import EXIT_DONE, EXIT_REFUSED

__all__ = ["check_command"]


def check_command(file: str, *, machine: str | None, ignore_hash: bool, as_json: bool) -> int:
    """Print ``legal`` or every finding; 0 or 1.

    Raises
    ------
    UsageError, MachineError, ScheduleFileError : a file that cannot be read, or a machine that is not known.
    """
    from twill.check import check_schedule
    from twill.view.words import ii_in_words, length_in_words

    schedule = read_schedule(file, verify_hash=not ignore_hash)
    report = check_schedule(schedule, machine_of_schedule(schedule.machine.name, machine))
    if as_json:
        findings = [{"rule": f.rule, "op": f.op, "cycle": f.cycle, "message": f.message} for f in report.findings]
        sys.stdout.write(json.dumps({"legal": report.ok, "hash_verified": not ignore_hash, "findings": findings}, indent=1) + "\n")
    elif report.ok:
        unverified = " (its hash was not verified)" if ignore_hash else ""
        sys.stdout.write(f"legal: {schedule.graph.name} on {schedule.machine.name}{unverified}\n")
        sys.stdout.write(f"  the file says {ii_in_words(schedule)}\n  the file says {length_in_words(schedule)}\n")
    else:
        count = len(report.findings)
        sys.stdout.write(f"illegal: {count} finding{'s' if count > 1 else ''} about {schedule.graph.name} on {schedule.machine.name}\n")
        sys.stdout.writelines(f"  {f.message}\n" for f in report.findings)
        sys.stdout.write("  next step: solve it again, or see docs/formulation.md for the rules named here\n")
    return EXIT_DONE if report.ok else EXIT_REFUSED
