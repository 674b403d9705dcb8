"""``twill lower``: the program of every warp role, as text or JSON."""

from __future__ import annotations

import sys

from twill.cli.files import read_schedule
from twill.cli.request import machine_of_schedule
from twill.errors import EXIT_DONE, CheckFailed

__all__ = ["lower_command"]


def lower_command(file: str, *, machine: str | None, as_json: bool) -> int:
    """Check a schedule, lower it, check the synchronization of the program for all interleavings, and print it.

    Raises
    ------
    UsageError, MachineError, ScheduleFileError : a file that cannot be read, or a machine that is not known.
    CheckFailed : the schedule is not legal, or the program races, deadlocks or overruns a barrier.
    LowerError : the machine lacks something that the program needs.
    """
    from twill.check import checked
    from twill.check.protocol import check_protocol
    from twill.lower import listing, lower, to_json

    schedule = read_schedule(file)
    program = lower(checked(schedule, machine_of_schedule(schedule.machine.name, machine)))
    report = check_protocol(program, schedule.graph, ii_cycles=schedule.ii_cycles)
    if not report.ok:
        lines = "\n".join(f"  {f.message}" for f in report.findings)
        raise CheckFailed(f"the program of {file} is refused:\n{lines}", "this is an error of `twill lower`: please report the schedule")
    sys.stdout.write(to_json(program) if as_json else listing(program))
    return EXIT_DONE
