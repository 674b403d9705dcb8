"""``twill explain``: why the initiation interval cannot be smaller."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twill.cli.files import read_schedule, read_text
from twill.cli.progress import Progress
from twill.cli.request import Request, SolveArguments, machine_of_schedule, refuse_bad_numbers, resolve
from twill.cli.solve import checked_outcome, exact_reasons, print_nothing_found
from twill.errors import EXIT_DONE, EXIT_REFUSED, EXIT_UNKNOWN, UsageError

if TYPE_CHECKING:
    from twill.model.schedule import ProofStep, Schedule

__all__ = ["explain_command"]


def explain_command(arguments: SolveArguments, *, ii_cycles: int | None, timeout_s: float) -> int:
    """Explain a schedule file, or solve first and explain the outcome.

    Raises
    ------
    TwillError : bad input, a schedule that is not legal, a solver that died, or time that ran out.
    """
    refuse_bad_numbers(timeout_s)
    schedule: Schedule | None = None
    if _is_schedule(arguments.target):
        request, schedule = _from_file(arguments)
    else:
        request = resolve(arguments)
        _refuse_ii(ii_cycles, request.options.time_unit_cycles)
        if ii_cycles is None:
            outcome = checked_outcome(request, arguments, timeout_s)
            if not outcome.schedules:
                print_nothing_found(request, outcome, timeout_s)
                return EXIT_REFUSED if outcome.status == "infeasible" else EXIT_UNKNOWN
            schedule = outcome.schedules[0]
    _refuse_ii(ii_cycles, request.options.time_unit_cycles)
    if schedule is not None and ii_cycles is None:
        _print_what_it_is(request, schedule)
    proof = schedule.proof.ii if schedule is not None else None
    if ii_cycles is None and proof is not None and proof.by != "refutation":
        return _without_search(request, proof)
    asked = ii_cycles if ii_cycles is not None else (proof.refuted_cycles if proof else None)
    assert asked is not None
    return _search(request, asked, timeout_s, arguments.seed)


def _is_schedule(target: str) -> bool:
    """Whether the target is a schedule rather than a graph; files that are neither are left to the reader of graphs."""
    from twill.model.registry import GRAPHS

    if target in GRAPHS:
        return False
    if not Path(target).exists():
        from twill.schedules import names

        return target in names()
    try:
        raw: Any = json.loads(read_text(target, "a schedule or a graph"))
    except (ValueError, RecursionError):
        return False
    return isinstance(raw, dict) and "ii_cycles" in raw


def _from_file(arguments: SolveArguments) -> tuple[Request, Schedule]:
    from twill.check import checked

    given = arguments.given() + (("--arch",) if arguments.arch is not None else ())
    if given:
        raise UsageError(f"{given[0]} means nothing for a schedule from a file, which says it all", f"leave {given[0]} away")
    schedule = read_schedule(arguments.target)
    machine = machine_of_schedule(schedule.machine.name, arguments.machine)
    checked(schedule, machine)
    return Request(schedule.graph, machine, schedule.options, schedule.provenance.command), schedule


def _print_what_it_is(request: Request, schedule: Schedule) -> None:
    """For attention: the interval, what limits it, and what that makes of the chip."""
    from twill.view.words import bottleneck, throughput_in_words

    speed = throughput_in_words(schedule.graph, request.machine, schedule.ii_cycles)
    if speed is not None:
        sys.stdout.write(f"I = {schedule.ii_cycles} cycles. Bottleneck: {bottleneck(schedule)}.\n")
        sys.stdout.write(f"Predicted: {speed} in the steady state; prologue, epilogue and the last wave not counted.\n")


def _refuse_ii(ii_cycles: int | None, unit: int) -> None:
    if ii_cycles is None:
        return
    if ii_cycles < 1:
        raise UsageError(f"--ii {ii_cycles} is not a positive number", "give 1 or more")
    if ii_cycles % unit:
        nearest = -(-ii_cycles // unit) * unit
        raise UsageError(f"--ii {ii_cycles} is not a multiple of the time unit of {unit} cycles", f"give {nearest}, say")


def _without_search(request: Request, proof: ProofStep) -> int:
    """The proof record itself answers: a lower bound, or time that ran out."""
    from twill.view.console import show
    from twill.view.explain import not_smaller

    if proof.by == "lower-bound":
        show(not_smaller(proof.value_cycles, proof.bound or "", exact_reasons(request)), sys.stdout)
        return EXIT_DONE
    floor = proof.value_cycles - proof.gap_cycles
    sys.stdout.write(f"I = {proof.value_cycles} is not proved to be the smallest: time ran out with {floor} not ruled out.\n")
    sys.stdout.write("next step: solve it again with a longer --timeout, or ask about one I with --ii\n")
    return EXIT_UNKNOWN


def _search(request: Request, ii_cycles: int, timeout_s: float, seed: int) -> int:
    from twill.solver.solve import explain

    with Progress(f"why not I = {ii_cycles}") as progress:
        core = explain(request.graph, request.machine, request.options, ii_cycles, timeout_s=timeout_s, seed=seed, progress=progress.say)
    from twill.view.console import show
    from twill.view.explain import because

    what = f"{request.graph.name} on {request.machine.name}"
    if core is None:
        sys.stdout.write(f"{what}: a schedule with I = {ii_cycles} exists.\n")
        return EXIT_DONE
    sys.stdout.write(f"{what}: no schedule with I = {ii_cycles} exists.\n")
    show(because(core.words, minimal=core.minimal), sys.stdout)
    return EXIT_DONE
