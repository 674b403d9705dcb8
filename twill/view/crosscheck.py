"""The second opinion in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twill.model.schedule import Schedule
    from twill.solver.crosscheck import CrosscheckReport

__all__ = ["contradicted", "crosscheck_in_words"]

VERDICTS = {
    "refuted": "impossible",
    "lower-bound": "impossible, by a lower bound alone",
    "found": "FOUND a schedule",
    "open": "not known: out of time",
}
ACCEPTED = {True: "accepts the schedule", False: "REFUSES the schedule", None: "did not finish with the schedule"}


def contradicted(report: CrosscheckReport, schedule: Schedule) -> bool:
    """Whether the second opinion denies something that the schedule claims: to be legal, or that nothing is better."""
    proof = schedule.proof
    asked = ((proof.ii, report.smaller_ii), (proof.margin, report.margin), (proof.length, report.length))
    if any(step.by != "none" and verdict == "found" for step, verdict in asked):
        return True
    return not report.agrees and all(verdict != "found" for _, verdict in asked)


def crosscheck_in_words(report: CrosscheckReport, schedule: Schedule) -> str:
    """One line about the schedule, one about I, one each about margin and L, and the conclusion."""
    unit = schedule.options.time_unit_cycles
    lines = [f"crosscheck: CP-SAT {ACCEPTED[report.accepted]}"]
    lines.append(f"  I = {schedule.ii_cycles - unit}: {VERDICTS[report.smaller_ii]}")
    if report.margin is not None:
        lines.append(f"  a margin of more than {schedule.margin_cycles} at I = {schedule.ii_cycles}: {VERDICTS[report.margin]}")
    if report.length is not None:
        lines.append(f"  L = {schedule.length_cycles - unit} at I = {schedule.ii_cycles}: {VERDICTS[report.length]}")
    if contradicted(report, schedule):
        end = "CONTRADICTED: please report the command and this output"
    elif not report.agrees:
        end = "a better schedule exists; this one was not said to be the best, for lack of time"
    else:
        end = "confirmed" if report.confirms else "nothing contradicts the schedule"
    return "\n".join([*lines, f"  {end} ({report.seconds:.1f} s)"])
