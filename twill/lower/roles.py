"""Modulo expansion: which role executes what, in which order, for which iteration.

A role is a warp group of the schedule. In period n it executes its ops in the order of M mod I, each for iteration
n - stage. Stages count from the least one of the role: moving all of a role by whole periods changes nothing, because roles
meet only at barriers, and those count iterations.
"""

from __future__ import annotations

from dataclasses import dataclass

from twill.check import CheckedSchedule
from twill.model.graph import LoopGraph, Op
from twill.model.machine import Machine
from twill.model.schedule import Schedule

__all__ = ["Loop", "Place", "expand"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an op stands: ``position`` in the period of ``role``, executed for iteration n - ``stage``."""

    role: str
    position: int
    stage: int


@dataclass(frozen=True, slots=True)
class Loop:
    """A schedule after modulo expansion, with the look-ups that every later step needs.

    Attributes
    ----------
    order : the ops of each role in the order of one period.
    place : where each op stands.
    start : M(v), issue cycle in iteration 0.
    """

    schedule: Schedule
    machine: Machine
    order: dict[str, tuple[str, ...]]
    place: dict[str, Place]
    start: dict[str, int]
    ops: dict[str, Op]
    warps: dict[str, int]

    @property
    def graph(self) -> LoopGraph:
        return self.schedule.graph

    @property
    def ii(self) -> int:
        """The initiation interval in cycles."""
        return self.schedule.ii_cycles

    def role(self, op: str) -> str:
        return self.place[op].role

    def same(self, u: str, v: str) -> bool:
        """Whether one role executes both."""
        return self.place[u].role == self.place[v].role

    def is_mma(self, op: str) -> bool:
        """An asynchronous op of the tensor core."""
        return self.ops[op].asynchronous and self.ops[op].unit == "tensor"

    def waits_own(self, op: str) -> bool:
        """Its completion is known only to the role that issued it (wgmma), which has to wait for it and tell others."""
        return self.is_mma(op) and self.machine.accumulator == "registers"

    def done(self, op: str) -> int:
        """M(v) + latency: the cycle in which the result of iteration 0 exists."""
        return self.start[op] + self.ops[op].latency_cycles

    def following(self, u: str, v: str) -> int:
        """The least d such that v of iteration i + d comes after u of iteration i in the program order of their role."""
        a, b = self.place[u], self.place[v]
        return a.stage - b.stage + (b.position <= a.position)


def expand(checked: CheckedSchedule) -> Loop:
    """Order and stages of every role."""
    schedule = checked.schedule
    start = {op.name: op.start_cycle for op in schedule.ops}
    members: dict[str, list[str]] = {group.name: [] for group in schedule.groups}
    for op in schedule.ops:
        members[op.group].append(op.name)
    order: dict[str, tuple[str, ...]] = {}
    place: dict[str, Place] = {}
    for name, ops in members.items():
        ops.sort(key=lambda v: start[v] % schedule.ii_cycles)
        least = min(start[v] // schedule.ii_cycles for v in ops)
        order[name] = tuple(ops)
        for position, v in enumerate(ops):
            place[v] = Place(name, position, start[v] // schedule.ii_cycles - least)
    return Loop(
        schedule, checked.machine, order, place, start,
        {op.name: op for op in schedule.graph.ops}, {group.name: group.warps for group in schedule.groups},
    )  # fmt: skip
