"""The happens-before graph of the periodic program.

Every op has three events: it is *issued*, it *begins* to touch memory, it is *done*. A synchronous op, a copy and a load begin
when issued; an MMA begins when the tensor pipe gets to it. A step leads from an event of iteration i to an event of iteration
i + delta. What is always ordered:

* issue, begin, done of one op;
* program order of a role: the next op is issued once a synchronous op is done, or an asynchronous one issued, also across the
  end of the period;
* the tensor pipe: MMAs that one role issues begin and finish one after another. **Assumption:** wgmma of one warpgroup and
  tcgen05.mma of one issuing thread execute in the order of issue (tcgen05.commit and wgmma.wait_group are specified by it;
  FlashAttention-4 relies on it for memory too). MMAs of different roles are not ordered, nor are TMA copies.

Enforced dependences add steps from done to issued.

Iterations that the loop does not have (before 0, after T - 1) break no program order, but a signal that passes through one is
never sent. So a path from iteration i to iteration i + d counts only if all its events belong to iterations in between: then it
exists for every trip count. Steps of program order and pipe hold for every later iteration too, which lets paths pass over
skipped ops.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from twill.lower.dependences import Dependence
from twill.lower.roles import Loop

__all__ = ["BEGIN", "DONE", "ISSUE", "Event", "EventGraph"]

ISSUE, BEGIN, DONE = "issue", "begin", "done"
Event = tuple[str, str]
"""(op, `ISSUE` | `BEGIN` | `DONE`)."""
State = tuple[Event, int]


@dataclass(frozen=True, slots=True)
class _Step:
    """To ``target``, ``delta`` iterations on; ``open`` steps also lead to every later iteration of it."""

    target: Event
    delta: int
    open: bool
    why: str


class EventGraph:
    """Happens-before of one loop under a changing set of enforced dependences."""

    def __init__(self, loop: Loop) -> None:
        self._steps: dict[Event, list[_Step]] = {(v, kind): [] for v in loop.ops for kind in (ISSUE, BEGIN, DONE)}
        for v in loop.ops:
            self._steps[v, ISSUE].append(_Step((v, BEGIN), 0, False, ""))
            self._steps[v, BEGIN].append(_Step((v, DONE), 0, False, ""))
        for role, ops in loop.order.items():
            for u in ops:
                over = ISSUE if loop.ops[u].asynchronous else DONE
                for v in ops:
                    self._steps[u, over].append(_Step((v, ISSUE), loop.following(u, v), True, f"order of {role}"))
                    if loop.is_mma(u) and loop.is_mma(v):
                        self._steps[u, DONE].append(_Step((v, BEGIN), loop.following(u, v), True, "tensor pipe"))

    def add(self, dependence: Dependence) -> None:
        """Enforce a dependence."""
        self._steps[dependence.src, DONE].append(self._step(dependence))

    def remove(self, dependence: Dependence) -> None:
        """Enforce it no more; ValueError if it was not enforced."""
        self._steps[dependence.src, DONE].remove(self._step(dependence))

    @staticmethod
    def _step(dependence: Dependence) -> _Step:
        return _Step((dependence.dst, ISSUE), dependence.distance, False, dependence.label)

    def path(self, src: Event, dst: Event, distance: int, low: int | None = None, high: int | None = None) -> str | None:
        """A shortest path from ``src`` of iteration i to ``dst`` of iteration i + distance, in words; None if there is none.

        All its events are of iterations i + low to i + high; by default those between the two ends.
        """
        low = min(0, distance) if low is None else low
        high = max(0, distance) if high is None else high
        first: State = (src, 0)
        goal: State = (dst, distance)
        came: dict[State, tuple[State, str]] = {first: (first, "")}
        queue = deque([first])
        while queue:
            state = queue.popleft()
            if state == goal:
                return _words(came, first, goal)
            event, at = state
            for step in self._steps[event]:
                there = at + step.delta
                if step.open:
                    there = max(there, low)
                if low <= there <= high and (reached := (step.target, there)) not in came:
                    came[reached] = (state, step.why)
                    queue.append(reached)
        return None

    def implied_by(self, dependence: Dependence) -> str | None:
        """The path that enforces a dependence, in words; None if nothing does."""
        return self.path((dependence.src, DONE), (dependence.dst, ISSUE if dependence.issued else BEGIN), dependence.distance)


def _words(came: dict[State, tuple[State, str]], first: State, goal: State) -> str:
    hops: list[tuple[State, str]] = []
    state = goal
    while state != first:
        state, why = came[state][0], came[state][1]
        hops.append((state, why))
    hops.reverse()
    states = [s for s, _ in hops[1:]] + [goal]
    text = f"{_name(first)} done"
    for (_, why), ((op, kind), at) in zip(hops, states, strict=True):
        if why:
            text += f", then {_name(((op, kind), at))} {'begins' if kind == BEGIN else 'issued'} ({why})"
    return text


def _name(state: State) -> str:
    (op, _), at = state
    return f"{op}[i{at:+d}]" if at else f"{op}[i]"
