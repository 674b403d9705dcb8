"""One CP-SAT query: is there a schedule at this initiation interval, of at most this length?"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

from twill.errors import UsageError
from twill.model.schedule import Schedule
from twill.solver.crosscheck.families import capacity, concurrency, graph_symmetry, turns_apart, warps_of_groups
from twill.solver.crosscheck.frame import Frame, build_frame
from twill.solver.crosscheck.registers import registers
from twill.solver.crosscheck.rules import Problem
from twill.solver.crosscheck.storage import storage
from twill.solver.crosscheck.windows import windows

__all__ = ["Answer", "Query", "Witness", "load_ortools", "solve"]


@dataclass(frozen=True, slots=True)
class Witness:
    """A schedule that the model accepts: start cycle and group number of every op, and offsets of overlaid buffers."""

    ii_cycles: int
    length_cycles: int
    starts: Mapping[str, int]
    groups: Mapping[str, int]
    offsets: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """``found`` with a witness, ``refuted``, or ``open`` if time ran out.

    ``searched`` is false if longest paths and sums alone refuted; ``shortest`` says that no schedule of this I is shorter than the witness.
    """

    status: Literal["found", "refuted", "open"]
    seconds: float
    searched: bool = True
    witness: Witness | None = None
    shortest: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of CP-SAT.

    Attributes
    ----------
    ii_cycles, length_max_cycles : I, and the largest L; None stands for ``max_copies`` times I.
    margin_cycles : the least margin.
    shorten : look for the shortest schedule rather than for any.
    hint : a schedule to start from; it need not be legal.
    pin : every op starts and sits where the hint says.
    """

    problem: Problem
    ii_cycles: int
    length_max_cycles: int | None = None
    margin_cycles: int = 0
    shorten: bool = False
    hint: Schedule | None = None
    pin: bool = False


def load_ortools() -> ModuleType:
    """The module ``cp_model`` of ortools.

    Raises
    ------
    UsageError : ortools is not installed.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise UsageError("the second formulation needs ortools, which is not installed", "pip install 'twill-gpu[crosscheck]'") from None
    return cp_model


def solve(query: Query, *, timeout_s: float, workers: int, seed: int) -> Answer:
    """Build the model of a query and search it for at most ``timeout_s`` seconds."""
    cp_model = load_ortools()
    began = time.monotonic()
    problem, ii = query.problem, query.ii_cycles
    length = problem.options.max_copies * ii
    if query.length_max_cycles is not None:
        length = min(length, query.length_max_cycles)
    reach = windows(problem, ii, length)
    if reach is None:
        return Answer("refuted", time.monotonic() - began, searched=False)
    frame = build_frame(problem, cp_model.CpModel(), reach, ii, length, query.margin_cycles)
    _state_rules(frame, mirror=not query.pin)
    if query.hint is not None:
        _follow(frame, query.hint, pin=query.pin)
    if query.shorten:
        frame.model.minimize(frame.length)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(0.1, timeout_s - (time.monotonic() - began))
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    try:
        status = solver.solve(frame.model)
    except IndexError:
        # ortools 9.15: presolve meets "duplicate: false after merging", an infeasible model, and goes on into a missing key.
        solver.parameters.cp_model_presolve = False
        status = solver.solve(frame.model)
    seconds = time.monotonic() - began
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Answer("found", seconds, witness=_witness(frame, solver), shortest=query.shorten and status == cp_model.OPTIMAL)
    if status == cp_model.INFEASIBLE:
        return Answer("refuted", seconds)
    if status == cp_model.MODEL_INVALID:
        raise AssertionError(frame.model.validate())
    return Answer("open", seconds)


def _state_rules(frame: Frame, *, mirror: bool) -> None:
    rule = frame.problem.rule
    if rule("capacity"):
        capacity(frame)
    if rule("concurrency"):
        concurrency(frame)
    turns_apart(frame)
    warps_of_groups(frame, registers(frame))
    storage(frame)
    if mirror:
        graph_symmetry(frame)


def _follow(frame: Frame, schedule: Schedule, *, pin: bool) -> None:
    """Hint or pin starts and groups; groups are renumbered by their first op, as the model numbers them."""
    zero = next(op.start_cycle for op in schedule.ops if op.name == frame.anchor)
    number: dict[str, int] = {}
    placed = {op.name: op for op in schedule.ops}
    for name in frame.problem.ops:
        op = placed[name]
        group = number.setdefault(op.group, len(number))
        start = op.start_cycle - zero
        if pin:
            frame.model.add(frame.start[name] == start)
            if group >= frame.problem.groups:
                frame.model.add_bool_or([])
                return
            frame.model.add(frame.letter[name][group] == 1)
        else:
            _hint(frame, name, start, group)


def _hint(frame: Frame, name: str, start: int, group: int) -> None:
    model = frame.model
    for g, letter in enumerate(frame.letter[name]):
        model.add_hint(letter, g == group)
    if name in frame.raw:
        turns, phase, whole = frame.raw[name]
        unit = frame.problem.unit
        model.add_hint(whole, start // unit)
        model.add_hint(turns, start // frame.ii)
        model.add_hint(phase, start % frame.ii // unit)


def _witness(frame: Frame, solver: object) -> Witness:
    value = solver.value  # type: ignore[attr-defined]
    first = min(value(start) for start in frame.start.values())
    letters = {name: next(g for g, lit in enumerate(lits) if value(lit)) for name, lits in frame.letter.items()}
    alignment = {b.name: frame.problem.machine.memories[b.memory].alignment for b in frame.problem.graph.buffers}
    return Witness(
        ii_cycles=frame.ii,
        length_cycles=value(frame.length) - (first - value(frame.origin)),
        starts={name: value(start) - first for name, start in frame.start.items()},
        groups=letters,
        offsets={name: value(offset) * alignment[name] for name, offset in frame.offset.items()},
    )
