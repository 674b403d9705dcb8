"""All events of one run of a given trip count, and which happens before which in every interleaving.

Theorem. Let G be the event graph over all integer iterations: program order of each role (every earlier event before every later
one), issue -> begin -> end of asynchronous ops, end -> begin along the MMAs of one role in order of issue, all arrivals of
completion k -> completion k -> the waits for it, and MMA ends -> WaitOwn. Every line of G depends on differences of iterations
only, so G is invariant under shifts; and the run with trip count T is exactly G restricted to the iterations 0..T-1, since what
is skipped is skipped with all its lines: an order between two events of one role needs none of those between them, a wait for a
negative completion passes at once, and WaitOwn waits for what it waits for in G, as far as that exists (the rule structure sees
to it that the count of pending groups shrinks where some were skipped). In a run, x happens before y in every interleaving if and
only if the restricted graph has a path from x to y (a marked graph has no choices: a topological order that puts y first exists
otherwise).

So a path between events of iterations a and b exists in every run that has both if and only if it exists in the run of
trip count |a - b| + 1 with the smaller one at 0: that run is one of them, and each of the others contains a shifted
copy of it. One expansion for each distance therefore settles all trip counts, prologue and epilogue included.
"""

from __future__ import annotations

from collections.abc import Hashable

from twill.check.protocol.facts import ProtocolFacts, Site, is_mma
from twill.lower.program import Arrive, Execute, Wait, WaitOwn

__all__ = ["Expansion"]

Event = tuple[Hashable, ...]


class Expansion:
    """The happens-before relation of the run with ``trip_count`` iterations; the program must be well formed and live."""

    def __init__(self, facts: ProtocolFacts, trip_count: int) -> None:
        self.facts = facts
        self.trip_count = trip_count
        self._number: dict[Event, int] = {}
        self._successors: list[list[int]] = []
        for role in facts.program.roles:
            self._role(role.name)
        self._after = self._closure()

    def at(self, site: Site, iteration: int) -> Event:
        """The role passes an instruction."""
        return ("at", *site.key, iteration)

    def begin(self, op: str, iteration: int) -> Event:
        """The op first touches anything."""
        return ("begin", op, iteration) if self.facts.ops[op].asynchronous else self.at(self.facts.site[op], iteration)

    def end(self, op: str, iteration: int) -> Event:
        """The op is over."""
        return ("end", op, iteration) if self.facts.ops[op].asynchronous else self.at(self.facts.site[op], iteration)

    def arrival(self, site: Site, iteration: int) -> Event:
        """The arrivals of an instruction count."""
        return ("arrival", *site.key, iteration)

    def completion(self, barrier: str, k: int) -> Event:
        return ("completion", barrier, k)

    def before(self, x: Event, y: Event) -> bool:
        """Whether x happens before y in every interleaving."""
        return bool(self._after[self._number[x]] >> self._number[y] & 1)

    def _node(self, event: Event) -> int:
        number = self._number.setdefault(event, len(self._number))
        if number == len(self._successors):
            self._successors.append([])
        return number

    def _line(self, x: Event, y: Event) -> None:
        self._successors[self._node(x)].append(self._node(y))

    def _role(self, name: str) -> None:
        role = next(r for r in self.facts.program.roles if r.name == name)
        previous: Event | None = None
        told: Event | None = None
        groups: list[Event | None] = []
        for period in range(self.trip_count + role.stages - 1):
            for position, x in enumerate(role.body):
                i = period - x.stage
                exists = 0 <= i < self.trip_count
                mma = isinstance(x, Execute) and is_mma(self.facts.ops[x.op])
                if not exists:
                    if mma:
                        groups.append(None)
                    continue
                site = Site(role, position)
                here = self.at(site, i)
                self._node(here)
                if previous is not None:
                    self._line(previous, here)
                previous = here
                if isinstance(x, Execute) and self.facts.ops[x.op].asynchronous:
                    self._line(here, self.begin(x.op, i))
                    self._line(self.begin(x.op, i), self.end(x.op, i))
                    if mma:
                        last = next((g for g in reversed(groups) if g is not None), None)
                        if last is not None:
                            self._line(last, self.begin(x.op, i))
                        groups.append(self.end(x.op, i))
                elif isinstance(x, Arrive):
                    self._line(here, self.arrival(site, i))
                    if x.when == "after":
                        self._line(self.end(x.op, i), self.arrival(site, i))
                    else:
                        # an arrival releases what its thread did before it, earlier arrivals included
                        if told is not None:
                            self._line(told, self.arrival(site, i))
                        told = self.arrival(site, i)
                    self._line(self.arrival(site, i), self.completion(x.barrier, i))
                elif isinstance(x, Wait) and i >= x.distance:
                    self._line(self.completion(x.barrier, i - x.distance), here)
                elif isinstance(x, WaitOwn):
                    over = groups[: max(0, len(groups) - x.pending)]
                    last = next((g for g in reversed(over) if g is not None), None)
                    if last is not None:
                        self._line(last, here)

    def _closure(self) -> list[int]:
        """For every event the bit set of all events after it."""
        count = len(self._successors)
        incoming = [0] * count
        for targets in self._successors:
            for y in targets:
                incoming[y] += 1
        order = [x for x in range(count) if not incoming[x]]
        for x in order:
            for y in self._successors[x]:
                incoming[y] -= 1
                if not incoming[y]:
                    order.append(y)
        if len(order) < count:
            raise ValueError(f"the program deadlocks at trip count {self.trip_count}; look for token-free cycles first")
        after = [0] * count
        for x in reversed(order):
            for y in self._successors[x]:
                after[x] |= after[y] | 1 << y
        return after
