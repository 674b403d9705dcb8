"""``twill emit``: the kernel of a schedule, as a CuTe DSL file."""

from __future__ import annotations

import sys
from pathlib import Path

from twill.cli.files import read_schedule, refuse_unwritable, write_atomically
from twill.cli.request import SolveArguments, machine_of_schedule, refuse_bad_numbers, resolve
from twill.errors import EXIT_DONE, EXIT_UNKNOWN, TwillError, UsageError

__all__ = ["NothingFound", "emit_command", "kernel_of", "solved_kernel"]


class NothingFound(TwillError):
    """There is no schedule to make a kernel of."""

    exit_code = EXIT_UNKNOWN


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


def solved_kernel(arguments: SolveArguments, timeout_s: float) -> str:
    """The text of the kernel of the best schedule of a graph.

    Raises
    ------
    UsageError, MachineError, ParameterError, SolverError : as ``twill solve``.
    NothingFound : there is no schedule, or none was found in time.
    LowerError, EmitError : no program or no kernel can carry it out.
    """
    from twill.check import checked
    from twill.cli.solve import checked_outcome
    from twill.emit.emitter import emit
    from twill.lower import lower

    refuse_bad_numbers(timeout_s)
    request = resolve(arguments)
    outcome = checked_outcome(request, arguments, timeout_s, view=False)
    if not outcome.schedules:
        raise NothingFound(f"{request.command}: {outcome.status}", "ask `twill solve` with the same options why")
    found = checked(outcome.schedules[0], request.machine)
    return emit(found, lower(found), request.command.replace("twill solve", "twill emit", 1))


def emit_command(arguments: SolveArguments, *, timeout_s: float, output: Path | None) -> int:
    """Write the kernel to ``output`` or print it: that of a schedule file, or of a graph if there is an architecture.

    Raises
    ------
    UsageError : options that belong to a graph, beside a schedule file; other errors as in `kernel_of` and `solved_kernel`.
    """
    if output is not None:
        refuse_unwritable(output)
    if arguments.arch is not None:
        text = solved_kernel(arguments, timeout_s)
    else:
        if given := arguments.given():
            raise UsageError(f"{', '.join(given)} would change the schedule, and {arguments.target} has one", "add --arch to solve a graph")
        text = kernel_of(arguments.target, arguments.machine)
    if output is None:
        sys.stdout.write(text)
    else:
        write_atomically(output, text)
    return EXIT_DONE
