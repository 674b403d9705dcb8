"""``twill lower``: the program of every warp role, as text or JSON."""

from __future__ import annotations

import sys

from twill.cli.files import read_schedule
from twill.cli.request import machine_of_schedule
from twill.errors import EXIT_DONE

__all__ = ["lower_command"]


def lower_command(file: str, *, machine: str | None, as_json: bool) -> int:
    """Check a schedule, lower it and print the program.

    Raises
    ------
    UsageError, MachineError, ScheduleFileError : a file that cannot be read, or a machine that is not known.
    CheckFailed : the schedule is not legal.
    LowerError : the machine lacks something that the program needs.
    """
    from twill.check import checked
    from twill.lower import listing, lower, to_json

    schedule = read_schedule(file)
    program = lower(checked(schedule, machine_of_schedule(schedule.machine.name, machine)))
    sys.stdout.write(to_json(program) if as_json else listing(program))
    return EXIT_DONE
