"""Warp groups: which op sits where, and literals for "these two share a group"."""

from __future__ import annotations

import itertools

from twill.solver.encoding.formula import Formula
from twill.solver.problem import Problem

__all__ = ["local_registers", "same", "separation", "slots_of", "uniqueness", "used_literals", "warp_budget"]


def slots_of(p: Problem, v: int) -> range:
    """Group slots that op v may take: groups are numbered by their first op, so op v opens at most slot v."""
    return range(min(v + 1, p.options.groups))


def uniqueness(p: Problem, f: Formula) -> None:
    """Every op has exactly one group; a group is numbered after all groups that hold an earlier op."""
    for v, op in enumerate(p.ops):
        label = ("uniqueness", op.name)
        literals = [f.boolean(f"in_{v}_{g}") for g in slots_of(p, v)]
        f.add(label, *literals)
        for a, b in itertools.combinations(literals, 2):
            f.add(label, -a, -b)
        for g in slots_of(p, v):
            if g:
                earlier = [f.boolean(f"in_{u}_{g - 1}") for u in range(v) if g - 1 in slots_of(p, u)]
                f.add(label, -f.boolean(f"in_{v}_{g}"), *earlier)


def same(p: Problem, f: Formula, u: int, v: int) -> int | None:
    """Literal "u and v share a group"; None if the rules forbid it, 0 if it always holds (u is v, or one group)."""
    if u == v or p.options.groups == 1:
        return 0
    if p.separated(u, v):
        return None
    u, v = min(u, v), max(u, v)
    name = f"same_{u}_{v}"
    if f.has(name):
        return f.boolean(name)
    s = f.boolean(name)
    label = ("uniqueness", f"{p.ops[u].name}, {p.ops[v].name}")
    for g in slots_of(p, v):
        in_v = f.boolean(f"in_{v}_{g}")
        if g in slots_of(p, u):
            in_u = f.boolean(f"in_{u}_{g}")
            f.add(label, -in_u, -in_v, s)
            f.add(label, -s, -in_u, in_v)
            f.add(label, -s, in_u, -in_v)
        else:
            f.add(label, -s, -in_v)
    return s


def separation(p: Problem, f: Formula) -> None:
    """Rules variable-latency, exposed-wait and blocking: pairs that never share a group."""
    for u, v in itertools.combinations(range(len(p.ops)), 2):
        if p.separated(u, v):
            rule = p.separating_rule(u, v)
            for g in slots_of(p, u):
                f.add((rule, f"{p.ops[u].name}, {p.ops[v].name}"), -f.boolean(f"in_{u}_{g}"), -f.boolean(f"in_{v}_{g}"))


def local_registers(p: Problem, f: Formula) -> None:
    """Rule local-registers: register data stays in its group."""
    for e in p.edges:
        if e.registers:
            s = same(p, f, e.src, e.dst)
            if s is None:
                f.add(("local-registers", e.label))
            elif s:
                f.add(("local-registers", e.label), s)


def used_literals(p: Problem, f: Formula) -> list[int]:
    """One literal a slot: some op sits there."""
    result = []
    for g in range(p.options.groups):
        used = f.boolean(f"used_{g}")
        for v in range(len(p.ops)):
            if g in slots_of(p, v):
                f.add(("warp-budget", f"group {g}"), -f.boolean(f"in_{v}_{g}"), used)
        result.append(used)
    return result


def warp_budget(p: Problem, f: Formula) -> None:
    """Rule warp-budget: the warps of all groups fit a block; single warps come in fours."""
    budget = int(p.machine.registers.max_warps.value)
    widths = sorted({op.warps for op in p.ops})
    if sum(widths) and widths[-1] * p.options.groups <= budget:
        return
    terms: list[tuple[int, int]] = []
    for g in range(p.options.groups):
        previous = 0
        for width in widths:
            if width < 4 and widths[-1] >= 4:
                continue
            wide = f.boolean(f"warps_{g}_{width}")
            for v, op in enumerate(p.ops):
                if op.warps >= width and g in slots_of(p, v):
                    f.add(("warp-budget", f"group {g}"), -f.boolean(f"in_{v}_{g}"), wide)
            terms.append((width - previous, wide))
            previous = width
    spare = 4 if widths[0] < 4 <= widths[-1] else 0
    f.at_most(("warp-budget", "block"), terms, budget - spare)
