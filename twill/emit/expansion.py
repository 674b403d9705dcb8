"""Modulo expansion of a role into straight-line prologue, steady period and epilogue.

With S stages, periods 0 to S - 2 are the prologue, periods S - 1 to T - 1 the steady state, periods T to T + S - 2 the epilogue.
That is right for every trip count T >= S - 1; smaller ones are expanded one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from twill.lower import Execute, Instruction, Role, WaitOwn

__all__ = ["Expansion", "Iteration", "Step", "expand"]


@dataclass(frozen=True, slots=True)
class Iteration:
    """An iteration: ``offset`` after 0, after the period's number n or after the trip count."""

    base: str
    offset: int

    def relative(self, here: str) -> str:
        """As Python, where ``here`` names the base: ``i``, ``i - 1``."""
        return here if self.offset == 0 else f"{here} {'-' if self.offset < 0 else '+'} {abs(self.offset)}"

    def later(self, by: int) -> Iteration:
        """The iteration ``by`` after this one."""
        return replace(self, offset=self.offset + by)


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction as executed for an iteration.

    ``ages`` says for each op whose register results this one reads how often that op has been executed since: 0 if its latest
    results are the ones wanted.
    """

    instruction: Instruction
    at: Iteration
    ages: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Expansion:
    """A role as straight-line code. ``short`` holds the code of trip counts 1 to S - 2."""

    role: Role
    prologue: tuple[Step, ...]
    steady: tuple[Step, ...]
    epilogue: tuple[Step, ...]
    short: tuple[tuple[Step, ...], ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self.prologue, *self.steady, *self.epilogue, *(s for steps in self.short for s in steps))

    def age(self, producer: str) -> int:
        """The largest age at which results of ``producer`` are read anywhere."""
        return max((s.ages.get(producer, 0) for s in self.steps), default=0)


def _periods(role: Role, trip_count: int, reads: Mapping[str, frozenset[str]]) -> list[list[tuple[Instruction, int, dict[str, int]]]]:
    """Instruction, iteration and ages of every period."""
    periods: list[list[tuple[Instruction, int, dict[str, int]]]] = []
    latest: dict[str, int] = {}
    for period in range(trip_count + role.stages - 1):
        periods.append([])
        for x in role.body:
            iteration = period - x.stage
            if not 0 <= iteration < trip_count:
                continue
            ages: dict[str, int] = {}
            if isinstance(x, Execute):
                ages = {op: latest[op] - iteration for op in reads.get(x.op, ()) if op in latest}
                latest[x.op] = iteration
            elif isinstance(x, WaitOwn):
                x = x.in_period(period, trip_count)
            periods[-1].append((x, iteration, ages))
    return periods


def expand(role: Role, reads: Mapping[str, frozenset[str]]) -> Expansion:
    """Expand a role; ``reads`` names for each op the ops of the same role whose register results it reads."""
    stages = role.stages
    many = 2 * stages + 1
    periods = _periods(role, many, reads)

    def steps(numbers: range, base: str, origin: int) -> tuple[Step, ...]:
        return tuple(Step(x, Iteration(base, i - origin), ages) for p in numbers for x, i, ages in periods[p])

    short = tuple(
        tuple(Step(x, Iteration("0", i), ages) for period in _periods(role, count, reads) for x, i, ages in period)
        for count in range(1, stages - 1)
    )
    return Expansion(
        role,
        prologue=steps(range(stages - 1), "0", 0),
        steady=steps(range(stages, stages + 1), "n", stages),
        epilogue=steps(range(many, many + stages - 1), "trips", many),
        short=short,
    )
