"""Warp groups: which op sits where, and literals for "these two share a group"."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from twill.solver.encoding.formula import Formula
from twill.solver.problem import Problem, separating_rule

__all__ = ["Widths", "same", "separation", "sits", "slots_of", "teams", "uniqueness", "used_literals", "warp_budget", "widths"]


def slots_of(p: Problem, v: int) -> range:
    """Group slots that op v may take: groups are numbered by their first op, so op v opens at most slot v."""
    return range(min(p.team[v] + 1, p.slots))


def sits(p: Problem, f: Formula, v: int, g: int) -> int:
    """Literal "op v sits in slot g", one for all ops that must share a group."""
    return f.boolean(f"in_{p.team[v]}_{g}")


def teams(p: Problem) -> list[int]:
    """The first op of every set of ops that must share a group."""
    return sorted(set(p.team))


def uniqueness(p: Problem, f: Formula) -> None:
    """Every op has exactly one group; a group is numbered after all groups that hold an earlier op."""
    for v in teams(p):
        label = ("uniqueness", p.ops[v].name)
        literals = [sits(p, f, v, g) for g in slots_of(p, v)]
        f.add(label, *literals)
        for a, b in itertools.combinations(literals, 2):
            f.add(label, -a, -b)
        for g in slots_of(p, v):
            if g:
                earlier = [sits(p, f, u, g - 1) for u in teams(p) if u < v and g - 1 in slots_of(p, u)]
                f.add(label, -sits(p, f, v, g), *earlier)


def same(p: Problem, f: Formula, u: int, v: int) -> int | None:
    """Literal "u and v share a group"; None if the rules forbid it, 0 if it always holds."""
    if p.separated(u, v):
        return None
    u, v = sorted((p.team[u], p.team[v]))
    if u == v or p.slots == 1:
        return 0
    name = f"same_{u}_{v}"
    if f.has(name):
        return f.boolean(name)
    s = f.boolean(name)
    label = ("uniqueness", f"{p.ops[u].name}, {p.ops[v].name}")
    for g in slots_of(p, v):
        in_v = sits(p, f, v, g)
        if g in slots_of(p, u):
            in_u = sits(p, f, u, g)
            f.add(label, -in_u, -in_v, s)
            f.add(label, -s, -in_u, in_v)
            f.add(label, -s, in_u, -in_v)
        else:
            f.add(label, -s, -in_v)
    return s


def separation(p: Problem, f: Formula) -> None:
    """Rules variable-latency, exposed-wait and blocking, and an order given from outside: pairs that never share a group."""
    seen = set()
    for u, v in itertools.combinations(range(len(p.ops)), 2):
        rule = separating_rule(p.ops, p.rules, u, v)
        if rule is None and p.order and p.separated(u, v):
            rule = "uniqueness"
        pair = (p.team[u], p.team[v])
        if rule is None or pair in seen:
            continue
        seen |= {pair, pair[::-1]}
        label = (rule, f"{p.ops[u].name}, {p.ops[v].name}")
        for g in set(slots_of(p, u)) & set(slots_of(p, v)):
            f.add(label, -sits(p, f, u, g), -sits(p, f, v, g))


def used_literals(p: Problem, f: Formula) -> list[int]:
    """One literal a slot: some op sits there."""
    result = []
    for g in range(p.slots):
        used = f.boolean(f"used_{g}")
        for v in range(len(p.ops)):
            if p.team[v] == v and g in slots_of(p, v):
                f.add(("warp-budget", f"group {g}"), -sits(p, f, v, g), used)
        result.append(used)
    return result


@dataclass(frozen=True, slots=True)
class Widths:
    """How many warps the slots have.

    ``wide[g][w]``: slot g has at least w warps (w a multiple of 4); ``thin[g]``: slot g is of single warps;
    ``blocks[k]``: single warps fill more than k warpgroups.
    """

    wide: list[dict[int, int]]
    thin: list[int]
    blocks: list[int]


def widths(p: Problem, f: Formula, rule: str) -> Widths:
    """Literals for the warps of every slot, with their definitions under the label of the rule that needs them."""
    sizes = sorted({op.warps for op in p.ops if op.warps >= 4})
    result = Widths([], [], [])
    for g in range(p.slots):
        wide = {size: f.boolean(f"{rule}_wide_{g}_{size}") for size in sizes}
        thin = f.boolean(f"{rule}_thin_{g}")
        label = (rule, f"group {g}")
        for v, op in enumerate(p.ops):
            if g not in slots_of(p, v):
                continue
            for size in sizes:
                if op.warps >= size:
                    f.add(label, -sits(p, f, v, g), wide[size])
            if op.warps < 4:
                f.add(label, -sits(p, f, v, g), thin, *([wide[sizes[0]]] if sizes else []))
        result.wide.append(wide)
        result.thin.append(thin)
    for k in range(-(-p.slots // 4)):
        block = f.boolean(f"{rule}_block_{k}")
        f.at_most((rule, "single warps"), [*((1, t) for t in result.thin), (p.slots, -block)], 4 * k + p.slots)
        result.blocks.append(block)
    return result


def warp_budget(p: Problem, f: Formula) -> None:
    """Rule warp-budget: the warps of all groups fit a block; single warps come in fours."""
    budget = int(p.machine.registers.max_warps.value)
    if max(max(op.warps for op in p.ops), 4) * p.slots <= budget:
        return
    w = widths(p, f, "warp-budget")
    terms = [(4, block) for block in w.blocks]
    for wide in w.wide:
        previous = 0
        for size, literal in wide.items():
            terms.append((size - previous, literal))
            previous = size
    f.at_most(("warp-budget", "block"), terms, budget)
