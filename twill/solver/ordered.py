"""The tightest schedule of the model that keeps to an order given from outside: who executes what, and in which order.

The rules are those of every solve; what the order fixes is added. So what comes out is a schedule of the graph like any other, which the
independent checker takes, and its I is comparable with that of the best schedule.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from twill.errors import UsageError
from twill.model.graph import LoopGraph
from twill.model.machine import Machine
from twill.model.schedule import Options, Schedule
from twill.model.validate import validate_graph
from twill.solver.bounds import critical_path
from twill.solver.problem import EdgeSpec, Problem, make_problem
from twill.solver.queues import most_margin
from twill.solver.result import make_schedule
from twill.solver.search import Search
from twill.solver.session import Session

__all__ = ["Ordered", "Place", "tightest"]


@dataclass(frozen=True, slots=True)
class Place:
    """An op in the order of its role: in period n it is issued for iteration n + ``ahead``."""

    op: str
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Ordered:
    """``schedule`` is the tightest one that keeps to the order, None if there is none; ``proved`` says that no smaller I keeps to it.

    The proof record of the schedule knows nothing of the order: what it leaves open is what a better order might gain.
    """

    schedule: Schedule | None
    proved: bool


def tightest(graph: LoopGraph, machine: Machine, options: Options, roles: Mapping[str, Sequence[Place]], *,
             timeout_s: float = 300.0, seed: int = 0, command: str = "") -> Ordered:  # fmt: skip
    """Find the smallest I, then the largest margin and the smallest L, with these roles in this order. Ops in no role sit where they like.

    Raises
    ------
    UsageError : an op that the graph does not have, or that is listed twice.
    SolverError : the solver process died.
    """
    validate_graph(graph, machine)
    free = make_problem(graph, machine, options)
    problem = _kept(free, roles)
    with Session(timeout_s=timeout_s, seed=seed) as session:
        found = Search(problem, session).solve()
        if found.best is None:
            return Ordered(None, found.infeasible)
        proved = found.ii_floor * free.unit_cycles == found.best.ii
        # against the graph itself only its bounds are proved
        unit = free.unit_cycles
        open_floors = replace(
            found, ii_floor=-(-found.bounds.best // unit), margin_ceiling=most_margin(free), refuted_ii=False, refuted_length=False,
            length_floor=critical_path(free, found.best.ii) // unit, rank_proved=False,
        )  # fmt: skip
        schedule = make_schedule(free, open_floors, found.ranked[0], solver_version=session.version, seed=seed,
                                 queries=session.queries, command=command)  # fmt: skip
    return Ordered(schedule, proved)


def _kept(p: Problem, roles: Mapping[str, Sequence[Place]]) -> Problem:
    """The problem with the ops of a role together, those of different roles apart, and each role in its order."""
    index = {op.name: v for v, op in enumerate(p.ops)}
    role_of: dict[int, str] = {}
    for role, places in roles.items():
        for place in places:
            if place.op not in index:
                raise UsageError(f"graph {p.graph.name} has no op {place.op!r}", f"its ops are {', '.join(index)}")
            if index[place.op] in role_of:
                raise UsageError(f"{place.op} is listed twice", "list every op once")
            role_of[index[place.op]] = role
    team = list(p.team)
    for places in roles.values():
        for a, b in itertools.pairwise(places):
            low, high = sorted((team[index[a.op]], team[index[b.op]]))
            team = [low if t == high else t for t in team]
    apart = {(team[u], team[v]) for u, v in p.apart}
    apart |= {(team[u], team[v]) for u in role_of for v in role_of if role_of[u] != role_of[v]}
    order = tuple(e for places in roles.values() for e in _in_order(p, index, places))
    # an order need not treat alike what the graph does
    return replace(p, team=tuple(team), apart=frozenset(apart), order=order, symmetries=(), paths={})


def _in_order(p: Problem, index: Mapping[str, int], places: Sequence[Place]) -> list[EdgeSpec]:
    """One op behind another, and the first of the next period behind the last."""
    edges = []
    for k, a in enumerate(places if len(places) > 1 else ()):
        b = places[(k + 1) % len(places)]
        u, v = index[a.op], index[b.op]
        distance = b.ahead - a.ahead + (k + 1 == len(places))
        issue = p.ops[u].issue
        edges.append(EdgeSpec(u, v, distance, issue, issue, False, f"order of {a.op}, {b.op}"))
    return edges
