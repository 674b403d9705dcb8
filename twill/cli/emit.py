"""``twill emit``: the kernel of a schedule, as a CuTe DSL file."""

from __future__ import annotations

import sys
from pathlib import Path

from twill.cli.files import read_schedule, refuse_unwritable, write_atomically
from twill.cli.request import machine_of_schedule
from twill.errors import EXIT_DONE

__all__ = ["emit_command", "kernel_of"]


def kernel_of(file: str, machine: str | None = None) -> str:
    """The text of the kernel of a schedule file, or of a shipped schedule by name.

    Raises
    ------
    UsageError, MachineError, ScheduleFileError : a file that cannot be read, or a machine that is not known.
    CheckFailed : the schedule is not legal.
    LowerError, EmitError : no program or no kernel can carry it out.
    """
    from twill.check import checked
    from twill.emit.emitter import emit
    from twill.lower import lower

    schedule = read_schedule(file)
    found = checked(schedule, machine_of_schedule(schedule.machine.name, machine))
    return emit(found, lower(found), f"twill emit {Path(file).name}")


def emit_command(file: str, *, machine: str | None, output: Path | None) -> int:
    """Write the kernel to ``output`` or print it; errors as in `kernel_of`."""
    if output is not None:
        refuse_unwritable(output)
    text = kernel_of(file, machine)
    if output is None:
        sys.stdout.write(text)
    else:
        write_atomically(output, text)
    return EXIT_DONE
