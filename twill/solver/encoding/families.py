"""The constraint families of the model, one function each, as labelled difference-logic constraints.

Names and meaning are those of ``docs/formulation.md`` section 2. A modulo constraint on two ops is a
conjunction over iterations k of two-literal clauses "v is done before u's k-th copy starts, or the other way
round"; which k can matter follows from the known range of M(v) - M(u).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from twill.solver.encoding.formula import ORIGIN, Diff, Formula
from twill.solver.encoding.groups import same, sits, slots_of
from twill.solver.problem import BufferSpec, Problem, UnitUse
from twill.solver.queues import rivals, waiting

__all__ = [
    "apart", "capacity", "completion", "concurrency", "copies", "dependence", "late", "lifetimes", "memory", "order",
    "symmetry",
]  # fmt: skip


def completion(p: Problem, f: Formula, horizon: int) -> None:
    """Every op runs within [0, horizon]."""
    for v, op in enumerate(p.ops):
        f.require(("completion", op.name), Diff(v, ORIGIN, 0, 0))
        f.require(("completion", op.name), Diff(ORIGIN, v, op.span - horizon, 0))


def dependence(p: Problem, f: Formula) -> None:
    """Edges, with the price of changing the warp group (rule hand-over)."""
    for e in p.edges:
        least = e.cheapest
        f.require(("dependence", e.label), Diff(e.dst, e.src, least, -e.distance))
        if e.same == e.cross:
            continue
        s = same(p, f, e.src, e.dst)
        dear = Diff(e.dst, e.src, max(e.same, e.cross), -e.distance)
        if s is None:
            f.require(("hand-over", e.label), Diff(e.dst, e.src, e.cross, -e.distance))
        elif s != 0:
            f.add(("hand-over", e.label), s if e.cross > e.same else -s, dear)
        elif e.same > e.cross:
            f.require(("hand-over", e.label), dear)


def order(p: Problem, f: Formula) -> None:
    """What an order given from outside asks for: one op of a group behind another."""
    for e in p.order:
        f.require(("dependence", e.label), Diff(e.dst, e.src, e.cheapest, -e.distance))


def late(p: Problem, f: Formula, rule: str, margin: int) -> None:
    """Whoever waits for a result of a queued unit is patient enough for one op of any other group ahead of it, and ``margin`` cycles."""
    for e in waiting(p):
        ahead: dict[int, int] = {}
        for w in rivals(p, e.src):
            ahead[p.team[w]] = max(ahead.get(p.team[w], 0), p.ops[w].queue)
        near = same(p, f, e.src, e.dst)
        for w, queue in ahead.items():
            with_w = same(p, f, e.src, w)
            if with_w == 0:
                continue
            label, more = (rule, f"{e.label} behind {p.ops[w].name}"), queue + margin
            f.add(label, with_w, Diff(e.dst, e.src, e.cheapest + more, -e.distance))
            dear = Diff(e.dst, e.src, max(e.same, e.cross) + more, -e.distance)
            if e.cross > e.same and near != 0:
                f.add(label, with_w, near, dear)
            elif e.same > e.cross and near is not None:
                f.add(label, with_w, -near if near else None, dear)


def copies(f: Formula, low: int, high: int) -> Iterator[int]:
    """Integers k with low <= k I <= high."""
    return iter(range(-((-low) // f.ii), high // f.ii + 1))


def apart(f: Formula, label: tuple[str, str], u: int, v: int, pu: int, pv: int, shift: int, unless: tuple[int, ...] = ()) -> None:
    """[M(u), M(u)+pu) and [M(v)+shift, M(v)+shift+pv) do not meet modulo I, or one of ``unless`` holds."""
    if pu <= 0 or pv <= 0:
        return
    low, high = f.span(u, v)
    for k in copies(f, low + shift - pu + 1, high + shift + pv - 1):
        # the copy of u at k I: v ends before it starts, or starts after it ends
        f.add(label, *unless, Diff(u, v, shift + pv, -k), Diff(v, u, pu - shift, k))


def _uses(p: Problem, unit: str) -> list[tuple[int, UnitUse]]:
    return [(v, use) for v, op in enumerate(p.ops) for use in op.uses if use.unit == unit]


def excluded_pairs(p: Problem) -> set[tuple[int, int]]:
    """Pairs of ops (u < v) whose whole warp occupancy is kept apart by a unit that both fill from their issue."""
    pairs: set[tuple[int, int]] = set()
    for unit, cap in p.capacity.items():
        if p.machine.units[unit].elastic:
            continue
        uses = [(v, x) for v, x in _uses(p, unit) if x.offset == 0 and x.length >= p.ops[v].issue]
        for (u, a), (v, b) in itertools.combinations(uses, 2):
            if u != v and a.amount + b.amount > cap:
                pairs.add((min(u, v), max(u, v)))
    return pairs


def capacity(p: Problem, f: Formula, *, cumulative: bool) -> None:
    """Pairs that together exceed a unit exclude one another; ``cumulative`` adds the sums over three and more."""
    for unit, cap in p.capacity.items():
        uses = _uses(p, unit)
        if p.machine.units[unit].elastic:
            if sum(x.length * x.amount for _, x in uses) > cap * f.ii:
                f.add(("capacity", unit))
            continue
        for v, use in uses:
            if use.length * use.amount > cap * f.ii:
                f.add(("capacity", f"{unit}: {p.ops[v].name}"))
        for (u, a), (v, b) in itertools.combinations(uses, 2):
            if a.amount + b.amount > cap and u != v:
                label = ("capacity", f"{unit}: {p.ops[u].name}, {p.ops[v].name}")
                apart(f, label, u, v, a.length, b.length, b.offset - a.offset)
        _packing(p, f, unit, cap, uses)
        if cumulative:
            _cumulative(p, f, unit, cap, uses)


MOST_GAPS = 24


def _packing(p: Problem, f: Formula, unit: str, cap: int, uses: list[tuple[int, UnitUse]]) -> None:
    """Where a unit is nearly full, the distance of two ops is a sum of the lengths in between, give or take the idle time.

    Implied by the pairwise exclusions, but a refutation over them alone must enumerate orders to see it.
    """
    lengths = [x.length for _, x in uses]
    idle = f.ii - sum(lengths)
    exclusive = all(2 * x.amount > cap and not x.offset for _, x in uses)
    if len(uses) < 3 or not exclusive or not 0 <= idle < min(lengths) or len({v for v, _ in uses}) < len(uses):
        return
    for (u, a), (v, _) in itertools.combinations(uses, 2):
        sums = {a.length}
        for w, x in uses:
            if w not in (u, v):
                sums |= {s + x.length for s in sums}
        ordered = sorted(sums)
        gaps = [(low + idle, high) for low, high in itertools.pairwise(ordered) if low + idle + 1 < high]
        if len(gaps) > MOST_GAPS:
            continue
        low, high = f.span(u, v)
        for gap_low, gap_high in gaps:
            # the distance modulo I is not strictly inside the gap
            for k in copies(f, low - gap_high + 1, high - gap_low - 1):
                f.add(("capacity", f"{unit} is full"), Diff(u, v, -gap_low, -k), Diff(v, u, gap_high, k))


def _cumulative(p: Problem, f: Formula, unit: str, cap: int, uses: list[tuple[int, UnitUse]]) -> None:
    for (u, a), i in zip(uses, itertools.count(), strict=False):
        terms: list[tuple[int, int]] = []
        fixed = 0
        for (v, b), j in zip(uses, itertools.count(), strict=False):
            extra = (b.length - 1) // f.ii
            if i == j:
                fixed += b.amount * (1 + extra)
                continue
            if a.amount + b.amount > cap:
                continue
            shift = a.offset - b.offset
            low, high = f.span(v, u)
            for k in copies(f, -(high + shift), b.length - 1 - (low + shift)):
                beside = f.boolean(f"run_{unit}_{j}_{i}_{k}")
                # u's use starts at M(u)+shift+kI relative to v's use: before it, after it, or beside it
                f.add(("capacity", unit), beside, Diff(v, u, 1 + shift, k), Diff(u, v, b.length - shift, -k))
                terms.append((b.amount, beside))
        f.at_most(("capacity", f"{unit}: {p.ops[u].name}"), terms, cap - fixed)


def concurrency(p: Problem, f: Formula) -> None:
    """Ops of one group do not occupy their warps at the same time.

    That a group's issue times add up to at most I follows from this, but stating it spares the solver many proofs.
    """
    for g in range(p.slots):
        terms = [(op.issue, sits(p, f, v, g)) for v, op in enumerate(p.ops) if g in slots_of(p, v)]
        f.at_most(("concurrency", f"group {g}"), terms, f.ii)
    done = excluded_pairs(p) if p.on("capacity") else set()
    for u, v in itertools.combinations(range(len(p.ops)), 2):
        a, b = p.ops[u], p.ops[v]
        if (u, v) in done or not a.issue or not b.issue:
            continue
        s = same(p, f, u, v)
        if s is None:
            continue
        unless = () if s == 0 else (-s,)
        apart(f, ("concurrency", f"{a.name}, {b.name}"), u, v, a.issue, b.issue, 0, unless)


def start_and_end(p: Problem, f: Formula, b: BufferSpec) -> tuple[int, int]:
    """Nodes for the first write and the last release of a buffer."""
    if len(b.writers) == 1:
        start = b.writers[0]
    else:
        start = f.extreme(largest=False, terms=((w, 0, 0) for w in b.writers))
        for w in b.writers:
            f.require(("memory", b.name), Diff(w, start, 0, 0))
        f.add(("memory", b.name), *(Diff(start, w, 0, 0) for w in b.writers))
    terms = []
    for r in b.readers:
        base = r.hold + r.distance * f.ii
        separate = any(same(p, f, r.op, w) is None for w in b.writers)
        terms.append((r.op, base + (r.cross if separate else 0), base + r.cross))
    terms += [(w, 1 if len(b.writers) == 1 else -(10**7), 1) for w in b.writers]
    end = f.extreme(largest=True, terms=terms)
    f.require(("memory", b.name), Diff(end, start, 1, 0))
    for r in b.readers:
        label = ("memory", b.name)
        f.require(label, Diff(end, r.op, r.hold, r.distance))
        for w in b.writers if r.cross else ():
            s = same(p, f, r.op, w)
            if s is None:
                f.require(label, Diff(end, r.op, r.hold + r.cross, r.distance))
            elif s != 0:
                f.add(label, s, Diff(end, r.op, r.hold + r.cross, r.distance))
    return start, end


def lifetimes(p: Problem, f: Formula) -> dict[str, tuple[int, int]]:
    """The start and end nodes of every buffer that lives and dies."""
    return {b.name: start_and_end(p, f, b) for b in p.buffers if not b.persistent}


def memory(p: Problem, f: Formula, nodes: dict[str, tuple[int, int]]) -> None:
    """Live buffers fit."""
    for name, size in p.memory.items():
        buffers = [b for b in p.buffers if b.memory == name]
        free = size - sum(b.size for b in buffers if b.persistent)
        moving = [b for b in buffers if not b.persistent]
        if free < sum(b.size for b in moving if not p.machine.memories[name].overlay) or any(b.size > free for b in moving) or free < 0:
            f.add(("memory", name))
            continue
        stages: dict[str, list[tuple[int, int]]] = {}
        for b in moving:
            stages[b.name] = _stage_literals(f, b, nodes[b.name], free // b.size)
        single = not any(stages.values()) and sum(b.size for b in moving) <= free
        if not p.machine.memories[name].overlay or single:
            f.at_most(("memory", name), [t for b in moving for t in stages[b.name]], free - sum(b.size for b in moving))
            continue
        for u in moving:
            terms = list(stages[u.name])
            for b in moving:
                if b is not u:
                    terms.append((b.size, _alive(f, b, nodes[b.name], nodes[u.name][0], u.name, stages[b.name])))
                    terms.extend(stages[b.name])
            f.at_most(("memory", f"{name} when {u.name} is written"), terms, free - u.size)


def _stage_literals(f: Formula, b: BufferSpec, nodes: tuple[int, int], most: int) -> list[tuple[int, int]]:
    """(size, literal) for every stage beyond the first; the lifetime never exceeds ``most`` periods."""
    start, end = nodes
    longest = f.span(start, end)[1]
    terms = []
    for k in range(1, most):
        if longest <= k * f.ii:
            break
        more = f.boolean(f"stages_{b.name}_{k + 1}")
        f.add(("memory", b.name), more, Diff(start, end, 0, -k))
        terms.append((b.size, more))
    f.add(("memory", b.name), Diff(start, end, 0, -most))
    return terms


def _alive(f: Formula, b: BufferSpec, nodes: tuple[int, int], at: int, name: str, stages: list[tuple[int, int]]) -> int:
    """Literal: buffer b is occupied when the node ``at`` happens, in some iteration."""
    start, end = nodes
    alive = f.boolean(f"alive_{b.name}_{name}")
    label = ("memory", f"{b.name} beside {name}")
    low, _ = f.span(at, start)
    _, high = f.span(at, end)
    for k in copies(f, low, high):
        f.add(label, alive, Diff(start, at, 1, k), Diff(at, end, 0, -k))
    for _, more in stages:
        f.add(label, alive, -more)
    return alive


def symmetry(p: Problem, f: Formula) -> None:
    """Of mirror images keep the one whose first sub-tile issues first."""
    for u, v in p.symmetries:
        f.require(("symmetry", f"{p.ops[u].name}, {p.ops[v].name}"), Diff(v, u, 0, 0))
