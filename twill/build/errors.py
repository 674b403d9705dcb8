"""The build's entries in the catalogue of errors."""

from __future__ import annotations

from twill.errors import EXIT_REFUSED, TwillError

__all__ = ["BuildError", "LintError"]


class BuildError(TwillError):
    """A kernel that cannot be compiled, linked or kept: a file that is no kernel, a tool that is missing, a compiler that gave up."""

    exit_code = EXIT_REFUSED


class LintError(BuildError):
    """A kernel that compiles into machine code that is not what the schedule asked for."""
