"""Where the period of a role begins. Any cut gives the same trace; the emitter takes the one that peels least.

Moving the first instruction of the period to the end of the one before lowers its stage by one and changes nothing about what
is executed in which order for which iteration: iterations that the loop does not have are skipped wherever the cut lies.
"""

from __future__ import annotations

from dataclasses import replace

from twill.lower import Arrive, Execute, Instruction, Role, WaitOwn

__all__ = ["rotated"]


def _earlier(x: Instruction, by: int) -> Instruction:
    """The instruction as a period that begins ``by`` periods later sees it."""
    if isinstance(x, WaitOwn):
        return replace(x, stage=x.stage - by, behind=tuple(s - by for s in x.behind))
    return replace(x, stage=x.stage - by)


def _cut(role: Role, at: int) -> Role:
    body = (*role.body[at:], *(_earlier(x, 1) for x in role.body[:at]))
    least = min((x.stage for x in body), default=0)
    return replace(role, body=tuple(_earlier(x, least) for x in body))


def _in_flight(role: Role, mmas: frozenset[str]) -> int:
    """MMAs that the role has issued but not waited for when a period ends."""
    pending = 0
    for x in (*role.body, *role.body):
        if isinstance(x, Execute) and x.op in mmas:
            pending += 1
        elif isinstance(x, WaitOwn):
            pending = min(pending, x.pending)
    return pending


def _late(role: Role) -> int:
    """How many iterations the ops of a period lag behind, in all: what prologue and epilogue execute, and results carried over."""
    return sum(x.stage for x in role.body if isinstance(x, Execute))


def rotated(role: Role, mmas: frozenset[str]) -> Role:
    """The role cut where no MMA is in flight, if there is such a place; then where it has the fewest stages, the fewest MMAs in flight,
    and the fewest ops of earlier iterations. The assembler does not carry accumulators of running MMAs round a loop.

    Cuts lie behind an op or an arrival, before the waits of the next op.
    """
    places = [0]
    for i in range(1, len(role.body)):
        before = [x for x in role.body[:i] if isinstance(x, Execute)]
        behind = not isinstance(role.body[i], Arrive) and (isinstance(role.body[i - 1], Execute | Arrive))
        if before and behind:
            places.append(i)
    return min((_cut(role, at) for at in places), key=lambda r: (_in_flight(r, mmas) > 0, r.stages, _in_flight(r, mmas), _late(r)))
