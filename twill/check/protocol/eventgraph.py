"""The program as a periodic event graph (a timed marked graph): deadlock, and the rate that it permits.

An edge (x, y, distance, cycles) says that y of iteration i happens at least ``cycles`` after x of iteration i - distance;
the distance is the number of tokens. Distances along program order are negative where a later stage precedes an earlier one.

Theorem (Commoner, Holt, Even, Pnueli 1971). The program is free of deadlock for every trip count exactly if no cycle has
distance <= 0. One of distance 0 is an event that must precede itself, as soon as the trip count covers the cycle's spread;
one below 0 puts an event before an earlier one of its own role, which program order closes to a cycle of distance 0. Without
any such cycle, no finite restriction of the graph has a cycle at all.

Theorem (Reiter 1968). No steady state takes fewer cycles an iteration than the maximum of (sum of cycles) / (sum of
distances) over all cycles, and running everything as early as possible attains it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from twill.check.protocol.facts import ProtocolFacts, Site, mma_positions
from twill.lower.program import Arrive, Execute, Role, Wait, WaitOwn
from twill.model.graph import Edge, Op

__all__ = ["EventEdge", "critical_cycle", "event_graph", "positive_cycle", "token_free_cycle"]


@dataclass(frozen=True, slots=True)
class EventEdge:
    """``dst`` of iteration i is at least ``cycles`` after ``src`` of iteration i - ``distance``; the other fields say why."""

    src: str
    dst: str
    distance: int
    cycles: int
    why: str
    roles: tuple[str, ...] = ()
    barrier: str = ""
    guards: tuple[str, ...] = ()

    def __str__(self) -> str:
        before = f" of iteration i{-self.distance:+d}" if self.distance else ""
        return f"{self.src}{before} -> {self.dst}: {self.why}, {self.cycles} cycles"


def event_graph(facts: ProtocolFacts) -> tuple[EventEdge, ...]:
    """All edges; the program must be well formed."""
    edges: list[EventEdge] = []
    for role in facts.program.roles:
        edges += _program_order(facts, role)
        edges += _mma_order(facts, role)
    for site in facts.sites():
        edges += _instruction(facts, site)
    return tuple(edges)


def _name(site: Site) -> str:
    x, where = site.instruction, f"{site.role.name}[{site.position}]"
    if isinstance(x, Execute):
        return f"{where} {x.op}"
    if isinstance(x, Wait):
        return f"{where} wait {x.barrier}"
    if isinstance(x, Arrive):
        return f"{where} arrive {x.barrier}"
    return f"{where} wait for own MMAs"


def _begin(facts: ProtocolFacts, op: str) -> str:
    return _name(facts.site[op])


def _end(facts: ProtocolFacts, op: str) -> str:
    return f"end of {op}" if facts.ops[op].asynchronous else _name(facts.site[op])


def _step(role: Role, a: int, b: int) -> int:
    """The distance from instruction a to the next execution of instruction b."""
    return role.body[a].stage - role.body[b].stage + (0 if a < b else 1)


def _program_order(facts: ProtocolFacts, role: Role) -> list[EventEdge]:
    edges, count = [], len(role.body)
    for a in range(count):
        b = (a + 1) % count
        x = role.body[a]
        cycles = facts.program.issue_cycles[x.op] if isinstance(x, Execute) else 0
        here, there = _name(Site(role, a)), _name(Site(role, b))
        edges.append(EventEdge(here, there, _step(role, a, b), cycles, f"order in {role.name}", (role.name,)))
    return edges


def _occupancy(op: Op) -> int:
    """How long the tensor core is busy with an MMA before the next one of the role may start."""
    return max((r.offset + r.cycles for r in op.reservations if r.unit == op.unit), default=op.issue_cycles)


def _mma_order(facts: ProtocolFacts, role: Role) -> list[EventEdge]:
    issued = mma_positions(facts, role)
    edges = []
    for n, a in enumerate(issued):
        b = issued[(n + 1) % len(issued)]
        u, v = (x.op for x in (role.body[a], role.body[b]) if isinstance(x, Execute))
        distance = _step(role, a, b)
        cycles = _occupancy(facts.ops[u])
        edges.append(EventEdge(_begin(facts, u), _begin(facts, v), distance, cycles, f"MMAs of {role.name} run in order", (role.name,)))
        edges.append(EventEdge(_end(facts, u), _end(facts, v), distance, 0, f"MMAs of {role.name} complete in order", (role.name,)))
    return edges


def _instruction(facts: ProtocolFacts, site: Site) -> list[EventEdge]:
    x, role = site.instruction, site.role.name
    if isinstance(x, Execute):
        if not facts.ops[x.op].asynchronous:
            return []
        return [EventEdge(_name(site), _end(facts, x.op), 0, facts.program.latency_cycles[x.op], f"{x.op} runs", (role,))]
    if isinstance(x, Arrive):
        b = facts.barriers[x.barrier]
        sources = [_name(site)] + ([_end(facts, x.op)] if x.when == "after" else [])
        return [EventEdge(s, f"barrier {b.name}", 0, 0, f"{role} arrives on {b.name}", (role,), b.name, b.guards) for s in sources]
    if isinstance(x, Wait):
        b = facts.barriers[x.barrier]
        cycles = _handover(facts, b.guards, role)
        return [EventEdge(f"barrier {b.name}", _name(site), x.distance, cycles, f"{role} waits for {b.name}", (role,), b.name, b.guards)]
    source, distance = _awaited(facts, site, x)
    return [EventEdge(_end(facts, source), _name(site), distance, 0, f"{role} waits for its own MMAs", (role,))]


def _awaited(facts: ProtocolFacts, site: Site, x: WaitOwn) -> tuple[str, int]:
    """The latest MMA that a WaitOwn waits for, and how many iterations before."""
    body = site.role.body
    issued = mma_positions(facts, site.role)
    earlier = sum(p < site.position for p in issued)
    periods, index = divmod(earlier - 1 - x.pending, len(issued))
    mma = body[issued[index]]
    assert isinstance(mma, Execute)
    return mma.op, mma.stage - x.stage - periods


def _handover(facts: ProtocolFacts, guards: Sequence[str], role: str) -> int:
    """What the graph charges for the dependences that a barrier guards, as far as they end in this role."""
    known, costs = facts.labels(), [0]
    for label in guards:
        found = known.get(label)
        if isinstance(found, Edge) and facts.role(found.dst) == role:
            costs.append(found.same_group_cycles if facts.role(found.src) == role else found.cross_group_cycles)
        elif isinstance(found, tuple):
            buffer, reader = found
            writers = next(b.writers for b in facts.graph.buffers if b.name == buffer)
            if facts.role(reader.op) != role and any(facts.role(w) == role for w in writers):
                costs.append(reader.cross_group_cycles)
    return max(costs)


def positive_cycle(edges: Sequence[EventEdge], weight: Callable[[EventEdge], int]) -> tuple[EventEdge, ...]:
    """A cycle of positive total weight, or () if there is none (Bellman-Ford)."""
    far = {x: 0 for e in edges for x in (e.src, e.dst)}
    parent: dict[str, EventEdge] = {}
    weighed = [(e, weight(e)) for e in edges]
    changed = ""
    for _ in range(len(far) + 1):
        changed = ""
        for e, w in weighed:
            if far[e.src] + w > far[e.dst]:
                far[e.dst] = far[e.src] + w
                parent[e.dst] = e
                changed = e.dst
        if not changed:
            return ()
    for _ in range(len(far)):
        changed = parent[changed].src
    cycle, node = [parent[changed]], parent[changed].src
    while node != changed:
        cycle.append(parent[node])
        node = parent[node].src
    return tuple(reversed(cycle))


def token_free_cycle(edges: Sequence[EventEdge]) -> tuple[EventEdge, ...]:
    """A cycle of distance <= 0, or () if there is none."""
    many = len({x for e in edges for x in (e.src, e.dst)}) + 1
    return positive_cycle(edges, lambda e: 1 - many * e.distance)


def critical_cycle(edges: Sequence[EventEdge]) -> tuple[Fraction, tuple[EventEdge, ...]]:
    """The maximum cycle ratio and a cycle that attains it; (0, ()) if no cycle takes time. There must be no token-free cycle."""
    ratio, best = Fraction(0), tuple[EventEdge, ...]()
    while True:
        p, q = ratio.numerator, ratio.denominator
        found = positive_cycle(edges, lambda e, p=p, q=q: q * e.cycles - p * e.distance)  # type: ignore[misc]
        if not found:
            return ratio, best
        ratio, best = Fraction(sum(e.cycles for e in found), sum(e.distance for e in found)), found
