"""Reading a schedule: who shares a group, and what runs beside what."""

from __future__ import annotations

import functools
from typing import Any

from twill.check import check_schedule
from twill.model.graph import Op
from twill.model.machine import load_machine
from twill.model.registry import GraphRequest, build_graph
from twill.model.schedule import Schedule
from twill.solver.solve import Outcome, default_options, solve

Interval = tuple[int, int]


@functools.cache
def outcome(
    graph: str, machine: str, tile: str | None = None, subtiles: int | None = None, settings: tuple[tuple[str, str], ...] = (),
    **options: Any,
) -> Outcome:  # fmt: skip
    """Solve a shipped loop at head dim 128, on Blackwell rescaling always, as in the paper; every schedule found passes the checker."""
    on = load_machine(machine)
    given = dict(settings)
    if (graph, on.accumulator) == ("attn_fwd", "tmem"):
        given.setdefault("rescale", "always")
    loop = build_graph(graph, on, GraphRequest(tile=tile, subtiles=subtiles, settings=given))
    result = solve(loop, on, default_options(loop, on, **options), timeout_s=120)
    for found in result.schedules:
        assert check_schedule(found, on).findings == ()
    return result


def best(graph: str, machine: str, tile: str | None = None, subtiles: int | None = None, **options: Any) -> Schedule:
    """The schedule, proved optimal to its rank."""
    found = outcome(graph, machine, tile, subtiles, **options)
    assert found.status == "optimal"
    assert found.schedules[0].proof.rank_proved
    return found.schedules[0]


def op(s: Schedule, name: str) -> Op:
    return next(o for o in s.graph.ops if o.name == name)


def start(s: Schedule, name: str) -> int:
    return next(o.start_cycle for o in s.ops if o.name == name)


def stage(s: Schedule, name: str) -> int:
    return next(o.stage for o in s.ops if o.name == name)


def mates(s: Schedule, name: str) -> set[str]:
    """The ops of the group of an op, without bulk copies (which any group may issue)."""
    group = next(g for g in s.groups if name in g.ops)
    return {n for n in group.ops if not n.startswith(("RED", "XCH"))}


def partition(s: Schedule) -> set[frozenset[str]]:
    return {frozenset(mates(s, g.ops[0])) for g in s.groups}


def busy(s: Schedule, name: str) -> Interval:
    """When an op keeps its warps (synchronous) or the tensor core (MMA) busy, in iteration 0."""
    o = op(s, name)
    if not o.asynchronous:
        return start(s, name), start(s, name) + o.issue_cycles
    tensor = next(r for r in o.reservations if r.unit == "tensor")
    return start(s, name) + tensor.offset, start(s, name) + tensor.offset + tensor.cycles


def side_by_side(s: Schedule, first: str, second: str) -> int:
    """Cycles of one period in which both are busy, whatever their iterations."""
    ii = s.ii_cycles
    (a, b), (c, d) = busy(s, first), busy(s, second)
    return sum(max(0, min(b, d + k * ii) - max(a, c + k * ii)) for k in range(-8, 9))


def hidden(s: Schedule, name: str, behind: tuple[str, ...]) -> float:
    """Share of an op during which one of the others is busy."""
    a, b = busy(s, name)
    return sum(side_by_side(s, name, other) for other in behind) / (b - a)
