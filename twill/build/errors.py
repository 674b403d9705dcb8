"""The build's entries in the catalogue of errors."""

from __future__ import annotations

from dataclasses import dataclass

from twill.errors import EXIT_REFUSED, TwillError

__all__ = ["BuildError", "LintError", "Problem"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that machine code must not do: what and where, and the user's next step.

    ``kind`` is ``spills``, ``registers`` (a request that was dropped), ``serialised``, ``program`` (the file is not that of the
    schedule) or ``order``.
    """

    kind: str
    text: str
    step: str


class BuildError(TwillError):
    """A kernel that cannot be compiled, linked or kept: a file that is no kernel, a tool that is missing, a compiler that gave up."""

    exit_code = EXIT_REFUSED


class LintError(BuildError):
    """A kernel that compiles into machine code that is not what the schedule asked for."""
