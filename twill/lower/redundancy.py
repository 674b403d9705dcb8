"""Leave out what other synchronization already enforces, and nothing else.

A dependence is redundant if a happens-before path through program order, the tensor pipe and the dependences that remain leads
from its source to its destination within its own iterations (`twill.lower.events`).

Dependences are tried one after another, weakest first: the one with the most slack in the schedule, i.e. whose source is done
the longest before its destination starts. A wait with much slack passes at once and orders little else; tight ones are the data
flow itself, from which the paths are made. Ties go by label. The result is irredundant: a dependence that was needed when it was
tried is needed in the end, as paths only get fewer. Nothing removed supports a path, so no two justify each other.
"""

from __future__ import annotations

from collections.abc import Iterable

from twill.lower.dependences import Dependence
from twill.lower.events import EventGraph
from twill.lower.roles import Loop

__all__ = ["reduce", "slack_cycles"]


def slack_cycles(loop: Loop, d: Dependence) -> int:
    """Cycles in the schedule from the source being done to the destination being issued."""
    return loop.start[d.dst] + d.distance * loop.ii - loop.done(d.src)


def reduce(loop: Loop, needed: Iterable[Dependence]) -> tuple[EventGraph, tuple[Dependence, ...], tuple[tuple[str, str], ...]]:
    """The event graph with the dependences that remain, these, and (label, path) of each one left out; both in the given order."""
    needed = tuple(needed)
    events = EventGraph(loop)
    for d in needed:
        events.add(d)
    out: dict[Dependence, str] = {}
    for d in sorted(needed, key=lambda d: (-slack_cycles(loop, d), d.label)):
        events.remove(d)
        path = events.implied_by(d)
        if path is None:
            events.add(d)
        else:
            out[d] = path
    return events, tuple(d for d in needed if d not in out), tuple((d.label, out[d]) for d in needed if d in out)
