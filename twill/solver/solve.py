"""The solver's front door: a graph, a machine and options in, an outcome out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from twill.errors import SolverError, UsageError
from twill.model.graph import LoopGraph
from twill.model.machine import Machine
from twill.model.schedule import Options, Schedule
from twill.model.validate import validate_graph
from twill.solver.bounds import default_copies
from twill.solver.candidate import level_grid
from twill.solver.encoding.build import Lazy
from twill.solver.explain import Core, explain_refutation
from twill.solver.problem import Problem, make_problem, rounding_error
from twill.solver.result import make_schedule
from twill.solver.search import Found, Search
from twill.solver.session import OutOfTime, Session

__all__ = ["DEFAULT_GROUPS", "Outcome", "default_options", "explain", "solve"]

DEFAULT_GROUPS = 6

Status = Literal["optimal", "feasible", "infeasible", "unknown"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a solve came to.

    ``schedules`` is empty exactly for ``infeasible`` and ``unknown``; ``core`` explains ``infeasible``;
    ``bounds_cycles``/``reasons`` are the lower bounds on I by name, ``ii_floor_cycles`` the best bound proved;
    ``rounding_error`` is the largest relative error of a cost through the time unit.
    """

    status: Status
    schedules: tuple[Schedule, ...]
    bounds_cycles: dict[str, int]
    reasons: dict[str, str]
    ii_floor_cycles: int
    rounding_error: float
    queries: int
    core: Core | None = None


def default_options(graph: LoopGraph, machine: Machine, *, registers: int | None = None, groups: int | None = None,
                    max_copies: int | None = None, without: tuple[str, ...] = (), with_rules: tuple[str, ...] = (),
                    max_ii_cycles: int | None = None, time_unit_cycles: int = 1) -> Options:  # fmt: skip
    """Options with everything not given set to its default, which depends on the graph for ``max_copies``.

    Raises
    ------
    UsageError : a number out of range, or a name that is no rule.
    """
    for name, value in (("--registers", registers), ("--groups", groups), ("--max-copies", max_copies),
                        ("--max-ii", max_ii_cycles), ("--time-unit", time_unit_cycles)):  # fmt: skip
        if value is not None and value < 1:
            raise UsageError(f"{name} {value} is not a positive number", "give 1 or more")
    if groups is not None and groups > 32:
        raise UsageError(f"--groups {groups} is more than a block has warps", "give at most 32")
    validate_graph(graph, machine)
    options = Options(
        registers=registers, groups=groups or min(DEFAULT_GROUPS, len(graph.ops)), max_copies=max_copies or 3,
        without=tuple(sorted(set(without))), with_rules=tuple(sorted(set(with_rules))), max_ii_cycles=max_ii_cycles,
        time_unit_cycles=time_unit_cycles,
    )  # fmt: skip
    problem = make_problem(graph, machine, options)
    if max_copies is None:
        options = options.model_copy(update={"max_copies": default_copies(problem)})
    return options


def solve(graph: LoopGraph, machine: Machine, options: Options | None = None, *, top: int = 1, timeout_s: float = 300.0,
          seed: int = 0, command: str = "", progress: Callable[[str], None] | None = None) -> Outcome:  # fmt: skip
    """Find the best schedules of a loop graph on a machine, with proof.

    Parameters
    ----------
    top : how many distinct schedules of the best I and L to list, by rank.
    timeout_s : seconds of wall time for everything; what is known by then is returned.
    command : what to record as the command that made the file.
    progress : called with a line of text whenever a bound moves.

    Raises
    ------
    GraphError : the graph makes no sense on this machine.
    UsageError : an option that makes no sense.
    SolverError : the solver process died.
    """
    if top < 1:
        raise UsageError(f"--top {top} is not a positive number", "give 1 or more")
    if timeout_s <= 0:
        raise UsageError(f"--timeout {timeout_s} is not a positive number of seconds", "give 60, say")
    options = options or default_options(graph, machine)
    validate_graph(graph, machine)
    problem = make_problem(graph, machine, options)
    with Session(timeout_s=timeout_s, seed=seed) as session:
        search = Search(problem, session, progress)
        found = search.solve(top=top)
        core = None
        if found.infeasible:
            core = _core(problem, session, search)
        return _outcome(problem, found, session, core, command)


def explain(graph: LoopGraph, machine: Machine, options: Options, ii_cycles: int, *, timeout_s: float = 300.0,
            seed: int = 0, progress: Callable[[str], None] | None = None) -> Core | None:  # fmt: skip
    """Why no schedule has an initiation interval of ``ii_cycles``; None if one has.

    Raises
    ------
    SolverError : the solver process died, or time ran out.
    """
    problem = make_problem(graph, machine, options)
    with Session(timeout_s=timeout_s, seed=seed) as session:
        try:
            # a refutation is easier with the registers spelled out from the start
            spelled_out = Lazy(False, bool(problem.values), level_grid(problem) if problem.on("register-file") else (), False)
            return explain_refutation(problem, session, spelled_out, ii_cycles // problem.unit_cycles, progress)
        except OutOfTime:
            raise SolverError(f"time ran out while explaining I = {ii_cycles}", "give a longer --timeout") from None


def _core(problem: Problem, session: Session, search: Search) -> Core | None:
    try:
        return explain_refutation(problem, session, search.lazy, search.ceiling(), search.say)
    except (OutOfTime, SolverError):
        # the refutation stands without its explanation
        return None


def _outcome(problem: Problem, found: Found, session: Session, core: Core | None, command: str) -> Outcome:
    schedules = tuple(
        make_schedule(problem, found, c, solver_version=session.version, seed=session.seed,
                      queries=session.queries, command=command)
        for c in found.ranked
    )  # fmt: skip
    status: Status = "infeasible" if found.infeasible else "unknown"
    if schedules:
        status = schedules[0].status
    return Outcome(
        status=status, schedules=schedules, bounds_cycles=dict(found.bounds.values), reasons=dict(found.bounds.reasons),
        ii_floor_cycles=found.ii_floor * problem.unit_cycles, rounding_error=rounding_error(problem), queries=session.queries, core=core,
    )  # fmt: skip
