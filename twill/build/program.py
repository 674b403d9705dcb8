"""Roles of a schedule's WarpProgram in the language of `twill.build.roles`, and the schedule that a kernel says it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from twill.build.kernelfile import KernelFile
from twill.build.roles import ARITHMETIC, MMAS, Event
from twill.check import CheckedSchedule, checked
from twill.lower import Arrive, Execute, Role, Wait, WaitOwn, lower
from twill.model.machine import load_machine
from twill.model.schedule import Schedule

__all__ = ["program_of", "shipped_schedule"]

LETTERS = "abcdefgh"


def shipped_schedule(kernel: KernelFile) -> Schedule | None:
    """The shipped schedule with the hash that a kernel names; None if none has it."""
    from twill.schedules import load, names

    likely = sorted(names(), key=lambda name: name != kernel.name)
    for name in likely:
        if name.startswith(kernel.tiles) and load(name).hash == kernel.schedule_hash:
            found: Schedule = load(name)
            return found
    return None


def program_of(schedule: Schedule) -> Mapping[str, tuple[Event, ...]]:
    """What each role of a schedule's program does in a period.

    Raises
    ------
    CheckFailed, LowerError, MachineError : the schedule cannot be lowered.
    """
    found = checked(schedule, load_machine(schedule.machine.name))
    program = lower(found)
    named = frozenset(b.name for b in program.barriers if b.kind == "named")
    return {role.name: tuple(_events(found, role, named)) for role in program.roles}


def _events(found: CheckedSchedule, role: Role, named: frozenset[str]) -> Iterator[Event]:
    waited = {x.barrier for x in role.body if isinstance(x, Wait)}
    ops = {op.name: op for op in found.schedule.graph.ops}
    for i, x in enumerate(role.body):
        match x:
            case Wait():
                yield Event("bar" if x.barrier in named else "wait", x.barrier)
            case WaitOwn():
                yield Event("own", str(x.pending))
            case Arrive():
                # who waits at a named barrier arrives with the same instruction
                if x.when == "now" and not (x.barrier in named and x.barrier in waited):
                    yield Event("bar" if x.barrier in named else "arrive", x.barrier)
            case Execute():
                op = ops[x.op]
                letter = "" if op.subtile is None else f"_{LETTERS[op.subtile]}"
                if op.kind == "tma_load":
                    after = role.body[i + 1]
                    if isinstance(after, Arrive):
                        yield Event("expect", after.barrier)
                    yield Event("tma", x.op)
                elif op.kind in MMAS:
                    yield Event("mma", MMAS[op.kind] + letter)
                else:
                    yield Event("op", ARITHMETIC[op.kind][0] + letter if op.kind in ARITHMETIC else op.kind + letter)
