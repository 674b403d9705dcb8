"""Rules about who executes what: variable-latency, exposed-wait, blocking, concurrency, warp-budget,
register-tiles, local-registers."""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx

from twill.check.facts import Facts, round_up
from twill.check.report import Finding, finding

__all__ = [
    "WARPGROUP", "blocking", "concurrency", "exposed_wait", "group_warps", "local_registers", "register_tiles", "sharing_warps",
    "variable_latency", "warp_budget",
]  # fmt: skip

WARPGROUP = 4
"""Warps that request registers together."""


def group_warps(facts: Facts) -> dict[str, int]:
    """W(g): the largest ``warps`` of the ops of each group (0 for an empty one)."""
    return {group: max((facts.ops[v].warps for v in members), default=0) for group, members in facts.members.items()}


def sharing_warps(facts: Facts) -> int:
    """s: warps of the groups that share warpgroups because their size is no multiple of 4."""
    return sum(w for w in group_warps(facts).values() if w % WARPGROUP)


def variable_latency(facts: Facts) -> Iterator[Finding]:
    """A group with a variable-latency op has no others; the fewer of the two sorts are reported."""
    for group, members in facts.members.items():
        variable = [v for v in members if facts.ops[v].variable_latency]
        fixed = [v for v in members if not facts.ops[v].variable_latency]
        if not variable or not fixed:
            continue
        blamed, other = (variable, fixed) if len(variable) < len(fixed) else (fixed, variable)
        sort = "variable" if blamed is variable else "fixed"
        for v in blamed:
            text = f"of {sort} latency shares group {group} with {', '.join(other)}; variable-latency ops need a group of their own"
            yield finding("variable-latency", v, facts.start[v], text)


def exposed_wait(facts: Facts) -> Iterator[Finding]:
    """An asynchronous op that waits for a variable-latency op, and touches no registers, has no synchronous op beside it."""
    graph = facts.graph
    touching = {v.producer for v in graph.values} | {r.op for v in graph.values for r in v.readers}
    waits_for = {e.dst: e.src for e in graph.edges if facts.ops[e.src].variable_latency}
    for op in graph.ops:
        if not op.asynchronous or op.variable_latency or op.name in touching or op.name not in waits_for:
            continue
        group = facts.group[op.name]
        beside = [v for v in facts.members[group] if not facts.ops[v].asynchronous]
        if beside:
            text = f"waits for {waits_for[op.name]}, of variable latency, in group {group} beside the synchronous {', '.join(beside)}"
            yield finding("exposed-wait", op.name, facts.start[op.name], text)


def blocking(facts: Facts) -> Iterator[Finding]:
    """A synchronous op that waits in memory for an asynchronous one holds up no synchronous op that does not need its result."""
    edges = facts.graph.edges
    waiting = {e.dst for e in edges if e.kind in ("smem", "tmem") and facts.ops[e.src].asynchronous and not facts.ops[e.dst].asynchronous}
    inside = nx.DiGraph()
    inside.add_nodes_from(facts.ops)
    inside.add_edges_from((e.src, e.dst) for e in edges if e.distance == 0)
    for group, members in facts.members.items():
        needing = {w: nx.descendants(inside, w) for w in members if w in waiting}
        for x in members:
            held_up_by = [w for w in needing if x not in needing[w]]
            if not facts.ops[x].asynchronous and x not in waiting and held_up_by:
                text = f"is held up in group {group} by {', '.join(held_up_by)}, waiting for an asynchronous op that {x} does not need"
                yield finding("blocking", x, facts.start[x], text)


def concurrency(facts: Facts) -> Iterator[Finding]:
    """A group issues one op at a time, modulo I, and no more than I cycles in all."""
    for group, members in facts.members.items():
        total = sum(facts.ops[v].issue_cycles for v in members)
        if total > facts.ii:
            text = f"its ops issue for {total} cycles in all; the initiation interval is {facts.ii}"
            yield finding("concurrency", group, None, text)
        busy = sorted((facts.start[v] % facts.ii, v) for v in members if facts.ops[v].issue_cycles)
        if len(busy) < 2:
            continue
        for (at, v), (next_at, w) in zip(busy, [*busy[1:], busy[0]], strict=True):
            gap = (next_at - at) % facts.ii
            if gap < facts.ops[v].issue_cycles:
                text = f"of the period group {group} is still issuing {v} (from {at}, {facts.ops[v].issue_cycles} cycles; {gap} until {w})"
                yield finding("concurrency", w, next_at, text)


def warp_budget(facts: Facts) -> Iterator[Finding]:
    """Warps, with shared warpgroups filled up, are at most ``max_warps``; groups at most the option ``groups``."""
    warps = group_warps(facts)
    shared = sharing_warps(facts)
    total = sum(w for w in warps.values() if w % WARPGROUP == 0) + round_up(shared, WARPGROUP)
    have = int(facts.machine.registers.max_warps.value)
    if total > have:
        yield finding("warp-budget", "groups", None, f"{total} warps needed ({shared} of them in shared warpgroups); {have} is the most")
    if len(warps) > facts.options.groups:
        yield finding("warp-budget", "groups", None, f"{len(warps)} groups; the option allows {facts.options.groups}")


def local_registers(facts: Facts) -> Iterator[Finding]:
    """No register data crosses groups."""
    for edge in facts.graph.edges:
        if edge.kind == "registers" and not facts.same(edge.src, edge.dst):
            text = f"{edge.label} carries registers from group {facts.group[edge.src]} to group {facts.group[edge.dst]}; none may cross"
            yield finding("local-registers", edge.dst, facts.start[edge.dst], text)


def register_tiles(facts: Facts) -> Iterator[Finding]:
    """Register values are read in the group that made them."""
    for value in facts.graph.values:
        for r in value.readers:
            if not facts.same(value.producer, r.op):
                text = f"reads {value.name} in group {facts.group[r.op]}; it lives in the registers of group {facts.group[value.producer]}"
                yield finding("register-tiles", r.op, facts.start[r.op], text)
