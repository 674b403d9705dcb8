"""The second opinion in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twill.model.schedule import Schedule
    from twill.solver.crosscheck import CrosscheckReport

__all__ = ["crosscheck_in_words"]

VERDICTS = {
    "refuted": "impossible",
    "lower-bound": "impossible, by a lower bound alone",
    "found": "FOUND a schedule",
    "open": "not known: out of time",
}
ACCEPTED = {True: "accepts the schedule", False: "REFUSES the schedule", None: "did not finish with the schedule"}


def crosscheck_in_words(report: CrosscheckReport, schedule: Schedule) -> str:
    """One line about the schedule, one about I, one about L, and the conclusion."""
    unit = schedule.options.time_unit_cycles
    lines = [f"crosscheck: CP-SAT {ACCEPTED[report.accepted]}"]
    lines.append(f"  I = {schedule.ii_cycles - unit}: {VERDICTS[report.smaller_ii]}")
    if report.length is not None:
        lines.append(f"  L = {schedule.length_cycles - unit} at I = {schedule.ii_cycles}: {VERDICTS[report.length]}")
    if not report.agrees:
        end = "CONTRADICTED: please report the command and this output"
    else:
        end = "confirmed" if report.confirms else "nothing contradicts the schedule"
    return "\n".join([*lines, f"  {end} ({report.seconds:.1f} s)"])
