"""Which rules of `docs/formulation.md` a problem is under, and what they say about pairs of ops before any search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

from twill.errors import UsageError
from twill.model.graph import Buffer, Edge, LoopGraph, Op
from twill.model.machine import Machine
from twill.model.schedule import Options

__all__ = ["OPT_IN", "SWITCHABLE", "Problem"]

SWITCHABLE = frozenset(
    {
        "hand-over",
        "queueing",
        "capacity",
        "memory",
        "placement",
        "variable-latency",
        "exposed-wait",
        "blocking",
        "concurrency",
        "register-limit",
        "register-file",
        "register-tiles",
        "warp-budget",
    }
)
OPT_IN = frozenset({"local-registers"})


@dataclass(frozen=True)
class Problem:
    """A loop graph on a machine under options; buffers of ``graph`` are as large as the stride of their stages.

    Raises
    ------
    UsageError : the options name a rule that does not exist or cannot be switched.
    """

    graph: LoopGraph
    machine: Machine
    options: Options
    ops: Mapping[str, Op] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        wrong = sorted(set(self.options.without) - SWITCHABLE | set(self.options.with_rules) - OPT_IN - SWITCHABLE)
        if wrong:
            raise UsageError(f"there is no rule {wrong[0]!r} to switch", f"use one of {', '.join(sorted(SWITCHABLE | OPT_IN))}")
        strided = tuple(self._as_it_counts(b) for b in self.graph.buffers)
        object.__setattr__(self, "graph", self.graph.model_copy(update={"buffers": strided}))
        object.__setattr__(self, "ops", {op.name: op for op in self.graph.ops})

    def _as_it_counts(self, b: Buffer) -> Buffer:
        """With its stride for its size, and without costs of telling another group where the rule hand-over is off."""
        step = self.machine.memories[b.memory].alignment
        readers = b.readers
        if not self.rule("hand-over"):
            readers = tuple(r.model_copy(update={"cross_group_cycles": 0}) for r in readers)
        return b.model_copy(update={"size": -(-b.size // step) * step, "readers": readers})

    def rule(self, name: str) -> bool:
        """Whether the rule is in force."""
        if name in OPT_IN:
            return name in self.options.with_rules
        return name not in self.options.without

    @property
    def unit(self) -> int:
        return self.options.time_unit_cycles

    @cached_property
    def groups(self) -> int:
        """Warp groups that a schedule may use; the option ``groups`` is part of the rule warp-budget."""
        count = len(self.graph.ops)
        return min(count, self.options.groups) if self.rule("warp-budget") else count

    def capacity(self, memory: str) -> int:
        """What buffers may use of a memory."""
        return self.machine.memory_size(memory) - self.graph.reserved.get(memory, 0)

    def cross_cycles(self, edge: Edge) -> int:
        """c(e) of an edge between different groups."""
        return edge.cross_group_cycles if self.rule("hand-over") else edge.same_group_cycles

    @cached_property
    def apart(self) -> frozenset[frozenset[str]]:
        """Pairs of ops that no schedule puts into one group."""
        pairs = set()
        for a, b in combinations(self.graph.ops, 2):
            if self.rule("variable-latency") and a.variable_latency != b.variable_latency:
                pairs.add(frozenset((a.name, b.name)))
            if self.rule("exposed-wait") and (
                (a.name in self.waiting and not b.asynchronous) or (b.name in self.waiting and not a.asynchronous)
            ):
                pairs.add(frozenset((a.name, b.name)))
        return frozenset(pairs | self._held_up)

    @cached_property
    def _held_up(self) -> set[frozenset[str]]:
        """Rule blocking: a synchronous op that waits in memory for an asynchronous one, and work that does not need it."""
        if not self.rule("blocking"):
            return set()
        edges = self.graph.edges
        synchronous = {o.name for o in self.graph.ops if not o.asynchronous}
        waits = {e.dst for e in edges if e.kind in ("smem", "tmem") and self.ops[e.src].asynchronous} & synchronous
        needs = {name: {name} for name in self.ops}
        for _ in self.ops:
            for e in edges:
                if e.distance == 0:
                    needs[e.dst] |= needs[e.src]
        return {frozenset((w, x)) for w in waits for x in synchronous - waits if w not in needs[x]}

    @cached_property
    def waiting(self) -> frozenset[str]:
        """Asynchronous ops without registers that wait for an op of variable latency."""
        touching = {v.producer for v in self.graph.values} | {r.op for v in self.graph.values for r in v.readers}
        late = {e.dst for e in self.graph.edges if self.ops[e.src].variable_latency}
        return frozenset(
            o.name for o in self.graph.ops if o.asynchronous and not o.variable_latency and o.name not in touching and o.name in late
        )

    def queue_cycles(self, name: str) -> int:
        """How long an op holds up whatever is behind it in the queue of its unit; 0 for ops that queue nowhere."""
        op = self.ops[name]
        if self.machine.queued(op.unit) and op.asynchronous and not op.variable_latency:
            return max((r.offset + r.cycles for r in op.reservations if r.unit == op.unit), default=0)
        return 0

    @cached_property
    def margin_step(self) -> int:
        figure = self.machine.costs.get("margin_step")
        return max(1, int(figure.value)) if figure else 1

    @cached_property
    def most_margin(self) -> int:
        """Larger margins do not count."""
        return max(map(self.queue_cycles, self.ops)) // self.margin_step * self.margin_step

    @cached_property
    def late(self) -> tuple[tuple[Edge, str], ...]:
        """Waits for queued ops, each with every queued op of the same unit that may come first (rule queueing)."""
        if not self.rule("queueing"):
            return ()
        queued = [name for name in self.ops if self.queue_cycles(name)]
        return tuple(
            (e, w)
            for e in self.graph.edges
            if e.src in queued and e.dst not in queued
            for w in queued
            if w != e.src and self.ops[w].unit == self.ops[e.src].unit and frozenset((w, e.src)) not in self.together
        )

    @cached_property
    def together(self) -> frozenset[frozenset[str]]:
        """Pairs of ops that register-tiles or local-registers puts into one group."""
        pairs = set()
        if self.rule("register-tiles"):
            pairs |= {frozenset((v.producer, r.op)) for v in self.graph.values for r in v.readers if v.producer != r.op}
        if self.rule("local-registers"):
            pairs |= {frozenset((e.src, e.dst)) for e in self.graph.edges if e.kind == "registers" and e.src != e.dst}
        return frozenset(pairs)

    def cheapest_cycles(self, edge: Edge) -> int:
        """The smallest c(e) that any schedule can give an edge."""
        pair = frozenset((edge.src, edge.dst))
        if len(pair) == 1 or pair in self.together:
            return edge.same_group_cycles
        if pair in self.apart:
            return self.cross_cycles(edge)
        return min(edge.same_group_cycles, self.cross_cycles(edge))
