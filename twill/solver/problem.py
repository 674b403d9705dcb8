"""The solver's view of a graph, a machine and the options: indices instead of names, in cycles.

Starts, I and L are multiples of the time unit; `rounding_error` says how far that may stretch the costs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from twill.errors import UsageError
from twill.model.graph import LoopGraph, Op
from twill.model.machine import Machine
from twill.model.schedule import Options

__all__ = [
    "RULES",
    "BufferSpec",
    "EdgeSpec",
    "OpSpec",
    "Problem",
    "ReaderSpec",
    "Rule",
    "UnitUse",
    "ValueSpec",
    "make_problem",
    "rounding_error",
    "rules_in_force",
    "separating_rule",
]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the model: its name, what it says in words, and whether it is on by default."""

    name: str
    words: str
    default: bool = True


RULES: dict[str, Rule] = {
    r.name: r
    for r in (
        Rule("hand-over", "data that changes warp group pays for its barrier or its way through SMEM"),
        Rule("queueing", "a result of the tensor core may come late by one operation of another warp group, which nothing keeps behind"),
        Rule("capacity", "a functional unit of the SM serves no more than it can in any cycle"),
        Rule("memory", "live buffers fit their memory (SMEM bytes, TMEM columns)"),
        Rule("placement", "buffers have fixed addresses that do not overlap while live"),
        Rule("variable-latency", "loads of unknown latency sit on warps of their own"),
        Rule("exposed-wait", "an issuer that waits on a load does not share warps with synchronous work"),
        Rule("blocking", "a wait for another unit's result in SMEM or TMEM does not hold up synchronous work that does not need it"),
        Rule("concurrency", "a warp group executes one synchronous operation at a time"),
        Rule("register-limit", "the values that live in a warp group fit its registers per thread"),
        Rule("register-file", "all groups together fit the register file"),
        Rule("register-tiles", "a tile in registers stays in the warp group that made it"),
        Rule("warp-budget", "the block has a limited number of warps and groups"),
        Rule("local-registers", "no register data crosses warp groups", default=False),
    )
}


@dataclass(frozen=True, slots=True)
class UnitUse:
    """Hold ``amount`` of ``unit`` during [issue + offset, issue + offset + length)."""

    unit: str
    offset: int
    length: int
    amount: int


@dataclass(frozen=True, slots=True)
class OpSpec:
    """``queue`` is how long an asynchronous op keeps its queued ``unit`` busy, 0 for all other ops."""

    name: str
    unit: str
    queue: int
    span: int
    issue: int
    latency: int
    asynchronous: bool
    variable: bool
    exposed: bool
    blocks: frozenset[int]
    warps: int
    uses: tuple[UnitUse, ...]


@dataclass(frozen=True, slots=True)
class EdgeSpec:
    """``dst`` no earlier than ``src`` + (same or cross) - distance * I; latency included, op indices."""

    src: int
    dst: int
    distance: int
    same: int
    cross: int
    registers: bool
    label: str

    @property
    def cheapest(self) -> int:
        return min(self.same, self.cross)


@dataclass(frozen=True, slots=True)
class ReaderSpec:
    op: int
    hold: int
    distance: int
    cross: int


@dataclass(frozen=True, slots=True)
class BufferSpec:
    name: str
    memory: str
    size: int
    writers: tuple[int, ...]
    readers: tuple[ReaderSpec, ...]
    persistent: bool
    prefetch: bool


@dataclass(frozen=True, slots=True)
class ValueSpec:
    name: str
    producer: int
    registers: int
    readers: tuple[ReaderSpec, ...]
    persistent: bool


@dataclass(frozen=True, slots=True)
class Problem:
    """What every query is about.

    Sizes of buffers are rounded up to the alignment. ``team`` gives, for every op, the first op that must share its group;
    ``apart`` holds the pairs of teams that must not. ``order`` is what an order given from outside asks for beside the
    edges (`twill.solver.ordered`). ``paths`` keeps longest paths by I (see `twill.solver.bounds`), which copies with fewer groups share.
    """

    graph: LoopGraph
    machine: Machine
    options: Options
    unit_cycles: int
    ops: tuple[OpSpec, ...]
    edges: tuple[EdgeSpec, ...]
    buffers: tuple[BufferSpec, ...]
    values: tuple[ValueSpec, ...]
    capacity: dict[str, int]
    memory: dict[str, int]
    register_limit: int
    overhead: int
    symmetries: tuple[tuple[int, int], ...]
    rules: frozenset[str]
    team: tuple[int, ...]
    apart: frozenset[tuple[int, int]]
    order: tuple[EdgeSpec, ...] = ()
    paths: dict[tuple[int, bool], list[list[int]] | None] = field(default_factory=dict, compare=False, repr=False)

    @property
    def slots(self) -> int:
        """Groups that a schedule may use; the limit is part of the rule warp-budget."""
        return min(len(self.ops), self.options.groups if self.on("warp-budget") else len(self.ops))

    def on(self, rule: str) -> bool:
        """Whether a rule is in force."""
        return rule in self.rules

    def separated(self, u: int, v: int) -> bool:
        """Whether the rules alone forbid that two ops share a group."""
        return (self.team[u], self.team[v]) in self.apart

    def together(self, u: int, v: int) -> bool:
        """Whether the rules alone demand that two ops share a group."""
        return self.team[u] == self.team[v]


def separating_rule(ops: tuple[OpSpec, ...], rules: frozenset[str], u: int, v: int) -> str | None:
    """Which rule keeps two ops in different groups, if any."""
    a, b = ops[u], ops[v]
    if "variable-latency" in rules and a.variable != b.variable:
        return "variable-latency"
    if "exposed-wait" in rules and ((a.exposed and not b.asynchronous) or (b.exposed and not a.asynchronous)):
        return "exposed-wait"
    if "blocking" in rules and (v in a.blocks or u in b.blocks):
        return "blocking"
    return None


def _teams(n: int, values: tuple[ValueSpec, ...], edges: tuple[EdgeSpec, ...], rules: frozenset[str]) -> tuple[int, ...]:
    """The first op of the set that must share a group, for every op (rules register-tiles and local-registers)."""
    pairs: list[tuple[int, int]] = []
    if "register-tiles" in rules:
        pairs += [(v.producer, r.op) for v in values for r in v.readers]
    if "local-registers" in rules:
        pairs += [(e.src, e.dst) for e in edges if e.registers]
    team = list(range(n))

    def first(v: int) -> int:
        while team[v] != v:
            v = team[v]
        return v

    for u, v in pairs:
        a, b = sorted((first(u), first(v)))
        team[b] = a
    return tuple(first(v) for v in range(n))


def rules_in_force(options: Options) -> frozenset[str]:
    """Names of the rules that hold under the options.

    Raises
    ------
    UsageError : a name that is no rule.
    """
    for name in (*options.without, *options.with_rules):
        if name not in RULES:
            raise UsageError(f"there is no rule {name!r}", f"use one of {', '.join(sorted(RULES))}")
    for name in options.without:
        if not RULES[name].default:
            raise UsageError(f"the rule {name!r} is off anyway", "leave --without away")
    on = {r.name for r in RULES.values() if r.default} - set(options.without) | set(options.with_rules)
    return frozenset(on)


def _blocked_work(graph: LoopGraph) -> dict[str, frozenset[str]]:
    """For every op that waits for another unit: the synchronous work that does not need it (rule blocking)."""
    ops = {op.name: op for op in graph.ops}
    waiting = {e.dst for e in graph.edges if ops[e.src].asynchronous and e.kind in ("smem", "tmem") and not ops[e.dst].asynchronous}
    free = {op.name for op in graph.ops if not op.asynchronous} - waiting
    after: dict[str, set[str]] = {name: set() for name in ops}
    for e in graph.edges:
        if e.distance == 0:
            after[e.src].add(e.dst)

    def reach(name: str) -> set[str]:
        seen, stack = {name}, [name]
        while stack:
            for nxt in after[stack.pop()] - seen:
                seen.add(nxt)
                stack.append(nxt)
        return seen

    return {w: frozenset(free - reach(w)) for w in waiting}


def _queue_cycles(op: Op, machine: Machine) -> int:
    if not op.asynchronous or op.variable_latency or not machine.queued(op.unit):
        return 0
    return max((r.offset + r.cycles for r in op.reservations if r.unit == op.unit), default=0)


def make_problem(graph: LoopGraph, machine: Machine, options: Options) -> Problem:
    """Resolve names to indices and options to rules in force."""
    rules = rules_in_force(options)
    index = {op.name: i for i, op in enumerate(graph.ops)}
    variable = {op.name for op in graph.ops if op.variable_latency}
    touches = {v.producer for v in graph.values} | {r.op for v in graph.values for r in v.readers}
    waits = {e.dst for e in graph.edges if e.src in variable}
    blocks = _blocked_work(graph)
    ops = tuple(
        OpSpec(
            name=op.name, unit=op.unit, queue=_queue_cycles(op, machine), span=op.span_cycles,
            issue=op.issue_cycles, latency=op.latency_cycles,
            asynchronous=op.asynchronous, variable=op.variable_latency,
            exposed=op.asynchronous and not op.variable_latency and op.name not in touches and op.name in waits,
            blocks=frozenset(index[x] for x in blocks.get(op.name, ())), warps=op.warps,
            uses=tuple(UnitUse(r.unit, r.offset, r.cycles, r.amount) for r in op.reservations),
        )
        for op in graph.ops
    )  # fmt: skip
    hand_over = "hand-over" in rules
    edges = tuple(
        EdgeSpec(index[e.src], index[e.dst], e.distance,
                 e.latency_cycles + e.same_group_cycles,
                 e.latency_cycles + (e.cross_group_cycles if hand_over else e.same_group_cycles),
                 e.kind == "registers", e.label)
        for e in graph.edges
    )  # fmt: skip

    def aligned(size: int, memory: str) -> int:
        step = machine.memories[memory].alignment
        return -(-size // step) * step

    buffers = tuple(
        BufferSpec(b.name, b.memory, aligned(b.size, b.memory), tuple(index[w] for w in b.writers),
                   tuple(ReaderSpec(index[r.op], r.hold_cycles, r.distance, r.cross_group_cycles if hand_over else 0) for r in b.readers),
                   b.persistent, b.prefetch)
        for b in graph.buffers
    )  # fmt: skip
    values = tuple(
        ValueSpec(v.name, index[v.producer], v.registers,
                  tuple(ReaderSpec(index[r.op], r.hold_cycles, r.distance, 0) for r in v.readers), v.persistent)
        for v in graph.values
    )  # fmt: skip
    limit = int(machine.registers.per_thread_max.value)
    if options.registers is not None:
        limit = min(limit, options.registers)
    team = _teams(len(ops), values, edges, rules)
    apart = {(team[u], team[v]) for u in range(len(ops)) for v in range(len(ops)) if separating_rule(ops, rules, u, v)}
    return Problem(
        graph=graph, machine=machine, options=options, unit_cycles=options.time_unit_cycles,
        ops=ops, edges=edges, buffers=buffers, values=values,
        capacity={name: machine.capacity(name) for name in machine.units},
        memory={name: machine.memory_size(name) - graph.reserved.get(name, 0) for name in machine.memories},
        register_limit=limit // int(machine.registers.granularity.value) * int(machine.registers.granularity.value),
        overhead=int(machine.registers.overhead_per_thread.value),
        symmetries=tuple((index[a[0]], index[b[0]]) for a, b in graph.symmetries if a and b),
        rules=rules, team=team, apart=frozenset(apart),
    )  # fmt: skip


def rounding_error(problem: Problem) -> float:
    """Largest relative error of a cost through starts on the grid of time units; 0 with a unit of one cycle."""
    q = problem.unit_cycles
    costs = [c for op in problem.ops for c in (op.issue, op.latency, *(use.length for use in op.uses)) if c]
    costs += [c for e in problem.edges for c in (e.same, e.cross) if c]
    return max((-(-c // q) * q / c - 1.0 for c in costs), default=0.0)
