"""The second opinion on a finished schedule."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from twill.model.machine import Machine
from twill.model.schedule import Schedule
from twill.solver.crosscheck.engine import Answer, Query, Witness, load_ortools, solve
from twill.solver.crosscheck.rules import Problem

__all__ = ["CrosscheckReport", "crosscheck"]

Verdict = Literal["refuted", "lower-bound", "found", "open"]


@dataclass(frozen=True, slots=True)
class CrosscheckReport:
    """What CP-SAT says about I, margin and L of a schedule.

    Attributes
    ----------
    accepted : the schedule as it stands, every start and group, satisfies the CP-SAT model; None if time ran out.
    ii_feasible : some schedule of this I exists; None if time ran out.
    smaller_ii : about I less one time unit: ``lower-bound`` if longest paths and sums rule it out without search,
        ``refuted`` by search, ``found``, or ``open``.
    length : likewise about L less one time unit at the same I and margin; None if it was not asked for.
    margin : likewise about a margin of one step more at the same I; None if it was not asked for, or if more does not count.
    counterexample, shorter : the better schedules, if any was found.
    seconds : wall time of all queries.
    """

    accepted: bool | None
    ii_feasible: bool | None
    smaller_ii: Verdict
    length: Verdict | None
    seconds: float
    margin: Verdict | None = None
    counterexample: Witness | None = None
    shorter: Witness | None = None

    @property
    def agrees(self) -> bool:
        """Nothing that was found contradicts the schedule; open questions do not."""
        return self.accepted is not False and self.ii_feasible is not False and "found" not in (self.smaller_ii, self.margin, self.length)

    @property
    def confirms(self) -> bool:
        """The schedule was accepted and everything smaller that was asked about was ruled out."""
        ruled_out = ("refuted", "lower-bound")
        return bool(self.accepted) and self.smaller_ii in ruled_out and {self.margin, self.length} <= {*ruled_out, None}


def _verdict(answer: Answer) -> Verdict:
    return "lower-bound" if answer.status == "refuted" and not answer.searched else answer.status


def _without_queueing(problem: Problem) -> Problem:
    if not problem.rule("queueing"):
        return problem
    options = problem.options.model_copy(update={"without": (*problem.options.without, "queueing")})
    return Problem(problem.graph, problem.machine, options)


def crosscheck(
    schedule: Schedule, machine: Machine, *, timeout_s: float, workers: int = 2, seed: int = 0, length: bool = True
) -> CrosscheckReport:
    """Ask CP-SAT, with a formulation that shares nothing with the solver's, about I, margin and L of a schedule.

    ``timeout_s`` covers all queries together: feasibility first, then I, then (unless ``length`` is false) margin and L.

    Raises
    ------
    UsageError : ortools is not installed, or the options of the schedule name a rule that does not exist.
    """
    load_ortools()
    began = time.monotonic()
    problem = Problem(schedule.graph, machine, schedule.options)
    ii, most, unit = schedule.ii_cycles, schedule.length_cycles, problem.unit

    def ask(query: Query, share: float = 1.0) -> Answer:
        left = timeout_s - (time.monotonic() - began)
        return solve(query, timeout_s=left * share, workers=workers, seed=seed) if left > 0 else Answer("open", 0.0)

    margin = schedule.margin_cycles
    pinned = ask(Query(problem, ii, most, margin, hint=schedule, pin=True), 0.3)
    accepted = {"found": True, "refuted": False, "open": None}[pinned.status]
    feasible: bool | None = accepted
    if not accepted:
        any_schedule = ask(Query(problem, ii, margin_cycles=margin, hint=schedule), 0.4)
        feasible = {"found": True, "refuted": False, "open": None}[any_schedule.status]
    smaller = Answer("refuted", 0.0, searched=False)
    if ii > unit:
        # what no schedule does without the rule queueing, none does with it; and it is sooner refuted
        smaller = ask(Query(_without_queueing(problem), ii - unit), 0.3 if length else 0.5)
        if smaller.status != "refuted":
            smaller = ask(Query(problem, ii - unit), 0.5 if length else 1.0)
    calmer = ask(Query(problem, ii, margin_cycles=margin + problem.margin_step), 0.5) if length and margin < problem.most_margin else None
    shorter = ask(Query(problem, ii, most - unit, margin)) if length else None
    return CrosscheckReport(
        accepted=accepted,
        ii_feasible=feasible,
        smaller_ii=_verdict(smaller),
        length=_verdict(shorter) if shorter else None,
        seconds=time.monotonic() - began,
        margin=_verdict(calmer) if calmer else None,
        counterexample=smaller.witness,
        shorter=shorter.witness if shorter else None,
    )
