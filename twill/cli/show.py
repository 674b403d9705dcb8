"""``twill show``: one steady-state period as a table."""

from __future__ import annotations

import sys

from twill.cli.files import read_schedule
from twill.errors import EXIT_DONE, ScheduleFileError, UsageError

__all__ = ["show_command"]


def show_command(file: str, *, rows: int) -> int:
    """Print the table of a schedule file.

    Raises
    ------
    UsageError, ScheduleFileError : a file that cannot be read or does not fit its own graph, or a bad number of rows.
    """
    if rows < 1:
        raise UsageError(f"--rows {rows} is not a positive number", "give 40, say")
    from twill.view.console import make_console
    from twill.view.console import show as put
    from twill.view.table import show

    schedule = read_schedule(file)
    try:
        view = show(schedule, rows=rows, width=make_console(sys.stdout).width)
    except (KeyError, ValueError):
        raise ScheduleFileError(f"{file} does not fit its own graph", "see `twill check` for what is wrong") from None
    put(view, sys.stdout)
    return EXIT_DONE
