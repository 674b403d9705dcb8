"""`lower`: from a checked schedule to the program of every warp role."""

from __future__ import annotations

from dataclasses import replace

from twill.check import CheckedSchedule
from twill.lower.allocators import register_requests
from twill.lower.dependences import dependences
from twill.lower.own_waits import OwnWait, own_waits
from twill.lower.program import Access, Arrive, Execute, Instruction, Role, Wait, WarpProgram
from twill.lower.redundancy import reduce
from twill.lower.roles import Loop, expand
from twill.lower.storage import accesses, handover_slots, placed_storage
from twill.lower.sync import Signal, arrivals_of, signals

__all__ = ["lower"]

Touched = dict[str, tuple[Access, ...]]


def lower(checked: CheckedSchedule) -> WarpProgram:
    """The program that carries out a schedule, with the least synchronization that happens-before allows.

    Raises
    ------
    LowerError : hand-over slots, registers or barriers that the machine does not have.
    """
    loop = expand(checked)
    slots = handover_slots(loop)
    needed = dependences(loop, slots)
    events, kept, redundant = reduce(loop, needed)
    barriers, _ = signals(loop, events, kept)
    waits = own_waits(loop, kept)
    touched = accesses(loop, slots)
    wanted = {g.name: g.registers_per_thread for g in loop.schedule.groups}
    requests = register_requests(loop.warps, wanted, loop.machine.registers)
    return WarpProgram(
        schedule_hash=loop.schedule.hash,
        roles=tuple(
            Role(name, loop.warps[name], requests[name], _from_stage_0(_body(loop, name, barriers, waits, touched))) for name in loop.order
        ),
        storage=(*placed_storage(loop), *(s.storage for s in slots)),
        barriers=tuple(s.barrier for s in barriers),
        asynchronous=frozenset(v for v, op in loop.ops.items() if op.asynchronous),
        latency_cycles={v: op.latency_cycles for v, op in loop.ops.items()},
        issue_cycles={v: op.issue_cycles for v, op in loop.ops.items()},
        redundant=redundant,
    )


def _body(loop: Loop, role: str, barriers: tuple[Signal, ...], waits: tuple[OwnWait, ...], touched: Touched) -> list[Instruction]:
    body: list[Instruction] = []
    for position, op in enumerate(loop.order[role]):
        for wait in waits:
            if (wait.role, wait.position) == (role, position):
                body.append(wait.instruction(loop))
                body += [a for v in wait.covers for a in _arrivals(loop, v, barriers, wait.stage)]
        body += _waits(loop, op, barriers)
        stage = loop.place[op].stage
        body.append(Execute(op, stage, touched[op]))
        if not loop.waits_own(op):
            body += _arrivals(loop, op, barriers, stage)
    return body


def _arrivals(loop: Loop, op: str, barriers: tuple[Signal, ...], stage: int) -> list[Instruction]:
    """What an op tells others; of overlaid storage first, since what another barrier lets go on may arrive there again."""
    after = loop.ops[op].asynchronous and not loop.waits_own(op)
    return [
        Arrive(s.barrier.name, stage, arrivals_of(loop, op), "after", op) if after else Arrive(s.barrier.name, stage, arrivals_of(loop, op))
        for s in sorted(barriers, key=lambda s: not s.barrier.guards[0].startswith("overlay "))
        if op in s.producers
    ]


def _waits(loop: Loop, op: str, barriers: tuple[Signal, ...]) -> list[Instruction]:
    """Waits before an op. One for a later iteration of the source is executed for the iterations of the source instead."""
    found: list[Instruction] = []
    stage = loop.place[op].stage
    for signal in barriers:
        for consumer, distance in signal.waits:
            if consumer != op:
                continue
            if signal.barrier.kind == "named":
                found.append(Arrive(signal.barrier.name, stage, loop.warps[loop.role(op)]))
            found.append(Wait(signal.barrier.name, stage + min(0, distance), max(0, distance)))
    return found


def _from_stage_0(body: list[Instruction]) -> tuple[Instruction, ...]:
    least = min(x.stage for x in body)
    return tuple(replace(x, stage=x.stage - least) for x in body) if least < 0 else tuple(body)
