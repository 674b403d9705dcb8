"""The schedule under check, indexed: what every rule reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from twill.model.graph import Edge, LoopGraph, Op
from twill.model.machine import Machine
from twill.model.schedule import Options, PlacedBuffer, Schedule

__all__ = ["LEGALITY_RULES", "ON_REQUEST", "SWITCHABLE", "Facts", "ceil_div", "facts_of", "round_up"]

DEFINITIONS = ("uniqueness", "completion", "dependence")
"""Rules that say what a schedule is; they cannot be switched off."""

SWITCHABLE = (
    "hand-over", "queueing", "capacity", "memory", "placement", "variable-latency", "exposed-wait", "blocking", "concurrency",
    "register-limit", "register-file", "register-tiles", "warp-budget",
)  # fmt: skip
"""Rules that ``options.without`` may name."""

ON_REQUEST = ("local-registers",)
"""Rules that hold only if ``options.with_rules`` names them."""

LEGALITY_RULES = (*DEFINITIONS, *SWITCHABLE, *ON_REQUEST)


@dataclass(frozen=True, slots=True)
class Facts:
    """A schedule whose ops, groups and buffers match its graph one to one.

    ``start`` and ``group`` are M(v) and g(v) of ``docs/formulation.md``, ``members`` the ops of each group and
    ``placed`` the placement of each buffer. Op costs and sizes are those of the graph, never the copies in the file.
    """

    graph: LoopGraph
    machine: Machine
    options: Options
    ii: int
    length: int
    start: Mapping[str, int]
    group: Mapping[str, str]
    members: Mapping[str, tuple[str, ...]]
    ops: Mapping[str, Op]
    placed: Mapping[str, PlacedBuffer]

    def on(self, rule: str) -> bool:
        """Whether a rule is in force."""
        if rule in ON_REQUEST:
            return rule in self.options.with_rules and rule not in self.options.without
        return rule not in self.options.without

    def same(self, u: str, v: str) -> bool:
        return self.group[u] == self.group[v]

    def handover_cycles(self, edge: Edge) -> int:
        """c(e) under this assignment of groups."""
        if self.on("hand-over") and not self.same(edge.src, edge.dst):
            return edge.cross_group_cycles
        return edge.same_group_cycles

    def cheapest_cycles(self, edge: Edge) -> int:
        """The smallest c(e) under any assignment of groups (section 4)."""
        if self.on("hand-over"):
            return min(edge.same_group_cycles, edge.cross_group_cycles)
        return edge.same_group_cycles

    def capacity_of(self, memory: str) -> int:
        """Size of a memory less what the graph reserves."""
        return self.machine.memory_size(memory) - self.graph.reserved.get(memory, 0)

    def with_ii(self, ii: int) -> Facts:
        """The same starts, groups and placements at another initiation interval."""
        return replace(self, ii=ii)


def facts_of(schedule: Schedule, machine: Machine) -> Facts:
    """Index a schedule that passed `twill.check.structure`."""
    group = {op.name: op.group for op in schedule.ops}
    return Facts(
        graph=schedule.graph,
        machine=machine,
        options=schedule.options,
        ii=schedule.ii_cycles,
        length=schedule.length_cycles,
        start={op.name: op.start_cycle for op in schedule.ops},
        group=group,
        members={g.name: tuple(op.name for op in schedule.graph.ops if group[op.name] == g.name) for g in schedule.groups},
        ops={op.name: op for op in schedule.graph.ops},
        placed={b.name: b for b in schedule.buffers},
    )


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


def round_up(value: int, step: int) -> int:
    """The smallest multiple of ``step`` that is at least ``value``."""
    return ceil_div(value, step) * step
