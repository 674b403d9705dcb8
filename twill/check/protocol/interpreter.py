"""Run a WarpProgram on the CPU, event by event, in an order that a scheduler picks.

The interpreter knows nothing of happens-before. It keeps what the hardware keeps: a program counter for each role, the
asynchronous work in flight, for each slot of a barrier the arrivals, bytes and completed phases (waits look at the parity only),
and what lies in every slot of every storage. A write makes whatever shares its addresses unreadable from its beginning on;
a read takes what is there, or poison. So a missing wait shows as wrong numbers, and a wrong count as a hang.

Data travels along the edges of the graph: through a storage that the source writes and the destination touches, if there is one and the
data is not in registers of one role; else from the source's registers. What an op computes is up to a `TileSemantics`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from twill.check.protocol.facts import ProtocolFacts, facts_of, is_mma
from twill.lower.program import Access, Arrive, Barrier, Execute, Instruction, Role, Storage, Wait, WaitOwn, WarpProgram
from twill.model.graph import LoopGraph, Op

__all__ = ["Action", "ProtocolHang", "Scheduler", "TileSemantics", "interpret", "schedulers"]

Outputs = Mapping[str, Any]


class TileSemantics(Protocol):
    """What ops compute."""

    def execute(self, op: Op, iteration: int, inputs: Mapping[str, Outputs | None]) -> Outputs:
        """Results of an op; ``inputs`` has, by source op, what the op found of its sources.

        None where that was never written or is overwritten; sources of iterations before the first are absent.
        """
        ...


class ProtocolHang(Exception):
    """Nothing can go on, or a barrier got more arrivals than a phase takes; says where every role stands."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that can happen next: a ``role`` takes a step, or an asynchronous op begins or ends. ``age`` counts from its issue."""

    kind: str
    name: str
    age: int


Scheduler = Callable[[Sequence[Action]], Action]


@dataclass(slots=True)
class _Slot:
    completed: int = 0
    arrived: int = 0
    delivered: int = 0
    waiting: int = 0


@dataclass(slots=True)
class _Flight:
    """An op that is going on; ``found`` is what it has read so far."""

    op: Op
    iteration: int
    role: str
    issued: int
    begun: bool = False
    done: bool = False
    found: dict[str, Outputs | None] | None = None


@dataclass(slots=True)
class _Thread:
    role: Role
    steps: list[tuple[Instruction, int]]
    next: int = 0
    groups: list[_Flight] = field(default_factory=list)
    joined: int | None = None
    running: _Flight | None = None


def interpret(
    program: WarpProgram, graph: LoopGraph, trip_count: int, tiles: TileSemantics, scheduler: Scheduler, *, late_reads: bool = False
) -> dict[tuple[str, int], Outputs]:
    """Run ``trip_count`` iterations; the outputs of every op of every iteration, as its own role has them.

    ``late_reads``: ops read when they end, not when they begin.

    Raises
    ------
    ProtocolHang : a deadlock, or a phase with too many arrivals.
    """
    return _Machine(facts_of(program, graph), trip_count, tiles, scheduler, late_reads).run()


class _Machine:
    def __init__(self, facts: ProtocolFacts, trip_count: int, tiles: TileSemantics, scheduler: Scheduler, late_reads: bool) -> None:
        self.facts, self.tiles, self.scheduler, self.late_reads = facts, tiles, scheduler, late_reads
        self.threads = [_Thread(r, list(r.trace(trip_count))) for r in facts.program.roles]
        self.slots = {b.name: [_Slot() for _ in range(b.slots)] for b in facts.program.barriers}
        self.flights: list[_Flight] = []
        self.registers: dict[tuple[str, int], Outputs] = {}
        self.cells: dict[tuple[str, int], dict[str, tuple[int, Outputs]]] = {}
        self.accesses = {op: facts.accesses(op) for op in facts.site}
        self.sharing = {s.name: _sharing(facts.program.storage, s) for s in facts.program.storage}
        self.signals: dict[str, list[tuple[_Thread, Arrive]]] = {}
        for t in self.threads:
            for x in t.role.body:
                if isinstance(x, Arrive) and x.when == "after":
                    self.signals.setdefault(x.op, []).append((t, x))
        self.clock = 0

    def run(self) -> dict[tuple[str, int], Outputs]:
        while True:
            actions = self._enabled()
            if not actions:
                break
            self._do(self.scheduler(actions))
            self.clock += 1
        stuck = [t for t in self.threads if t.next < len(t.steps)]
        if stuck:
            where = "; ".join(f"{t.role.name} at {t.steps[t.next][0]} of iteration {t.steps[t.next][1]}" for t in stuck)
            raise ProtocolHang(f"nothing can go on: {where}")
        return self.registers

    def _enabled(self) -> list[Action]:
        actions = [Action("role", t.role.name, 0) for t in self.threads if t.next < len(t.steps) and self._may_step(t)]
        busy: set[str] = set()
        for f in self.flights:
            if is_mma(f.op):
                if f.role in busy:
                    continue
                busy.add(f.role)
            actions.append(Action("end" if f.begun else "begin", f"{f.op.name}@{f.iteration}", self.clock - f.issued))
        return actions

    def _may_step(self, t: _Thread) -> bool:
        x, i = t.steps[t.next]
        if isinstance(x, Wait):
            k = i - x.distance
            if k < 0:
                return True
            b = self.facts.barriers[x.barrier]
            slot = self.slots[b.name][k % b.slots]
            if b.kind == "named":
                return t.joined is None or slot.completed > t.joined
            return slot.completed % 2 != k // b.slots % 2
        if isinstance(x, WaitOwn):
            return all(g.done for g in t.groups[: max(0, len(t.groups) - x.pending)])
        return True

    def _do(self, action: Action) -> None:
        if action.kind == "role":
            self._step(next(t for t in self.threads if t.role.name == action.name))
            return
        flight = next(f for f in self.flights if f"{f.op.name}@{f.iteration}" == action.name)
        if action.kind == "begin":
            self._begin(flight)
        else:
            self._end(flight)
            self.flights.remove(flight)
            self._signal(flight)

    def _step(self, t: _Thread) -> None:
        x, i = t.steps[t.next]
        if isinstance(x, Execute):
            op = self.facts.ops[x.op]
            if op.asynchronous:
                flight = _Flight(op, i, t.role.name, self.clock)
                self.flights.append(flight)
                if is_mma(op):
                    t.groups.append(flight)
            elif t.running is None:
                t.running = _Flight(op, i, t.role.name, self.clock)
                self._begin(t.running)
                return
            else:
                self._end(t.running)
                t.running = None
        elif isinstance(x, Wait):
            b = self.facts.barriers[x.barrier]
            if b.kind == "named" and i >= x.distance:
                slot = self.slots[b.name][(i - x.distance) % b.slots]
                if t.joined is None:
                    t.joined = slot.completed
                    slot.waiting += 1
                    self._complete(b, slot)
                    return
                t.joined = None
        elif isinstance(x, Arrive) and (x.when == "now" or self.facts.barriers[x.barrier].tx_bytes or self._is_over(x.op, i)):
            self._arrive(x, i)
        t.next += 1

    def _is_over(self, op: str, iteration: int) -> bool:
        return (op, iteration) in self.registers

    def _signal(self, flight: _Flight) -> None:
        """An asynchronous op is over: its bytes and its arrivals count."""
        for t, x in self.signals.get(flight.op.name, ()):
            b = self.facts.barriers[x.barrier]
            if b.tx_bytes:
                slot = self.slots[b.name][flight.iteration % b.slots]
                slot.delivered += sum(s.size for s in self.facts.graph.buffers if flight.op.name in s.writers)
                self._complete(b, slot)
            else:
                if any(y is x and i == flight.iteration for y, i in t.steps[: t.next]):
                    self._arrive(x, flight.iteration)

    def _arrive(self, x: Arrive, iteration: int) -> None:
        b = self.facts.barriers[x.barrier]
        slot = self.slots[b.name][iteration % b.slots]
        slot.arrived += x.count
        if slot.arrived > b.arrivals:
            raise ProtocolHang(f"barrier {b.name}: {slot.arrived} arrivals in a phase of {b.arrivals}, iteration {iteration}")
        self._complete(b, slot)

    def _complete(self, b: Barrier, slot: _Slot) -> None:
        waiters = sum(1 for _ in self.facts.waits(b.name)) if b.kind == "named" else 0
        if slot.arrived == b.arrivals and slot.delivered == b.tx_bytes and slot.waiting == waiters:
            slot.completed += 1
            slot.arrived = slot.delivered = slot.waiting = 0

    def _begin(self, flight: _Flight) -> None:
        flight.begun = True
        if not self.late_reads:
            flight.found = self._read(flight)
        for a in self._writes(flight):
            self._overwrite(flight, a)

    def _end(self, flight: _Flight) -> None:
        found = self._read(flight) if flight.found is None else flight.found
        result = self.tiles.execute(flight.op, flight.iteration, found)
        for a in self._writes(flight):
            self._overwrite(flight, a)
            index = flight.iteration + a.shift
            self.cells[a.storage, index % self.facts.storage[a.storage].stages][flight.op.name] = (index, result)
        self.registers[flight.op.name, flight.iteration] = result
        flight.done = True

    def _writes(self, flight: _Flight) -> list[Access]:
        return [a for a in self.accesses[flight.op.name] if a.mode == "write"]

    def _overwrite(self, flight: _Flight, a: Access) -> None:
        """What other iterations and other storages left at the address is gone; parts of the same tile stay."""
        storage = self.facts.storage[a.storage]
        index = flight.iteration + a.shift
        here = self.cells.setdefault((a.storage, index % storage.stages), {})
        if not storage.persistent:
            for op in [op for op, (k, _) in here.items() if k != index or op == flight.op.name]:
                del here[op]
        for other in self.sharing[a.storage][index % storage.stages]:
            self.cells.pop(other, None)

    def _read(self, flight: _Flight) -> dict[str, Outputs | None]:
        return {e.src: self._find(flight, e.src, e.distance, e.kind == "registers")
                for e in self.facts.graph.edges if e.dst == flight.op.name and flight.iteration >= e.distance}  # fmt: skip

    def _find(self, flight: _Flight, src: str, distance: int, in_registers: bool) -> Outputs | None:
        made = flight.iteration - distance
        if not in_registers or self.facts.role(src) != flight.role:
            written = {a.storage: a.shift for a in self.accesses[src] if a.mode == "write"}
            common = [a.storage for a in self.accesses[flight.op.name] if a.storage in written]
            for name in dict.fromkeys(common):
                slot = (made + written[name]) % self.facts.storage[name].stages
                kept = self.cells.get((name, slot), {}).get(src)
                return kept[1] if kept else None
        return self.registers.get((src, made))


def _sharing(storage: Sequence[Storage], s: Storage) -> list[list[tuple[str, int]]]:
    """For every slot, the slots of other storages that share addresses with it."""

    def meets(m: int, other: Storage, n: int) -> bool:
        a, b = s.offset + m * s.stride, other.offset + n * other.stride
        return s.memory == other.memory and a < b + other.stride and b < a + s.stride

    return [[(o.name, n) for o in storage if o.name != s.name for n in range(o.stages) if meets(m, o, n)] for m in range(s.stages)]


def schedulers(roles: Sequence[str], seeds: int) -> dict[str, Scheduler]:
    """Adversaries by name: eager, late and newest-first completion, every role held back or rushed ahead, and ``seeds`` random ones."""

    def by(*preference: Callable[[Action], Any]) -> Scheduler:
        return lambda actions: min(actions, key=lambda a: tuple(p(a) for p in preference))

    def is_role(a: Action) -> bool:
        return a.kind == "role"

    result = {
        "eager": by(is_role, lambda a: -a.age),
        "late": by(lambda a: a.kind == "end", lambda a: not is_role(a), lambda a: a.age),
        "newest": by(lambda a: not is_role(a), lambda a: a.age, lambda a: a.name),
    }

    def is_of(name: str) -> Callable[[Action], bool]:
        return lambda a: a.name == name

    def is_not_of(name: str) -> Callable[[Action], bool]:
        return lambda a: a.name != name

    for name in roles:
        result[f"late, {name} first"] = by(is_not_of(name), lambda a: not is_role(a), lambda a: a.age)
        result[f"late, {name} last"] = by(is_of(name), lambda a: not is_role(a), lambda a: a.age)
        result[f"eager, {name} last"] = by(is_of(name), is_role, lambda a: -a.age)
    for seed in range(seeds):
        result[f"random {seed}"] = _random(seed)
    return result


def _random(seed: int) -> Scheduler:
    """Random weights for every name and kind, drawn anew now and then: long runs of one role occur, and so do fine mixtures."""
    source = random.Random(seed)
    weights: dict[tuple[str, str], float] = {}

    def choose(actions: Sequence[Action]) -> Action:
        if source.random() < 0.02:
            weights.clear()
        weight = [weights.setdefault((a.kind, a.name.split("@")[0]), source.random() ** 4) for a in actions]
        return source.choices(actions, weight)[0]

    return choose
