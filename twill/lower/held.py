"""Registers in program order: what a role holds when it issues an op, and waits that have to come earlier for it.

A schedule frees the registers that an MMA reads when the MMA is over. The program frees them only where it waits for it, and until
then they count beside what is issued in between: beyond what the role asked for, the assembler serialises every wgmma. So a role waits for
an MMA that holds registers before the next MMA that takes new ones, and wherever else they would not do, if the schedule has it over
by then: such a wait passes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from twill.lower.roles import Loop
from twill.model.graph import RegisterValue

__all__ = ["Place", "earlier_waits"]

Place = tuple[str, int, int]
"""An MMA, and where it is waited for: before the op at that position, in the period that many after its iteration's number."""
Instance = tuple[str, int]
"""An op or a value of an iteration."""


@dataclass(slots=True)
class _State:
    """A role on its way: values that it holds, each with the readers that still need it, and MMAs in the order of issue."""

    held: dict[Instance, set[Instance]] = field(default_factory=dict)
    issued: list[Instance] = field(default_factory=list)
    running: set[Instance] = field(default_factory=set)

    def over(self, reader: Instance) -> None:
        """A reader needs nothing any more."""
        for value, readers in list(self.held.items()):
            readers.discard(reader)
            if not readers:
                del self.held[value]

    def wait(self, mma: Instance) -> None:
        """All MMAs up to this one are over."""
        if mma in self.issued:
            for earlier in self.issued[: self.issued.index(mma) + 1]:
                self.running.discard(earlier)
                self.over(earlier)


def _readers(loop: Loop, value: RegisterValue, iteration: int) -> set[Instance]:
    role = loop.role(value.producer)
    return {(r.op, iteration + r.distance) for r in value.readers if loop.role(r.op) == role}


def _walk(loop: Loop, role: str, waits: Sequence[Place]) -> list[tuple[int, list[Instance]]]:
    """For every position of a steady period: registers held once its op is issued, and running MMAs that hold some."""
    ops, sizes = loop.order[role], {v.name: v.registers for v in loop.graph.values}
    made: dict[str, list[RegisterValue]] = {}
    for v in loop.graph.values:
        if not v.persistent:
            made.setdefault(v.producer, []).append(v)
    kept = sum(v.registers for v in loop.graph.values if v.persistent and loop.role(v.producer) == role)
    in_place = {(v.name, r.op) for v in loop.graph.values for r in v.readers if r.hold_cycles == 0}
    state, found = _State(), []
    steady = 2 + 2 * max(loop.place[op].stage for op in ops)
    for period in range(steady + 1):
        for position, op in enumerate(ops):
            for mma, at, stage in waits:
                if loop.role(mma) == role and at == position:
                    state.wait((mma, period - stage))
            this = (op, period - loop.place[op].stage)
            for value, readers in list(state.held.items()):
                if readers == {this} and (value[0], op) in in_place:
                    del state.held[value]
            for v in made.get(op, ()):
                state.held[v.name, this[1]] = _readers(loop, v, this[1])
            if loop.waits_own(op):
                state.issued.append(this)
                state.running.add(this)
            if period == steady:
                holders = [m for m in state.issued if m in state.running and any(m in r for r in state.held.values())]
                found.append((kept + sum(sizes[name] for name, _ in state.held), [(m, i - period) for m, i in holders]))
            if not loop.waits_own(op):
                state.over(this)
    return found


def _limit(loop: Loop, role: str) -> int:
    """Registers for values."""
    asked = next(g.registers_per_thread for g in loop.schedule.groups if g.name == role)
    return asked - int(loop.machine.registers.overhead_per_thread.value)


def _over_in_time(loop: Loop, mma: str, position: int, stage: int) -> bool:
    """Whether the schedule has the MMA over when it comes to the op at a position, in the period that many after the MMA's iteration."""
    op = loop.order[loop.role(mma)][position]
    return loop.start[op] + (stage - loop.place[op].stage) * loop.ii >= loop.done(mma)


def earlier_waits(loop: Loop, waits: Sequence[Place]) -> tuple[Place, ...]:
    """Waits to add, each before an op that would else find too few registers. Where none helps, none is added."""
    added: list[Place] = []
    for role, ops in loop.order.items():
        if not any(loop.waits_own(op) for op in ops):
            continue
        while (new := _missing(loop, role, [*waits, *added])) is not None:
            added.append(new)
    return tuple(added)


def _missing(loop: Loop, role: str, waits: Sequence[Place]) -> Place | None:
    """The wait for the latest MMA that is over: where an MMA takes new registers, or else where most are held, or next to most."""
    limit, walk = _limit(loop, role), _walk(loop, role, waits)
    begin = {v.producer for v in loop.graph.values if not v.persistent}
    for position, (_, holders) in enumerate(walk):
        if loop.waits_own(op := loop.order[role][position]) and op in begin:
            for mma, iteration in reversed(holders):
                if (new := (mma, position, -iteration)) not in waits and mma != op and _over_in_time(loop, *new):
                    return new
    for position, (total, holders) in sorted(enumerate(walk), key=lambda x: -x[1][0]):
        if total <= limit:
            return None
        for mma, iteration in reversed(holders):
            new = (mma, position, -iteration)
            if new not in waits and _over_in_time(loop, *new):
                return new
    return None
