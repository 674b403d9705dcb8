"""The command line. Every import that takes time is left to the command that needs it."""

from __future__ import annotations

import gc
import sys

__all__ = ["main"]


def main() -> None:
    """Run ``twill`` with the arguments of the process, and exit with its code."""
    # a command allocates and ends: collecting cycles costs it time and gives nothing back
    gc.disable()
    try:
        from twill.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        from twill.errors import EXIT_INTERRUPTED

        sys.stderr.write("twill: interrupted\n")
        code = EXIT_INTERRUPTED
    sys.exit(code)
