"""``twill solve``: solve, check independently, then show and write."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twill.cli.files import further_path, refuse_unwritable, write_atomically
from twill.cli.progress import Progress, import_meanwhile
from twill.cli.request import Request, SolveArguments, refuse_bad_numbers, resolve
from twill.errors import EXIT_DONE, EXIT_REFUSED, EXIT_UNKNOWN, InternalError

if TYPE_CHECKING:
    from twill.model.machine import Machine
    from twill.model.schedule import Schedule
    from twill.solver.solve import Outcome

__all__ = ["checked_outcome", "exact_reasons", "solve_command"]


def solve_command(arguments: SolveArguments, *, timeout_s: float, with_crosscheck: bool, output: Path | None, as_json: bool) -> int:
    """Run one solve and return the exit code.

    Raises
    ------
    TwillError : bad input, an output that cannot be written, or a solver that died.
    """
    refuse_bad_numbers(timeout_s)
    if output is not None:
        refuse_unwritable(output)
    request = resolve(arguments)
    if with_crosscheck:
        from twill.solver.crosscheck.engine import load_ortools

        load_ortools()
    outcome = checked_outcome(request, arguments, timeout_s, quiet=as_json and not sys.stdout.isatty(), view=not as_json)
    if outcome.status in ("infeasible", "unknown"):
        return _nothing_found(request, outcome, timeout_s, as_json)
    if output is not None:
        for number, schedule in enumerate(outcome.schedules, start=1):
            write_atomically(output if number == 1 else further_path(output, number), schedule.to_json())
    if as_json:
        _print_json(outcome.schedules, as_list=arguments.top > 1)
    else:
        _print_summaries(request, outcome, arguments, output)
    return _second_opinion(outcome.schedules[0], request.machine, timeout_s) if with_crosscheck else EXIT_DONE


def checked_outcome(request: Request, arguments: SolveArguments, timeout_s: float, *, quiet: bool = False, view: bool = True) -> Outcome:
    """Solve, and let the independent checker see every schedule before anybody else does.

    ``view`` says that the terminal views will be needed; they are imported while the solver works.

    Raises
    ------
    InternalError : the checker refuses a schedule.
    SolverError : the solver process died.
    """
    from twill.solver.solve import solve

    views = ("rich.table", "twill.view.summary", "twill.view.console") if view else ()
    import_meanwhile("twill.check", *views)
    with Progress(f"solving {request.graph.name} on {request.machine.name}", wanted=not quiet) as progress:
        outcome = solve(request.graph, request.machine, request.options, top=arguments.top, timeout_s=timeout_s, seed=arguments.seed,
                        command=request.command, progress=progress.say)  # fmt: skip
    for schedule in outcome.schedules:
        _refuse_illegal(schedule, request.machine)
    return outcome


def _refuse_illegal(schedule: Schedule, machine: Machine) -> None:
    from twill.check import check_schedule

    report = check_schedule(schedule, machine)
    if not report.ok:
        findings = "\n".join(f"  {finding.message}" for finding in report.findings)
        raise InternalError(
            f"internal error: the checker refuses the schedule that the solver found, so it is neither shown nor written:\n{findings}",
            f"please report this output and the command `{schedule.provenance.command}`",
        )


def exact_reasons(request: Request) -> dict[str, str]:
    """Where each lower bound comes from, in cycles whatever the time unit."""
    from twill.solver.bounds import lower_bounds
    from twill.solver.problem import make_problem

    options = request.options.model_copy(update={"time_unit_cycles": 1})
    return dict(lower_bounds(make_problem(request.graph, request.machine, options)).reasons)


def _what(request: Request) -> str:
    return f"{request.graph.name} on {request.machine.name} ({request.machine.arch})"


def _nothing_found(request: Request, outcome: Outcome, timeout_s: float, as_json: bool) -> int:
    core = outcome.core
    if as_json:
        data: dict[str, Any] = {
            "status": outcome.status,
            "reason": list(core.words) if core else [],
            "core": {"ii_cycles": core.ii, "rules": core.rules, "subjects": core.subjects} if core else None,
            "lower_bounds_cycles": outcome.bounds_cycles,
            "ii_floor_cycles": outcome.ii_floor_cycles,
        }
        sys.stdout.write(json.dumps(data, indent=1) + "\n")
    else:
        print_nothing_found(request, outcome, timeout_s)
    return EXIT_REFUSED if outcome.status == "infeasible" else EXIT_UNKNOWN


def print_nothing_found(request: Request, outcome: Outcome, timeout_s: float) -> None:
    """Say why there is no schedule, or that it is not known."""
    from twill.view.console import show
    from twill.view.explain import infeasible, unknown
    from twill.view.words import bounds_in_words

    core = outcome.core
    if outcome.status == "infeasible":
        limit = request.options.max_ii_cycles
        view = infeasible(_what(request), core.words if core else None, core.rules if core else (), max_ii_cycles=limit,
                          minimal=core is None or core.minimal)  # fmt: skip
    else:
        bounds = bounds_in_words(outcome.bounds_cycles, exact_reasons(request))
        view = unknown(_what(request), outcome.ii_floor_cycles, bounds, timeout_s)
    show(view, sys.stdout)


def _print_json(schedules: tuple[Schedule, ...], *, as_list: bool) -> None:
    if not as_list:
        sys.stdout.write(schedules[0].to_json())
        return
    sys.stdout.write(json.dumps([s.model_dump(mode="json") for s in schedules], indent=1) + "\n")


def _print_summaries(request: Request, outcome: Outcome, arguments: SolveArguments, output: Path | None) -> None:
    from twill.view.console import show
    from twill.view.summary import summary

    reasons = exact_reasons(request)
    for number, schedule in enumerate(outcome.schedules, start=1):
        if arguments.top > 1:
            sys.stdout.write(f"schedule {number} of {len(outcome.schedules)}, by rank\n")
        show(summary(schedule, reasons), sys.stdout)
        if output is not None:
            sys.stdout.write(f"written to {output if number == 1 else further_path(output, number)}\n")
    if len(outcome.schedules) < arguments.top and outcome.schedules[-1].proof.rank_proved:
        sys.stdout.write(f"there are no more schedules of this I and L: {arguments.top} were asked for\n")


def _second_opinion(schedule: Schedule, machine: Machine, timeout_s: float) -> int:
    from twill.solver.crosscheck import crosscheck
    from twill.view.crosscheck import contradicted, crosscheck_in_words

    with Progress("crosscheck with CP-SAT"):
        report = crosscheck(schedule, machine, timeout_s=timeout_s)
    sys.stdout.flush()
    sys.stderr.write(crosscheck_in_words(report, schedule) + "\n")
    return EXIT_REFUSED if contradicted(report, schedule) else EXIT_DONE
