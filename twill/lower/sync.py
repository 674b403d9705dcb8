"""Which barriers enforce the dependences that remain, who arrives and how often, and how deep their rings are.

* Dependences with the same sources and a common purpose share a barrier: all uses of a result one ``full`` barrier, all readers
  of a buffer one ``empty`` barrier. Each waiting role waits at the first op that needs it; later ones were redundant.
* Arrivals: every warp of a role arrives once, by an elected lane, for a synchronous op and for a wgmma (behind the wait for it);
  a TMA load, a bulk copy and a tcgen05.commit arrive once, by themselves.
* Ring depth: a hardware barrier shows only the parity of its phase, and counts whoever arrives. The depth is the least s so that,
  by happens-before, (1) every wait for completion k passes before completion k + s can occur, (2) nobody arrives for k + s before
  completion k was waited for. A full or empty barrier of a buffer is at least as deep as the buffer has stages, so that both use
  the same index. Where no depth does, the producer is paced by its consumer.
* A hand-over of registers between synchronous ops of two roles takes a named barrier if a ring of one suffices (one phase in
  flight) and an id is left; producer and consumer warps both arrive there. Everything else is an mbarrier.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from twill.errors import LowerError
from twill.lower.allocators import NamedBarriers
from twill.lower.dependences import Dependence
from twill.lower.events import DONE, ISSUE, EventGraph
from twill.lower.program import Barrier
from twill.lower.roles import Loop

__all__ = ["DEEPEST_RING", "Signal", "arrivals_of", "is_load", "signals"]

DEEPEST_RING = 8
"""Deepest ring that is tried beyond the stages of its buffer."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A barrier to be: who arrives (``producers``), who waits ((op, distance)), and what for."""

    barrier: Barrier
    producers: tuple[str, ...]
    waits: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    name: str
    producers: tuple[str, ...]
    dependences: tuple[Dependence, ...]
    stages: int

    @property
    def waits(self) -> tuple[tuple[str, int], ...]:
        return tuple(dict.fromkeys((d.dst, d.distance) for d in self.dependences))


def is_load(loop: Loop, op: str) -> bool:
    """Whether the op is a TMA load, whose bytes complete a phase."""
    return loop.ops[op].variable_latency and loop.ops[op].asynchronous


def arrivals_of(loop: Loop, op: str) -> int:
    """How often one iteration of an op arrives."""
    return loop.warps[loop.role(op)] if loop.waits_own(op) or not loop.ops[op].asynchronous else 1


def signals(loop: Loop, events: EventGraph, kept: Iterable[Dependence]) -> tuple[tuple[Signal, ...], tuple[Dependence, ...]]:
    """The barriers, and the dependences that had to be added to pace producers (enforced in ``events`` and by the barriers).

    Raises
    ------
    LowerError : a producer cannot be paced.
    """
    kept = [d for d in kept if not (loop.waits_own(d.src) and loop.same(d.src, d.dst))]
    paced: list[Dependence] = []
    while True:
        plans = _plans(loop, [*kept, *paced])
        depths = [_depth(events, loop, plan) for plan in plans]
        lacking = next((plan for plan, depth in zip(plans, depths, strict=True) if depth is None), None)
        if lacking is None:
            break
        pace = _pace(loop, events, lacking)
        if pace in paced:
            raise LowerError(f"nothing keeps {pace.dst} from running ahead of {pace.src}", "add a buffer between the two to the graph")
        events.add(pace)
        paced.append(pace)
    ids = NamedBarriers()
    return tuple(_signal(loop, p, depth, ids) for p, depth in zip(plans, depths, strict=True) if depth is not None), tuple(paced)


def _plans(loop: Loop, kept: list[Dependence]) -> list[_Plan]:
    """Dependences by barrier, in the order in which they were given."""
    purposes: dict[tuple[object, ...], list[Dependence]] = {}
    for d in kept:
        if d.kind == "edge":
            key: tuple[object, ...] = ("edge", d.src)
        elif d.kind == "pace":
            key = ("pace", d.src, d.dst)
        else:
            key = (d.kind, d.guarded, d.distance, *((d.dst,) if d.kind == "overlay" else ()))
        purposes.setdefault(key, []).append(d)
    groups = _one_wait_for_many(list(purposes.values()))
    names: set[str] = set()
    stages = {b.name: b.stages for b in loop.schedule.buffers}
    plans = []
    for group in groups:
        guarded = {d.guarded for d in group}
        depth = stages.get(group[0].guarded, 1) if len(guarded) == 1 and group[0].kind in ("edge", "release", "slot") else 1
        name = _unique(_name(loop, group), names)
        plans.append(_Plan(name, tuple(dict.fromkeys(d.src for d in group)), tuple(group), depth))
    return plans


def _one_wait_for_many(groups: list[list[Dependence]]) -> list[list[Dependence]]:
    """Join results of several synchronous ops that exactly the same ops wait for at the same distance under the same name."""
    joined: dict[tuple[object, ...], list[Dependence]] = {}
    for number, group in enumerate(groups):
        uses = tuple((d.dst, d.distance, d.guarded) for d in group)
        alone = group[0].kind != "edge" or not all(d.guarded for d in group)
        joined.setdefault((number,) if alone else (uses,), []).extend(group)
    return list(joined.values())


def _name(loop: Loop, group: list[Dependence]) -> str:
    first = group[0]
    if first.kind == "edge":
        writers = {b.name: b.writers for b in loop.graph.buffers}.get(first.guarded, ())
        sources = {d.src for d in group}
        if len({d.guarded for d in group}) == 1 and (len(sources) > 1 or set(writers) == sources):
            return f"{first.guarded}_full"
        return f"{first.src}_to_{'_'.join(dict.fromkeys(d.dst for d in group))}"
    if first.kind == "overlay":
        return f"{first.guarded}_left_for_{first.dst}"
    if first.kind == "pace":
        return f"{first.src}_paces_{first.dst}"
    return f"{first.guarded}_empty"


def _unique(name: str, taken: set[str]) -> str:
    number, tried = 1, name
    while tried in taken:
        number += 1
        tried = f"{name}_{number}"
    taken.add(tried)
    return tried


def _depth(events: EventGraph, loop: Loop, plan: _Plan) -> int | None:
    return next((s for s in range(plan.stages, plan.stages + DEEPEST_RING + 1) if _deep_enough(events, loop, plan, s)), None)


def _deep_enough(events: EventGraph, loop: Loop, plan: _Plan, slots: int) -> bool:
    """Conditions (1) and (2) of the module's docstring."""
    paced: set[str] = set()
    for op, distance in plan.waits:
        ahead = slots - distance
        low, high = min(-distance, ahead, 0), max(-distance, ahead, 0)
        held = {
            p for p in plan.producers
            if events.path((op, ISSUE), (p, ISSUE if is_load(loop, p) else DONE), ahead, low, high) is not None
        }  # fmt: skip
        if not held:
            return False
        paced |= held
    return paced == set(plan.producers)


def _pace(loop: Loop, events: EventGraph, plan: _Plan) -> Dependence:
    """Hold a producer of the barrier back until its consumer is done with an earlier iteration, as late as the schedule allows."""
    for producer in plan.producers:
        for op, _ in plan.waits:
            enough = math.ceil((loop.done(op) - loop.start[producer]) / loop.ii)
            distance = max(1, enough) + 1
            pace = Dependence(f"pace {producer} by {op}", "pace", op, producer, distance)
            if events.implied_by(pace) is None:
                return pace
    return Dependence(f"pace {plan.producers[0]} by {plan.waits[0][0]}", "pace", plan.waits[0][0], plan.producers[0], 1)


def _signal(loop: Loop, plan: _Plan, slots: int, ids: NamedBarriers) -> Signal:
    arrivals = sum(arrivals_of(loop, p) for p in plan.producers)
    guards = tuple(dict.fromkeys(d.label for d in plan.dependences))
    barrier = Barrier(plan.name, "mbarrier", slots, arrivals, guards, _tx_bytes(loop, plan))
    if ids.left and slots == 1 and _may_be_named(loop, plan):
        consumers = loop.warps[loop.role(plan.waits[0][0])]
        barrier = replace(barrier, kind="named", arrivals=arrivals + consumers, named_id=ids.take(plan.name))
    return Signal(barrier, plan.producers, plan.waits)


def _may_be_named(loop: Loop, plan: _Plan) -> bool:
    if len(plan.producers) != 1 or len(plan.waits) != 1:
        return False
    (producer,), ((consumer, distance),) = plan.producers, plan.waits
    registers = any(e.kind == "registers" and (e.src, e.dst, e.distance) == (producer, consumer, distance) for e in loop.graph.edges)
    return registers and distance == 0 and not loop.ops[producer].asynchronous and not loop.ops[consumer].asynchronous


def _tx_bytes(loop: Loop, plan: _Plan) -> int:
    """Bytes that the TMA loads among the producers deliver in one iteration; each load fills its buffers as a whole."""
    total = 0
    for producer in plan.producers:
        if not is_load(loop, producer):
            continue
        for b in loop.graph.buffers:
            if producer in b.writers:
                total += b.size
    return total
