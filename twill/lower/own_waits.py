"""Waits for MMAs whose completion only their own role can see (wgmma.wait_group).

A wait is meant for one MMA of one iteration k: it stands before an op, is executed in period k + ``stage`` whether or not that
op has an iteration then, and lets pending the MMAs issued between the two, each named by the stage at which the wait sees it.
So its depth is exact in prologue, steady state, epilogue and across the end of the period.
Who releases storage to other roles arrives right behind such a wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from twill.lower.dependences import Dependence
from twill.lower.held import Place, earlier_waits
from twill.lower.program import WaitOwn
from twill.lower.roles import Loop

__all__ = ["OwnWait", "own_waits"]


@dataclass(frozen=True, slots=True)
class OwnWait:
    """Before the op at ``position`` of ``role``, in period k + ``stage``, wait for ``op`` of iteration k.

    ``covers`` are the MMAs of iteration k that are done behind it: ``op`` and earlier ones that need no wait of their own.
    """

    role: str
    position: int
    op: str
    stage: int
    covers: tuple[str, ...]
    guards: tuple[str, ...]

    def instruction(self, loop: Loop) -> WaitOwn:
        behind = _behind(loop, self.role, self.position, self.op, self.stage)
        return WaitOwn(len(behind), self.stage, behind, self.guards)


def _behind(loop: Loop, role: str, position: int, op: str, stage: int) -> tuple[int, ...]:
    """Stages, as the wait sees them, of the MMAs issued after ``op`` and before the wait, in order."""
    found = []
    at = loop.place[op]
    for period in range(at.stage, stage + 1):
        for p, m in enumerate(loop.order[role]):
            if loop.is_mma(m) and (period, p) > (at.stage, at.position) and (period, p) < (stage, position):
                found.append(stage - period + loop.place[m].stage)
    return tuple(found)


def _boundary(loop: Loop, op: str) -> tuple[int, int, int]:
    """(position, stage, cycle) of the first place in program order at which ``op`` is done according to the schedule."""
    place, ops, done = loop.place[op], loop.order[loop.role(op)], loop.done(op)
    period, position, free = place.stage, place.position, 0
    while True:
        before = ops[position]
        issued = loop.start[before] + (period - loop.place[before].stage) * loop.ii
        free = issued + loop.ops[before].issue_cycles
        period, position = (period, position + 1) if position + 1 < len(ops) else (period + 1, 0)
        after = ops[position]
        if loop.start[after] + (period - loop.place[after].stage) * loop.ii >= done:
            return position, period, max(done, free)


def _free_at(loop: Loop, position: int, stage: int, op: str) -> int:
    """The cycle in which a wait for ``op`` of iteration 0 at this place passes."""
    ops = loop.order[loop.role(op)]
    before = ops[position - 1]
    period = stage if position else stage - 1
    issued = loop.start[before] + (period - loop.place[before].stage) * loop.ii
    return max(loop.done(op), issued + loop.ops[before].issue_cycles)


def own_waits(loop: Loop, kept: Iterable[Dependence]) -> tuple[OwnWait, ...]:
    """The waits for wgmmas: where a dependence inside the role needs them, and where another role is to be told.

    For another role, a wait that stands anyway is used if it passes before the schedule needs the release; otherwise one is put
    at the first place at which the op is done. Where registers would not do, waits come earlier (`twill.lower.held`).
    """
    kept = [d for d in kept if loop.waits_own(d.src)]
    standing = [(w.op, w.position, w.stage) for w in _with(loop, kept, ())]
    return _with(loop, kept, earlier_waits(loop, standing))


def _with(loop: Loop, kept: list[Dependence], earlier: Iterable[Place]) -> tuple[OwnWait, ...]:
    """The waits, if there are some for registers."""
    placed: dict[Place, list[str]] = {place: [f"registers held by {place[0]}"] for place in earlier}
    for d in kept:
        if loop.same(d.src, d.dst):
            at = loop.place[d.dst]
            placed.setdefault((d.src, at.position, at.stage + d.distance), []).append(d.label)
    for src in dict.fromkeys(d.src for d in kept if not loop.same(d.src, d.dst)):
        mine = [d for d in kept if d.src == src and not loop.same(d.src, d.dst)]
        deadline = min(loop.start[d.dst] + d.distance * loop.ii for d in mine)
        position, stage = _place_for(loop, src, placed, deadline)
        placed.setdefault((src, position, stage), []).extend(d.label for d in mine)
    return _merged(loop, placed)


def _place_for(loop: Loop, src: str, placed: dict[Place, list[str]], deadline: int) -> tuple[int, int]:
    first = _boundary(loop, src)
    standing = []
    for op, position, stage in placed:
        if loop.role(op) != loop.role(src):
            continue
        # the wait for `op` of iteration k also ends src of iteration k - shift, which was issued before it
        shift = loop.following(src, op) if op != src else 0
        here = stage + shift
        if (here, position) > (loop.place[src].stage, loop.place[src].position) and _free_at(loop, position, here, src) <= deadline:
            standing.append((here, position))
    if standing:
        stage, position = min(standing)
        return position, stage
    return first[0], first[1]


def _merged(loop: Loop, placed: dict[Place, list[str]]) -> tuple[OwnWait, ...]:
    """One wait for each op, at its earliest place; of the waits at one place for one iteration only the latest op's."""
    guards: dict[str, list[str]] = {}
    earliest: dict[str, tuple[int, int]] = {}
    for (op, position, stage), labels in placed.items():
        guards.setdefault(op, []).extend(labels)
        earliest[op] = min(earliest.get(op, (stage, position)), (stage, position))
    together: dict[Place, list[str]] = {}
    for op, (stage, position) in earliest.items():
        together.setdefault((loop.role(op), position, stage), []).append(op)
    found = []
    for (role, position, stage), ops in together.items():
        ops.sort(key=lambda v: (loop.place[v].stage, loop.place[v].position))
        enforced = tuple(dict.fromkeys(label for v in ops for label in guards[v]))
        found.append(OwnWait(role, position, ops[-1], stage, tuple(ops), enforced))
    # at one place, those that leave more pending come first
    found.sort(key=lambda w: (w.role, w.position, loop.place[w.op].stage - w.stage, loop.place[w.op].position))
    return tuple(found)
