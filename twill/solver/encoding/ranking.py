"""Limits on the rank of a schedule, and the exclusion of schedules already listed."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from twill.solver.candidate import Candidate, same_modulo_order
from twill.solver.encoding import families, registers
from twill.solver.encoding.build import Encoded
from twill.solver.encoding.formula import ORIGIN, Diff, Formula, Literal
from twill.solver.encoding.groups import same, sits, slots_of, used_literals
from twill.solver.problem import Problem
from twill.solver.queues import held_up_pairs

if TYPE_CHECKING:
    from twill.solver.query import Query

__all__ = ["limit_rank"]


def limit_rank(p: Problem, encoded: Encoded, q: Query) -> None:
    """At least this margin; at most so many cycles, groups, hand-overs, waits and registers; none of the excluded schedules."""
    f = encoded.formula
    if q.length < encoded.horizon:
        for v, op in enumerate(p.ops):
            f.require(("completion", op.name), Diff(ORIGIN, v, op.span - q.length, 0))
    if q.margin > encoded.margin and p.on("queueing"):
        families.late(p, f, "margin", q.margin)
    if q.groups is not None:
        f.at_most(("rank", "groups"), [(1, u) for u in used_literals(p, f)], q.groups)
    if q.held_up is not None:
        _held_up(p, f, q.held_up)
    if q.alike:
        _alike(p, f)
    if q.handovers is not None:
        _handovers(p, f, q.handovers)
    if q.waits is not None:
        _waits(p, f, q.waits)
    if q.peak is not None:
        at = encoded.pressure if encoded.pressure is not None else registers.pressures(p, f)
        registers.register_limit(p, f, at, q.peak, "rank")
    for c in q.excluded:
        _exclude(p, f, c)


def _held_up(p: Problem, f: Formula, most: int) -> None:
    terms = []
    for v, x in held_up_pairs(p):
        s = same(p, f, v, x)
        held = f.boolean(f"held_{v}_{x}")
        f.add(("rank", "work held up"), held, -s if s else None, Diff(v, x, 1, 0))
        terms.append((1, held))
    f.at_most(("rank", "work held up"), terms, most)


def _alike(p: Problem, f: Formula) -> None:
    """Between two ops lie as many periods as between their mirror images."""
    label = ("rank", "alike")
    index = {op.name: v for v, op in enumerate(p.ops)}
    root: dict[str, str] = {}
    images: dict[str, list[int]] = {}
    for first, second in p.graph.symmetries:
        for name, image in zip(first, second, strict=True):
            origin = root.setdefault(name, name)
            root[image] = origin
            known = images.setdefault(origin, [])
            known += [index[x] for x in (name, image) if index[x] not in known]
    for a, b in itertools.combinations(images, 2):
        if len(images[a]) != len(images[b]):
            continue
        pairs = list(zip(images[a], images[b], strict=True))
        low, high = (choose(f.span(u, v)[side] for u, v in pairs) for side, choose in ((0, min), (1, max)))
        orders = []
        for k in range(low // f.ii, high // f.ii + 1):
            order = f.boolean(f"order_{a}_{b}_{k}")
            orders.append(order)
            for u, v in pairs:
                f.add(label, -order, Diff(v, u, 0, k))
                f.add(label, -order, Diff(u, v, 1, -(k + 1)))
        f.add(label, *orders)


def _handovers(p: Problem, f: Formula, most: int) -> None:
    fixed, terms = 0, []
    for src, dst, _ in sorted({(e.src, e.dst, e.distance) for e in p.edges}):
        s = same(p, f, src, dst)
        if s is None:
            fixed += 1
        elif s:
            terms.append((1, -s))
    if fixed > most:
        f.add(("rank", "handovers"))
    f.at_most(("rank", "handovers"), terms, most - fixed)


def _waits(p: Problem, f: Formula, most: int) -> None:
    terms = []
    for src, dst in sorted({(e.src, e.dst) for e in p.edges}):
        s = same(p, f, src, dst)
        if s == 0:
            continue
        for g in slots_of(p, dst):
            wait = f.boolean(f"wait_{src}_{g}")
            f.add(("rank", "waits"), -sits(p, f, dst, g), s, wait)
            terms.append((1, wait))
    f.at_most(("rank", "waits"), sorted(set(terms)), most)


def _exclude(p: Problem, f: Formula, c: Candidate) -> None:
    """Another partition into groups, or another order modulo I of two ops that share a unit or a group."""
    literals: list[Literal] = []
    for u in range(len(p.ops)):
        for v in range(u + 1, len(p.ops)):
            s = same(p, f, u, v)
            if s:
                literals.append(-s if c.groups[u] == c.groups[v] else s)
    for u, v, k in same_modulo_order(p, c):
        # M(v) - M(u) in [k I, (k + 1) I)
        literals.append(Diff(u, v, 1, -k))
        literals.append(Diff(v, u, 0, k + 1))
    f.add(("rank", "listed before"), *literals)
