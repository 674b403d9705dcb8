"""Turn a candidate into a schedule file."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import PackageNotFoundError, version

from twill.model.graph import canonical_hash
from twill.model.schedule import (
    Group,
    Handover,
    MachineRef,
    PlacedBuffer,
    Proof,
    ProofStep,
    Provenance,
    Rank,
    Schedule,
    ScheduledOp,
    with_hash,
)
from twill.solver.bounds import critical_path
from twill.solver.candidate import (
    Candidate,
    cross_edges,
    group_needs,
    group_warps,
    lifetime,
    margin,
    place,
    rank_key,
    spare_stages,
)
from twill.solver.problem import Problem
from twill.solver.queues import most_margin, step_cycles
from twill.solver.search import Found

__all__ = ["make_schedule", "model_hash", "twill_version"]

GROUP_NAMES = {
    "exp2": "softmax",
    "row_max": "softmax",
    "rescale": "rescale",
    "tma_load": "load",
}
"""What a group is called after the kind of its longest synchronous op; other kinds stand for themselves."""


def twill_version() -> str:
    """Version of the installed package."""
    try:
        return version("twill-gpu")
    except PackageNotFoundError:
        return "unpackaged"


def model_hash(p: Problem) -> str:
    """Hash of everything that decides what is legal: graph, machine and options."""
    return canonical_hash([m.model_dump(mode="json") for m in (p.graph, p.machine, p.options)])


def _group_names(p: Problem, c: Candidate) -> dict[int, str]:
    """A telling name for each group: load, mma, or after its longest synchronous op and sub-tile."""
    base: dict[int, str] = {}
    for g, members in c.members().items():
        ops = [p.graph.ops[v] for v in members]
        working = [op for op in ops if not op.asynchronous]
        if all(op.variable_latency for op in ops):
            base[g] = "load"
        elif not working:
            base[g] = "mma" if any(op.unit == "tensor" for op in ops) else ops[0].kind
        else:
            longest = max(working, key=lambda op: op.issue_cycles)
            name = GROUP_NAMES.get(longest.kind, longest.kind)
            subtiles = {op.subtile for op in ops if op.subtile is not None}
            base[g] = f"{name}_{chr(97 + next(iter(subtiles)))}" if len(subtiles) == 1 else name
    counts = Counter(base.values())
    seen: Counter[str] = Counter()
    names = {}
    for g in sorted(base):
        seen[base[g]] += 1
        names[g] = f"{base[g]}{seen[base[g]]}" if counts[base[g]] > 1 else base[g]
    return names


def _slack(p: Problem, c: Candidate, stages: dict[str, int]) -> int:
    slacks = []
    for b in p.buffers:
        if b.prefetch and not b.persistent:
            start, end = lifetime(p, c, b)
            slacks.append(stages[b.name] * c.ii - (end - start))
    return min(slacks, default=0)


def _step(value: int, floor: int, refuted: bool, unit: int, bound: str) -> ProofStep:
    """The proof record of one objective; ``value`` and ``floor`` in cycles."""
    if value > floor:
        return ProofStep(value_cycles=value, by="none", gap_cycles=value - floor)
    if refuted:
        return ProofStep(value_cycles=value, by="refutation", refuted_cycles=value - unit)
    return ProofStep(value_cycles=value, by="lower-bound", bound=bound)


def _margin_step(p: Problem, c: Candidate, found: Found) -> ProofStep:
    value = margin(p, c)
    if value == most_margin(p):
        return ProofStep(value_cycles=value, by="lower-bound", bound="queue")
    if value < found.margin_ceiling:
        return ProofStep(value_cycles=value, by="none", gap_cycles=found.margin_ceiling - value)
    return ProofStep(value_cycles=value, by="refutation", refuted_cycles=value + step_cycles(p))


def _buffers(p: Problem, c: Candidate, stages: dict[str, int]) -> tuple[PlacedBuffer, ...]:
    offsets: dict[str, int] = {}
    for memory in p.memory:
        placed = place(p, c, memory, stages)
        if placed is None:
            # possible only with the rule placement switched off: one after the other
            at = 0
            placed = {}
            for b in (b for b in p.buffers if b.memory == memory):
                placed[b.name] = at
                at += b.size * stages[b.name]
        offsets |= placed
    return tuple(
        PlacedBuffer(name=b.name, memory=b.memory, offset=offsets[b.name], size=b.size, stages=stages[b.name]) for b in p.graph.buffers
    )


def make_schedule(p: Problem, found: Found, c: Candidate, *, solver_version: str, seed: int,
                  queries: int, command: str) -> Schedule:  # fmt: skip
    """The schedule file for one candidate of a search."""
    q = p.unit_cycles
    names, needs, warps = _group_names(p, c), group_needs(p, c), group_warps(p, c)
    stages = spare_stages(p, c)
    rank = rank_key(p, c)
    optimal = (found.ii_floor * q, found.margin_ceiling, found.length_floor * q) == (c.ii, margin(p, c), c.length(p))
    groups = tuple(
        Group(name=names[g], warps=warps[g], registers_per_thread=needs[g],
              ops=tuple(p.ops[v].name for v in sorted(members, key=lambda v: (c.starts[v] % c.ii, v))))
        for g, members in sorted(c.members().items())
    )  # fmt: skip
    hand_over = p.on("hand-over")
    handovers = tuple(
        Handover(edge=e.label, kind=e.kind, cost_cycles=e.cross_group_cycles if hand_over else e.same_group_cycles)
        for e in (p.graph.edges[k] for k in cross_edges(p, c))
    )
    work: dict[str, int] = dict.fromkeys(p.machine.units, 0)
    for op in p.graph.ops:
        for r in op.reservations:
            work[r.unit] += r.cycles * r.amount
    schedule = Schedule(
        status="optimal" if optimal else "feasible",
        graph=p.graph,
        machine=MachineRef(name=p.machine.name, arch=p.machine.arch, target=p.machine.target,
                           hash=canonical_hash(p.machine.model_dump(mode="json"))),
        options=p.options,
        ii_cycles=c.ii,
        margin_cycles=margin(p, c),
        length_cycles=c.length(p),
        lower_bounds_cycles=dict(found.bounds.values),
        groups=groups,
        ops=tuple(
            ScheduledOp(name=op.name, unit=op.unit, start_cycle=c.starts[v], stage=c.starts[v] // c.ii, group=names[c.groups[v]])
            for v, op in enumerate(p.graph.ops)
        ),
        buffers=_buffers(p, c, stages),
        handovers=handovers,
        rank=Rank(groups=rank[0], held_up=rank[1], handovers=rank[2], waits=rank[3], register_peak=rank[4],
                  slack_cycles=_slack(p, c, stages)),
        proof=Proof(
            ii=_step(c.ii, found.ii_floor * q, -(-found.bounds.best // q) * q < c.ii, q, found.bounds.binding),
            margin=_margin_step(p, c, found),
            length=_step(c.length(p), found.length_floor * q, critical_path(p, c.ii, plain=True) < c.length(p), q, "critical-path"),
            rank_proved=found.rank_proved and optimal,
            model_hash=model_hash(p), solver="z3", solver_version=solver_version, seed=seed, queries=queries,
        ),
        utilization={unit: round(total / (p.capacity[unit] * c.ii), 4) for unit, total in work.items()},
        provenance=Provenance(twill=twill_version(), command=command),
    )  # fmt: skip
    return with_hash(schedule)
