"""The steady state of an order by discrete-event simulation: cycles a period.

The model, every figure of which is in the machine file or below:

* A role does its steps in order. A synchronous op holds its role; an asynchronous one for its issue time only.
* The tensor core runs the MMAs of all roles one by one in order of issue. A result is seen ``mma_latency_fixed`` cycles after the last
  instruction, and the next issue takes ``mma_issue``: so a full drain costs what was measured, 119 to 127 cycles.
* A role goes on behind an MMA once no more than ``mma_queue_instructions`` of its matrix instructions are still to be done, and
  ``mma_accept_cycles`` later. So with a second MMA behind the first, its softmax begins later than the first MMA is over.
* A synchronous op advances at its stand-alone rate while the tensor core is idle, and at its contended rate while it works.
* Ops of several roles that want more of a unit than there is all slow down alike.
* Ops of a role with no wait and no MMA between them are one stretch, whose instructions the assembler mixes: each of its units is
  used evenly. A stretch that takes more of the FMA pipes than ``fma_beside_mma_percent`` (a rescale of O, say) is a burst, and stops
  the MMAs by ``mma_stolen_by_fma_burst`` of its share of the pipes; other stretches leave them alone. Machines that say nothing of
  bursts have MMAs slowed down by ``mma_stolen_by_fma`` of all that is used.
* An MMA that reads a buffer filled by TMA is issued behind a look at its mbarrier. A named barrier opens
  ``handover_named_barrier`` after the last of those who arrive and wait.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import groupby

from twill.check.protocol.contention import contended_costs, matrix_instructions, mixed
from twill.check.protocol.order import Order, Step
from twill.errors import UsageError
from twill.model.graph import Edge
from twill.model.machine import Machine, load_machine

__all__ = ["OrderCost", "cost_order"]

MBARRIER_LOOK_CYCLES = 51
"""try_wait on a completed phase (H200 at 1980 MHz, in-kernel clock, 2026-11-30)."""
PERIODS = 64
WARM_UP = 32
EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class OrderCost:
    """``period_cycles`` of the steady state, and the share of them in which the tensor core works."""

    period_cycles: float
    tensor_share: float


def cost_order(order: Order, machine: Machine | None = None) -> OrderCost:
    """Simulate an order, on the machine that it names unless another description is given.

    Raises
    ------
    UsageError : an unknown machine, graph or op, an op listed twice, or an order that waits for ever.
    """
    return _Simulation(order, machine or load_machine(order.graph.machine)).run()


@dataclass(slots=True)
class _Role:
    name: str
    steps: tuple[Step, ...]
    period: int = 0
    step: int = 0
    free_at: float = 0.0
    looked: bool = False
    op: str = ""
    iteration: int = 0
    left: float = 0.0
    finished: list[float] = field(default_factory=list)
    accepted: _Acceptance | None = None


@dataclass(slots=True)
class _Mma:
    op: str
    iteration: int
    left: float
    role: str
    instruction: float
    """Cycles of one of its matrix instructions."""


@dataclass(frozen=True, slots=True)
class _Acceptance:
    """A role's last MMA is in the queue when ``mma`` has no more than ``left`` cycles to go."""

    mma: _Mma
    left: float


class _Simulation:
    def __init__(self, order: Order, machine: Machine) -> None:
        self.graph, self.alone, self.beside = contended_costs(order.graph, machine)
        self.machine, self.order = machine, order
        self.ops = {op.name: op for op in self.graph.ops}
        self.roles = [_Role(r.name, r.steps) for r in order.roles]
        self.ahead = self._listed()
        self.first_arrival = {s.arrive: s.ahead for r in self.roles for s in r.steps if s.arrive}
        owner = {s.op: r.name for r in self.roles for s in r.steps if s.op}
        self.needs: dict[str, list[Edge]] = {op: [] for op in self.ahead}
        self.looks = {e.dst for e in self.graph.edges if self.ops[e.src].variable_latency}
        for e in self.graph.edges:
            in_order = e.src in owner and owner[e.src] == owner.get(e.dst) and self._is_mma(e.src) and self._is_mma(e.dst)
            if e.src in self.ahead and e.dst in self.ahead and not in_order:
                self.needs[e.dst].append(e)
        self.now = self.worked = 0.0
        self.over: dict[tuple[str, int], float] = {}
        self.arrived: dict[tuple[str, int], float] = {}
        self.tensor: list[_Mma] = []
        self.named = machine.cost("handover_named_barrier")
        figures = {name: c.value for name, c in machine.costs.items()}
        self.steal = figures.get("mma_stolen_by_fma_burst", figures.get("mma_stolen_by_fma", 0.0))
        self.burst = figures.get("fma_beside_mma_percent", 0.0) / 100
        for stretch in self._stretches():
            self.alone, self.beside = mixed(self.alone, stretch, "fma"), mixed(self.beside, stretch, "fma")
        self.instructions = matrix_instructions(self.graph)
        self.queue = figures.get("mma_queue_instructions", math.inf)
        self.accept = figures.get("mma_accept_cycles", 0.0)

    def _stretches(self) -> list[tuple[str, ...]]:
        """Synchronous ops of a role that follow one another with nothing in between."""
        found: list[tuple[str, ...]] = []
        for r in self.roles:
            ops = [s.op if s.op and not self.ops[s.op].asynchronous else None for s in r.steps]
            found += [tuple(op for op in run if op) for synchronous, run in groupby(ops, key=bool) if synchronous]
        return found

    def _is_mma(self, op: str) -> bool:
        return self.ops[op].asynchronous and self.ops[op].unit == "tensor"

    def _listed(self) -> dict[str, int]:
        ahead: dict[str, int] = {}
        for r in self.roles:
            for s in r.steps:
                for name in (s.op, s.finish):
                    if name is not None and name not in self.ops:
                        hint = f"its ops are {', '.join(self.ops)}"
                        raise UsageError(f"order {self.order.name}: graph {self.graph.name} has no op {name!r}", hint)
                if s.op in ahead:
                    raise UsageError(f"order {self.order.name} issues {s.op} twice a period", "list every op once")
                if s.op:
                    ahead[s.op] = s.ahead
        return ahead

    def run(self) -> OrderCost:
        started = 0.0
        while any(r.period < PERIODS for r in self.roles):
            while any(self._advance(r) for r in self.roles):
                pass
            if len(self.roles[0].finished) >= WARM_UP and not started:
                started = self.worked
            if any(r.period < PERIODS for r in self.roles):
                self._pass_time()
        finished = self.roles[0].finished
        cycles = finished[-1] - finished[WARM_UP - 1]
        return OrderCost(cycles / (PERIODS - WARM_UP), min(1.0, (self.worked - started) / cycles))

    def _advance(self, r: _Role) -> bool:
        """Take the next step of a role if it can be taken now."""
        if r.op or r.free_at > self.now + EPSILON or r.period >= PERIODS:
            return False
        if r.accepted is not None:
            if r.accepted.mma.left <= r.accepted.left + EPSILON:
                r.accepted, r.free_at = None, self.now + self.accept
            return False
        s = r.steps[r.step]
        i = r.period + s.ahead
        if s.op and not self._issue(r, s.op, i):
            return False
        if s.finish and i >= self.ahead.get(s.finish, i + 1) and not self._seen(self.over.get((s.finish, i)), 0.0):
            return False
        if s.wait and i >= self.first_arrival.get(s.wait, 0) and not self._joined(r, s.wait, i):
            return False
        if s.arrive:
            self.arrived[s.arrive, i] = self.now
        r.step += 1
        r.looked = False
        if r.step == len(r.steps):
            r.step, r.period = 0, r.period + 1
            r.finished.append(self.now)
        return True

    def _joined(self, r: _Role, barrier: str, iteration: int) -> bool:
        """The one who waits is among those who arrive: the barrier opens ``handover_named_barrier`` after the last of them."""
        if r.looked:
            return True
        if self._seen(self.arrived.get((barrier, iteration)), 0.0):
            r.looked, r.free_at = True, self.now + self.named
        return False

    def _seen(self, at: float | None, delay: float) -> bool:
        return at is not None and at + delay <= self.now + EPSILON

    def _issue(self, r: _Role, name: str, iteration: int) -> bool:
        for e in self.needs[name]:
            made = iteration - e.distance
            if made >= self.ahead[e.src] and not self._seen(self.over.get((e.src, made)), self._handover(e)):
                return False
        op = self.ops[name]
        if self._is_mma(name) and name in self.looks and not r.looked:
            r.looked, r.free_at = True, self.now + MBARRIER_LOOK_CYCLES
            return False
        if not op.asynchronous:
            r.op, r.iteration, r.left = name, iteration, 1.0
            return True
        r.free_at = self.now + op.issue_cycles
        if self._is_mma(name):
            cycles = self.alone[name].unit_cycles["tensor"]
            self.tensor.append(_Mma(name, iteration, cycles, r.name, cycles / self.instructions.get(name, 1)))
            r.accepted = self._acceptance(r.name)
        else:
            self.over[name, iteration] = self.now + op.latency_cycles
        return True

    def _acceptance(self, role: str) -> _Acceptance | None:
        """What the last MMA of a role waits for before all of it is in the queue; None if there is room."""
        room = self.queue
        for mma in reversed([m for m in self.tensor if m.role == role]):
            if mma.left > room * mma.instruction + EPSILON:
                return _Acceptance(mma, room * mma.instruction)
            room -= mma.left / mma.instruction
        return None

    def _handover(self, e: Edge) -> int:
        here = {s.op for r in self.roles if any(s.op == e.src for s in r.steps) for s in r.steps}
        return e.same_group_cycles if e.dst in here else e.cross_group_cycles

    def _rates(self) -> tuple[dict[str, float], float]:
        """Shares of an op that each role does in a cycle, and the speed of the tensor core."""
        costs = self.beside if self.tensor else self.alone
        running = {r.name: costs[r.op] for r in self.roles if r.op}
        rate = {name: 1.0 / max(1.0, c.cycles) for name, c in running.items()}
        for unit in sorted({u for c in running.values() for u in c.unit_cycles} - {"tensor"}):
            wanted = sum(rate[name] * c.unit_cycles.get(unit, 0.0) for name, c in running.items())
            if wanted > 1.0:
                rate = {name: v / wanted if running[name].unit_cycles.get(unit) else v for name, v in rate.items()}
        shares = [costs[r.op].unit_cycles.get("fma", 0.0) / max(1.0, costs[r.op].cycles) for r in self.roles if r.op]
        return rate, 1.0 - self.steal * min(1.0, sum(share for share in shares if share > self.burst))

    def _pass_time(self) -> None:
        rate, speed = self._rates()
        events = [r.left / rate[r.name] for r in self.roles if r.op]
        events += [r.free_at - self.now for r in self.roles]
        if self.tensor and speed > EPSILON:
            first = self.tensor[0]
            events += [first.left / speed]
            events += [(first.left - r.accepted.left) / speed for r in self.roles if r.accepted and r.accepted.mma is first]
        delays = {0.0} | {float(self._handover(e)) for n in self.needs.values() for e in n}
        events += [at + d - self.now for at in self.over.values() for d in delays]
        step = min((x for x in events if x > EPSILON), default=None)
        if step is None:
            where = "; ".join(f"{r.name} at {r.steps[r.step].model_dump(exclude_none=True)}" for r in self.roles if r.period < PERIODS)
            raise UsageError(f"order {self.order.name} waits for ever: {where}", "see which op or arrival each of these steps needs")
        self.now += step
        for r in self.roles:
            if r.op:
                r.left -= step * rate[r.name]
                if r.left < EPSILON:
                    self.over[r.op, r.iteration] = self.now
                    r.op = ""
        if self.tensor:
            self.worked += step
            first = self.tensor[0]
            first.left -= step * speed
            if first.left < EPSILON:
                self.over[first.op, first.iteration] = self.now + self.machine.cost("mma_latency_fixed")
                self.tensor.pop(0)
        self._forget()

    def _forget(self) -> None:
        """Only what lies ahead, or in the last few periods, matters."""
        oldest = min(r.period for r in self.roles) - 4
        for known in (self.over, self.arrived):
            for key in [k for k in known if k[1] < oldest]:
                del known[key]
