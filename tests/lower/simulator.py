"""Run a WarpProgram step by step: hardware barriers with parities, asynchronous ops that end at any later time, MMAs in order.

Every event carries the set of ops that are known to be done when it happens (a bit set, as vector clocks have it). These sets
follow from the synchronization alone, not from the order in which the run happens to interleave roles.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from twill.lower import Arrive, Execute, Instruction, Role, Wait, WaitOwn, WarpProgram

Instance = tuple[str, int]


class Deadlock(AssertionError):
    pass


class PhaseError(AssertionError):
    pass


@dataclass
class _Hardware:
    """One hardware barrier: how many phases are complete, and what the running one lacks."""

    complete: int = 0
    arrived: int = 0
    clock: int = 0
    clocks: list[int] = field(default_factory=list)


@dataclass
class Run:
    """What happened: ``known[v, i]`` is the set of ops done before v of iteration i began, ``bit`` names its members."""

    executed: list[Instance]
    known: dict[Instance, int]
    bit: dict[Instance, int]

    def before(self, u: Instance, v: Instance) -> bool:
        return bool(self.known[v] & self.bit[u])


class Machine:
    def __init__(self, program: WarpProgram, trip_count: int, mmas: set[str], seed: int) -> None:
        self.program, self.mmas, self.random = program, mmas, random.Random(seed)
        self.eager = seed % 3  # 0: async work ends as late as it can, 1: as early as it can, 2: at random
        self.todo: dict[str, list[tuple[Instruction, int]]] = {r.name: list(r.trace(trip_count)) for r in program.roles}
        self.at = dict.fromkeys(self.todo, 0)
        self.clock = dict.fromkeys(self.todo, 0)
        self.issued: dict[str, list[Instance]] = {r: [] for r in self.todo}
        self.flying: list[tuple[str, Instance]] = []
        self.done: dict[Instance, int] = {}
        self.after: dict[Instance, list[tuple[Arrive, int]]] = {}
        self.barriers = {b.name: [_Hardware() for _ in range(b.slots)] for b in program.barriers}
        self.run_ = Run([], {}, {})

    def run(self) -> Run:
        while True:
            ready = [r for r in self.todo if self.at[r] < len(self.todo[r]) and self._can(r)]
            landing = [f for f in self.flying if self._may_land(*f)]
            if not ready and not landing:
                break
            land = landing and (not ready or self.eager == 1 or (self.eager == 2 and self.random.random() < 0.5))
            if land:
                self._land(*self.random.choice(landing))
            else:
                favourite = ready[self.eager % len(ready)]
                self._step(favourite if self.random.random() < 0.7 else self.random.choice(ready))
        stuck = {r: self.todo[r][self.at[r]] for r in self.todo if self.at[r] < len(self.todo[r])}
        if stuck:
            raise Deadlock(f"roles stuck at {stuck}")
        return self.run_

    def _can(self, role: str) -> bool:
        x, i = self.todo[role][self.at[role]]
        if isinstance(x, Wait):
            k = i - x.distance
            if k < 0:
                return True
            slots = self.barriers[x.barrier]
            complete, turn = slots[k % len(slots)].complete, k // len(slots)
            if complete not in (turn, turn + 1):
                raise PhaseError(f"{role} waits for completion {k} of {x.barrier}, whose slot is in phase {complete}")
            return complete % 2 != turn % 2
        if isinstance(x, WaitOwn):
            left = self.issued[role][: max(0, len(self.issued[role]) - x.pending)]
            return all(m in self.done for m in left)
        return True

    def _step(self, role: str) -> None:
        x, i = self.todo[role][self.at[role]]
        self.at[role] += 1
        if isinstance(x, Wait):
            k = i - x.distance
            if k >= 0:
                slots = self.barriers[x.barrier]
                self.clock[role] |= slots[k % len(slots)].clocks[k // len(slots)]
        elif isinstance(x, WaitOwn):
            for m in self.issued[role][: max(0, len(self.issued[role]) - x.pending)]:
                self.clock[role] |= self.done[m]
        elif isinstance(x, Arrive):
            instance = (x.op, i)
            if x.when == "now":
                self._arrive(x, i, self.clock[role])
            elif instance in self.done:
                self._arrive(x, i, self.done[instance] | self.clock[role])
            else:
                self.after.setdefault(instance, []).append((x, i))
        else:
            self._execute(role, x, i)

    def _execute(self, role: str, x: Execute, i: int) -> None:
        instance = (x.op, i)
        run = self.run_
        assert instance not in run.bit, f"{instance} twice"
        run.executed.append(instance)
        run.bit[instance] = 1 << len(run.bit)
        known = self.clock[role]
        if x.op in self.mmas:
            for m in self.issued[role]:
                known |= run.known[m] | run.bit[m]
            self.issued[role].append(instance)
        run.known[instance] = known
        if x.op in self.program.asynchronous:
            self.flying.append((role, instance))
        else:
            self.clock[role] |= run.bit[instance]

    def _may_land(self, role: str, instance: Instance) -> bool:
        return instance[0] not in self.mmas or all(m in self.done for m in self.issued[role][: self.issued[role].index(instance)])

    def _land(self, role: str, instance: Instance) -> None:
        self.flying.remove((role, instance))
        self.done[instance] = self.run_.known[instance] | self.run_.bit[instance]
        for x, i in self.after.pop(instance, ()):
            self._arrive(x, i, self.done[instance])

    def _arrive(self, x: Arrive, k: int, clock: int) -> None:
        slots = self.barriers[x.barrier]
        hardware, turn = slots[k % len(slots)], k // len(slots)
        if hardware.complete != turn:
            raise PhaseError(f"arrival for completion {k} of {x.barrier} counts for phase {hardware.complete}")
        hardware.arrived += x.count
        hardware.clock |= clock
        need = self.program.barrier(x.barrier).arrivals
        if hardware.arrived > need:
            raise PhaseError(f"{hardware.arrived} arrivals on {x.barrier}, which takes {need}")
        if hardware.arrived == need:
            hardware.clocks.append(hardware.clock)
            hardware.complete, hardware.arrived, hardware.clock = turn + 1, 0, 0


def simulate(program: WarpProgram, trip_count: int, mmas: set[str], seed: int = 0) -> Run:
    """Raises Deadlock or PhaseError (both AssertionErrors)."""
    return Machine(program, trip_count, mmas, seed).run()


def without(program: WarpProgram, role: Role, position: int) -> WarpProgram:
    """The program less one instruction."""
    body = role.body[:position] + role.body[position + 1 :]
    return replace(program, roles=tuple(replace(r, body=body) if r.name == role.name else r for r in program.roles))
