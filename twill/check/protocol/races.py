"""Races: accesses to one address are ordered, and what is read is what was written for it.

Two accesses conflict if their address ranges meet and one of them writes. Iteration k of a storage lies in slot k mod stages. Of
one iteration of one storage, accesses must be ordered either way (the edges of the graph say which), unless they are to different
sub-tiles or chunks of a tile. Those of iterations k < k' of one slot must be ordered by iteration. A persistent storage has one
iteration for the whole loop. Where two storages share addresses, a writer of one must stay clear of the whole life of the other:
before its first write or after its last read, for every reader.

Pairs farther apart than those looked at need no look: let n be the stages of the storage and w one of its writers, which
runs in every iteration. An access of k is over before w of k + n begins (checked), which is over before w of k + 2 n begins
(checked), and so on up to w of k' - n, which is over before the access of k' begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product

from twill.check.protocol.expansion import Expansion
from twill.check.protocol.facts import ProtocolFacts, release_label
from twill.check.protocol.report import ProtocolFinding, protocol_finding
from twill.lower.program import Access, Storage

__all__ = ["races"]

Runs = Callable[[int], Expansion]


@dataclass(frozen=True, slots=True)
class _Use:
    """``op`` of iteration ``iteration`` accesses iteration ``index`` of a storage."""

    op: str
    iteration: int
    access: Access

    @property
    def index(self) -> int:
        return self.iteration + self.access.shift

    @property
    def writes(self) -> bool:
        return self.access.mode == "write"

    def __str__(self) -> str:
        return f"{self.op} of iteration {self.iteration} {'writes' if self.writes else 'reads'} {self.access.storage}"


def races(facts: ProtocolFacts, runs: Runs) -> Iterator[ProtocolFinding]:
    """Every conflicting pair that some interleaving runs in the wrong order, the smallest trip count that shows it with it."""
    touched = [(op, a) for op in facts.site for a in facts.accesses(op)]
    used = {s.name: [(op, a) for op, a in touched if a.storage == s.name] for s in facts.program.storage}
    for s in facts.program.storage:
        if any(a.mode == "write" for _, a in used[s.name]):
            yield from _first_of_each(_within(facts, runs, s, used[s.name]))
    for a, b in combinations(facts.program.storage, 2):
        if used[a.name] and used[b.name] and _slots_that_meet(a, b):
            yield from _first_of_each(_between(facts, runs, a, b, used))


def _first_of_each(found: Iterator[tuple[_Use, _Use, ProtocolFinding]]) -> Iterator[ProtocolFinding]:
    seen = set()
    for x, y, finding in found:
        key = frozenset(((x.op, x.access), (y.op, y.access)))
        if key not in seen:
            seen.add(key)
            yield finding


def _ordered(run: Expansion, x: _Use, y: _Use) -> bool:
    """x is over before y begins."""
    return run.before(run.end(x.op, x.iteration), run.begin(y.op, y.iteration))


def _shifted(op: str, a: Access, index: int) -> _Use:
    return _Use(op, index - a.shift, a)


def _from_zero(*uses: _Use) -> tuple[int, tuple[_Use, ...]]:
    """The trip count that just holds the uses, and the uses moved to it; no storage iteration below 0 is used."""
    low = min(min(u.iteration, u.index) for u in uses)
    moved = tuple(replace(u, iteration=u.iteration - low) for u in uses)
    return max(u.iteration for u in moved) + 1, moved


def _within(facts: ProtocolFacts, runs: Runs, s: Storage, used: list[tuple[str, Access]]) -> Iterator[tuple[_Use, _Use, ProtocolFinding]]:
    spread = max(a.shift for _, a in used) - min(a.shift for _, a in used)
    in_flight = max(r.stages for r in facts.program.roles)
    step, free, last = (1, in_flight, 2 * in_flight - 1) if s.persistent else (s.stages, 1, 2 + spread // s.stages)
    for (u, a), (v, b), turn in product(used, used, range(last + 1)):
        if "write" not in (a.mode, b.mode) or (turn == 0 and (u, a.mode) >= (v, b.mode)):
            continue
        trip_count, (x, y) = _from_zero(_shifted(u, a, 0), _shifted(v, b, turn * step))
        if (x.op, x.iteration) == (y.op, y.iteration):
            continue
        if turn == 0 and not s.persistent and _different_parts(facts, u, v):
            continue
        run = runs(trip_count)
        if not _ordered(run, x, y) and not (turn < free and _ordered(run, y, x)):
            yield x, y, _race(facts, x, y, f"slot 0 of {s.name}", trip_count)


def _different_parts(facts: ProtocolFacts, u: str, v: str) -> bool:
    """Ops of different sub-tiles or chunks of one tile touch different rows or columns of it (`twill.model.graph.Op`)."""
    x, y = facts.ops[u], facts.ops[v]
    return any(None not in p and p[0] != p[1] for p in ((x.subtile, y.subtile), (x.chunk, y.chunk)))


def _slots_that_meet(a: Storage, b: Storage) -> tuple[tuple[int, int], ...]:
    if a.memory != b.memory:
        return ()
    return tuple(
        (m, n) for m in range(a.stages) for n in range(b.stages)
        if a.offset + m * a.stride < b.offset + (n + 1) * b.stride and b.offset + n * b.stride < a.offset + (m + 1) * a.stride
    )  # fmt: skip


def _between(
    facts: ProtocolFacts, runs: Runs, a: Storage, b: Storage, used: dict[str, list[tuple[str, Access]]]
) -> Iterator[tuple[_Use, _Use, ProtocolFinding]]:
    meeting = set(_slots_that_meet(a, b))
    in_flight = max(r.stages for r in facts.program.roles)
    reach = 2 * max(a.stages, b.stages) + in_flight
    for one, other in ((a, b), (b, a)):
        for (u, mine), (w, theirs) in product(used[one.name], used[other.name]):
            if theirs.mode != "write":
                continue
            for m, n in product(range(reach + 1), range(reach + 1)):
                slots = (m % one.stages, n % other.stages)
                if min(m, n) >= one.stages * other.stages or (slots if one is a else slots[::-1]) not in meeting:
                    continue
                yield from _clear(facts, runs, _shifted(u, mine, m), _shifted(w, theirs, n), used[one.name], in_flight)


def _clear(
    facts: ProtocolFacts, runs: Runs, x: _Use, y: _Use, own: list[tuple[str, Access]], in_flight: int
) -> Iterator[tuple[_Use, _Use, ProtocolFinding]]:
    """Writer y of another storage comes after use x, or before everything that wrote for x."""
    makers = [_shifted(op, a, x.index) for op, a in own if a.mode == "write"]
    trip_count, (x, y, *makers) = _from_zero(x, y, *(() if x.writes else makers))
    run = runs(trip_count)
    fine = _ordered(run, x, y)
    if not fine and x.iteration - y.iteration >= -in_flight:
        fine = all(_ordered(run, y, m) for m in makers or [x])
    if not fine:
        yield x, y, _race(facts, x, y, f"addresses that {x.access.storage} and {y.access.storage} share", trip_count)


def _race(facts: ProtocolFacts, x: _Use, y: _Use, where: str, trip_count: int) -> ProtocolFinding:
    label = release_label(x.access.storage, x.op)
    if x.writes and not facts.guardians(label):
        label = release_label(y.access.storage, y.op)
    if not facts.guardians(label):
        label = f"order {x.op}->{y.op}"
    guards = facts.guardians(label) or ", ".join(
        b.name for b in facts.program.barriers if any(g.startswith(f"release {x.access.storage} ") for g in b.guards)
    )
    text = f"{where}: {x} in {facts.role(x.op)}, and {y} in {facts.role(y.op)} need not come after it; shows at trip count {trip_count}"
    return protocol_finding("race", text, role=facts.role(y.op), barrier=guards, edge=label)
