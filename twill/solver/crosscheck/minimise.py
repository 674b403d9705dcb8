"""The smallest I, at it the largest margin, and at both the smallest L, by CP-SAT alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from twill.model.graph import LoopGraph
from twill.model.machine import Machine
from twill.model.schedule import Options
from twill.solver.crosscheck.engine import Answer, Query, Witness, load_ortools, solve
from twill.solver.crosscheck.rules import Problem
from twill.solver.crosscheck.windows import round_up, windows

__all__ = ["Optimum", "lower_bound_cycles", "minimise"]

Ask = Callable[[Query, float], Answer]

PATIENCE = 0.25
"""Share of the time left that one query of the search for I may take, lest the first hard one takes all."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best schedule found; None if there is none.

    ``ii_proved``: every smaller I was refuted (or, without a witness, every I up to the limit).
    ``length_proved``: likewise for margin and L. ``bound_cycles``: the I that longest paths and sums leave.
    """

    witness: Witness | None
    margin_cycles: int
    ii_proved: bool
    length_proved: bool
    bound_cycles: int | None
    seconds: float


def _limit_cycles(problem: Problem) -> int:
    """An I at which nothing overlaps any more: what has no schedule here has none."""
    waits = [op.span_cycles for op in problem.graph.ops]
    waits += [e.latency_cycles + max(e.same_group_cycles, e.cross_group_cycles) for e in problem.graph.edges]
    waits += [r.hold_cycles + r.cross_group_cycles for b in problem.graph.buffers for r in b.readers]
    waits += [r.hold_cycles for v in problem.graph.values for r in v.readers]
    limit = problem.unit + sum(round_up(wait, problem.unit) for wait in waits)
    most = problem.options.max_ii_cycles
    limit += len({id(e) for e, _ in problem.late}) * round_up(max(map(problem.queue_cycles, problem.ops)), problem.unit)
    return limit if most is None else min(limit, most // problem.unit * problem.unit)


def lower_bound_cycles(problem: Problem) -> int | None:
    """The smallest I that longest paths, sums and lifetimes leave; None if they leave none up to the limit."""
    low, high = problem.unit, _limit_cycles(problem)

    def possible(ii: int) -> bool:
        return windows(problem, ii, problem.options.max_copies * ii) is not None

    if high < low or not possible(high):
        return None
    while low < high:
        middle = round_up((low + high) // 2, problem.unit)
        if middle == high:
            middle -= problem.unit
        if possible(middle):
            high = middle
        else:
            low = middle + problem.unit
    return low


def minimise(
    graph: LoopGraph, machine: Machine, options: Options, *, timeout_s: float, workers: int = 2, seed: int = 0, length: bool = True
) -> Optimum:
    """Find the smallest I by bisection (a scan if reservations start late: formulation, section 5), the largest margin, the smallest L.

    Raises
    ------
    UsageError : ortools is not installed, or an option names a rule that does not exist.
    """
    load_ortools()
    began = time.monotonic()
    problem = Problem(graph, machine, options)

    def ask(query: Query, share: float) -> Answer:
        left = (timeout_s - (time.monotonic() - began)) * share
        return solve(query, timeout_s=left, workers=workers, seed=seed) if left > 0 else Answer("open", 0.0)

    def seconds() -> float:
        return time.monotonic() - began

    bound = lower_bound_cycles(problem)
    if bound is None:
        return Optimum(None, 0, True, True, None, seconds())
    best, proved = _scan(problem, bound, ask) if _late_reservations(graph) else _bisect(problem, bound, ask)
    if best is None or not length:
        return Optimum(best, 0, proved, best is None and proved, bound, seconds())
    best, margin, largest = _calmest(problem, best, ask)
    answer = ask(Query(problem, best.ii_cycles, best.length_cycles, margin, shorten=True), 1.0)
    short = answer.witness or best
    return Optimum(short, margin, proved, largest and answer.shortest, bound, seconds())


def _calmest(problem: Problem, best: Witness, ask: Ask) -> tuple[Witness, int, bool]:
    """A schedule of the largest margin at this I, that margin, and whether a larger one was refuted; step by step down from the top."""
    proved = True
    for margin in range(problem.most_margin, 0, -problem.margin_step):
        answer = ask(Query(problem, best.ii_cycles, margin_cycles=margin), PATIENCE)
        if answer.witness:
            return answer.witness, margin, proved
        proved &= answer.status == "refuted"
    return best, 0, proved


def _late_reservations(graph: LoopGraph) -> bool:
    return any(r.offset for op in graph.ops for r in op.reservations)


def _scan(problem: Problem, bound: int, ask: Ask) -> tuple[Witness | None, bool]:
    proved = True
    for ii in range(bound, _limit_cycles(problem) + 1, problem.unit):
        answer = ask(Query(problem, ii), PATIENCE)
        if answer.witness:
            return answer.witness, proved
        proved &= answer.status == "refuted"
    return None, proved


def _bisect(problem: Problem, bound: int, ask: Ask) -> tuple[Witness | None, bool]:
    """Double the distance from the bound until something is found, then halve the gap.

    A query that stays open counts as a failure for the search, and ends the proof.
    """
    unit, limit = problem.unit, _limit_cycles(problem)
    low, step, best, proved = bound, 0, None, True
    while best is None:
        ii = min(limit, bound + step)
        answer = ask(Query(problem, ii), PATIENCE)
        proved &= answer.status != "open"
        best = answer.witness
        if best is None:
            if ii == limit:
                return None, proved
            low, step = ii + unit, max(unit, step * 2)
    while low < best.ii_cycles:
        ii = low + (best.ii_cycles - low) // unit // 2 * unit
        answer = ask(Query(problem, ii), PATIENCE)
        proved &= answer.status != "open"
        if answer.witness:
            best = answer.witness
        else:
            low = ii + unit
    return best, proved
