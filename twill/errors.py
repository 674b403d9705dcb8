"""The catalogue of errors that twill shows to its users.

Every error is one sentence about what is wrong and where, and one about the next step. The command
line prints ``str(error)`` and exits with ``error.exit_code``; nothing here ever needs a traceback.
"""

from __future__ import annotations

__all__ = [
    "EXIT_DONE",
    "EXIT_INTERRUPTED",
    "EXIT_REFUSED",
    "EXIT_UNKNOWN",
    "EXIT_USAGE",
    "CheckFailed",
    "GraphError",
    "InternalError",
    "LowerError",
    "MachineError",
    "ParameterError",
    "ScheduleFileError",
    "SolverError",
    "TwillError",
    "UsageError",
]

EXIT_DONE = 0
EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_UNKNOWN = 3
EXIT_INTERRUPTED = 130


class TwillError(Exception):
    """Base of all errors meant for the user.

    Parameters
    ----------
    problem : what is wrong, and where.
    hint : the next step that the user can take.
    """

    exit_code = EXIT_USAGE

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.problem}\n  next step: {self.hint}" if self.hint else self.problem


class UsageError(TwillError):
    """An unknown graph, machine, rule or option."""


class ParameterError(UsageError):
    """A graph parameter that no tile of the machine can honour (head dim, tile, dtype, ...)."""


class MachineError(TwillError):
    """A machine description that is malformed or lacks a figure."""


class GraphError(TwillError):
    """A loop graph that is malformed: dangling names, zero-latency cycles, negative costs, ..."""


class ScheduleFileError(TwillError):
    """A schedule file that cannot be read: malformed JSON, another schema version, tampered content."""


class CheckFailed(TwillError):
    """A schedule that breaks a rule, or says something about itself that is not so."""

    exit_code = EXIT_REFUSED


class LowerError(TwillError):
    """A legal schedule that no program of the machine can carry out: out of barriers, registers or hand-over memory."""

    exit_code = EXIT_REFUSED


class SolverError(TwillError):
    """The solver process died or was interrupted; says nothing about the problem itself."""

    exit_code = EXIT_UNKNOWN


class InternalError(TwillError):
    """Twill contradicts itself: its checker refuses what its solver found. Never the user's mistake."""

    exit_code = EXIT_REFUSED
