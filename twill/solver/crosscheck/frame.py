"""The variables of one CP-SAT model and the constraints on time alone: starts, phases, dependences, length.

A start is k I + p with phase p in [0, I). Time is shifted so that one op, the anchor, starts at 0; `origin` is then the
first cycle of iteration 0, at or before 0. Rotations of one schedule are thereby one solution.
Everything periodic is laid on the window [0, I): an interval that begins at a phase is entered with copies shifted by -I, -2 I, ...
so that the window sees all of it, while no other cycle sees more than the window does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from twill.model.graph import Op
from twill.solver.crosscheck.rules import Problem
from twill.solver.crosscheck.windows import ORIGIN, Windows

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["Frame", "Stretch", "build_frame"]

Linear = Any
"""A linear expression of CP-SAT: a variable, an int or a sum of such."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """An interval of the window that begins at phase ``begin``, lasts ``size`` and needs ``size_max`` at most."""

    begin: Linear
    size: Linear
    stop: Linear
    size_max: int
    begin_max: int
    name: str


@dataclass(slots=True)
class Frame:
    """One CP-SAT model under construction.

    Attributes
    ----------
    start, phase : M(v) less M(anchor), and its residue modulo I.
    letter : ``letter[v][g]`` is true if group g executes v.
    offset : addresses of overlaid buffers, in steps of the alignment.
    raw : turns k, phase and start as plain variables in time units, for hints.
    origin, length : the first cycle of iteration 0 (0 or less), and L.
    """

    problem: Problem
    model: cp_model.CpModel
    ii: int
    length_max: int
    windows: Windows
    anchor: str
    start: dict[str, Linear] = field(default_factory=dict)
    phase: dict[str, Linear] = field(default_factory=dict)
    letter: dict[str, list[Any]] = field(default_factory=dict)
    offset: dict[str, Linear] = field(default_factory=dict)
    raw: dict[str, tuple[Any, Any, Any]] = field(default_factory=dict)
    origin: Linear = 0
    length: Linear = 0
    _same: dict[tuple[str, str], Any] = field(default_factory=dict)
    _literals: dict[bool, Any] = field(default_factory=dict)

    def literal(self, value: bool) -> Any:
        """A constant literal."""
        if value not in self._literals:
            self._literals[value] = self.model.new_constant(int(value))
        return self._literals[value]

    def same(self, u: str, v: str) -> Any:
        """The literal that u and v are in one group."""
        if u == v:
            return self.literal(True)
        if u > v:
            u, v = v, u
        if (u, v) not in self._same:
            self._same[u, v] = self._new_same(u, v)
        return self._same[u, v]

    def _new_same(self, u: str, v: str) -> Any:
        pair = frozenset((u, v))
        if pair in self.problem.apart:
            return self.literal(False)
        if pair in self.problem.together:
            return self.literal(True)
        same = self.model.new_bool_var(f"same[{u},{v}]")
        for of_u, of_v in zip(self.letter[u], self.letter[v], strict=True):
            self.model.add_bool_or(~of_u, ~of_v, same)
            self.model.add_implication(of_u, of_v).only_enforce_if(same)
            self.model.add_implication(of_v, of_u).only_enforce_if(same)
        return same

    def copies(self, stretch: Stretch, present: Any | None = None) -> list[cp_model.IntervalVar]:
        """The stretch and its shifts, so that [0, I) sees every cycle of it."""
        reach = -(-(stretch.begin_max + stretch.size_max) // self.ii)
        found = []
        for k in range(reach):
            args = (stretch.begin - k * self.ii, stretch.size, stretch.stop - k * self.ii)
            name = f"{stretch.name}-{k}I"
            if present is None:
                found.append(self.model.new_interval_var(*args, name))
            else:
                found.append(self.model.new_optional_interval_var(*args, present, name))
        return found

    def fixed(self, op: str, offset: int, cycles: int, name: str) -> Stretch:
        """The stretch of constant length that begins ``offset`` after the issue of an op."""
        shift = offset % self.ii
        begin = self.phase[op] + shift
        return Stretch(begin, cycles, begin + cycles, cycles, self.ii - 1 + shift, name)

    def variable(self, phase: Linear, size: Linear, size_max: int, name: str) -> Stretch:
        """The stretch of variable length that begins at a phase."""
        stop = self.model.new_int_var(0, self.ii - 1 + size_max, f"stop[{name}]")
        self.model.add(stop == phase + size)
        return Stretch(phase, size, stop, size_max, self.ii - 1, name)

    def period(self, present: Any, name: str) -> cp_model.IntervalVar:
        """The whole window, for what is always there."""
        return self.model.new_optional_fixed_size_interval_var(0, self.ii, present, name)

    def residue(self, time: Linear, low: int, high: int, name: str) -> Linear:
        """``time`` modulo I, ``time`` being in [low, high]."""
        turns = self.model.new_int_var(low // self.ii, high // self.ii, f"turns[{name}]")
        phase = self.model.new_int_var(0, self.ii - 1, f"phase[{name}]")
        self.model.add(time == turns * self.ii + phase)
        return phase


def build_frame(problem: Problem, model: cp_model.CpModel, windows: Windows, ii: int, length_max: int, margin: int) -> Frame:
    """Variables of times and groups, with dependences, a margin of at least that many cycles, and completion."""
    frame = Frame(problem, model, ii, length_max, windows, _anchor(problem).name)
    unit, gap = problem.unit, windows.gap
    for name in problem.ops:
        low, high = gap[frame.anchor][name], -gap[name][frame.anchor]
        if name == frame.anchor:
            frame.start[name] = frame.phase[name] = model.new_constant(0)
            continue
        turns = model.new_int_var(low // ii, high // ii, f"turns[{name}]")
        phase = model.new_int_var(0, ii // unit - 1, f"phase[{name}]")
        start = model.new_int_var(-(-low // unit), high // unit, f"start[{name}]")
        model.add(start == turns * (ii // unit) + phase)
        frame.raw[name] = (turns, phase, start)
        frame.start[name], frame.phase[name] = start * unit, phase * unit
    origin = model.new_int_var(gap[frame.anchor][ORIGIN] // unit, -gap[ORIGIN][frame.anchor] // unit, "origin")
    length = model.new_int_var(0, length_max // unit, "length")
    frame.origin, frame.length = origin * unit, length * unit
    for op in problem.graph.ops:
        model.add(frame.start[op.name] >= frame.origin)
        model.add(frame.start[op.name] + op.span_cycles <= frame.origin + frame.length)
    _letters(frame)
    _dependences(frame, margin)
    _paths(frame)
    return frame


def _anchor(problem: Problem) -> Op:
    """The op that fills its unit longest: fixing it leaves the others the least room."""
    moved = [first[0] for first, _ in problem.graph.symmetries]
    if moved:
        return problem.ops[min(moved, key=list(problem.ops).index)]
    return max(problem.graph.ops, key=lambda op: sum(r.amount * r.cycles for r in op.reservations))


def _letters(frame: Frame) -> None:
    """Every op has one group; groups are numbered by their first op, so that renaming groups gives nothing new."""
    model, groups = frame.model, frame.problem.groups
    for name in frame.problem.ops:
        frame.letter[name] = [model.new_bool_var(f"in[{name},{g}]") for g in range(groups)]
        model.add_exactly_one(frame.letter[name])
    earlier: list[str] = []
    for name in frame.problem.ops:
        for g in range(1, groups):
            if g > len(earlier):
                model.add(frame.letter[name][g] == 0)
            else:
                model.add_bool_or(~frame.letter[name][g], *(frame.letter[u][g - 1] for u in earlier))
        earlier.append(name)
    for pair in frame.problem.apart:
        u, v = pair
        for of_u, of_v in zip(frame.letter[u], frame.letter[v], strict=True):
            model.add_bool_or(~of_u, ~of_v)
    for pair in frame.problem.together:
        u, v = pair
        for of_u, of_v in zip(frame.letter[u], frame.letter[v], strict=True):
            model.add(of_u == of_v)


def _dependences(frame: Frame, margin: int) -> None:
    for e in frame.problem.graph.edges:
        if e.src == e.dst:
            continue
        cross = frame.problem.cross_cycles(e)
        at_least = frame.start[e.src] + e.latency_cycles + cross - e.distance * frame.ii
        if cross != e.same_group_cycles:
            at_least += (e.same_group_cycles - cross) * frame.same(e.src, e.dst)
        frame.model.add(frame.start[e.dst] >= at_least)
    _late_results(frame, margin)


def _late_results(frame: Frame, margin: int) -> None:
    """Rule queueing: an op of another group, and ``margin`` cycles more, may be ahead of every result that somebody waits for."""
    for e, w in frame.problem.late:
        cross = frame.problem.cross_cycles(e)
        ready = frame.start[e.src] + e.latency_cycles + frame.problem.queue_cycles(w) + margin - e.distance * frame.ii
        behind = ~frame.same(e.src, w)
        if cross == e.same_group_cycles or e.src == e.dst:
            frame.model.add(frame.start[e.dst] >= ready + e.same_group_cycles).only_enforce_if(behind)
            continue
        near = frame.same(e.src, e.dst)
        frame.model.add(frame.start[e.dst] >= ready + e.same_group_cycles).only_enforce_if(behind, near)
        frame.model.add(frame.start[e.dst] >= ready + cross).only_enforce_if(behind, ~near)


def _paths(frame: Frame) -> None:
    """Redundant: the longest paths that no single edge shows."""
    gap = frame.windows.gap
    names: Iterable[str] = frame.problem.ops
    for u in names:
        for v in names:
            if u != v and gap[u][v] > 0:
                frame.model.add(frame.start[v] - frame.start[u] >= gap[u][v])
