"""The program under check beside its graph, indexed: what every rule reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from twill.lower.program import Access, Arrive, Barrier, Execute, Instruction, Role, Storage, Wait, WaitOwn, WarpProgram
from twill.model.graph import Edge, LoopGraph, Op, Reader

__all__ = ["ProtocolFacts", "Site", "edge_label", "facts_of", "is_mma", "mma_positions", "release_label"]


@dataclass(frozen=True, slots=True)
class Site:
    """Instruction number ``position`` of a role."""

    role: Role
    position: int

    @property
    def instruction(self) -> Instruction:
        return self.role.body[self.position]

    @property
    def key(self) -> tuple[str, int]:
        return self.role.name, self.position


@dataclass(frozen=True, slots=True)
class ProtocolFacts:
    """A WarpProgram and the graph that it is to carry out.

    ``site`` says where each op is executed (its first place); ``guards`` which barriers or waits claim to enforce a label.
    """

    program: WarpProgram
    graph: LoopGraph
    ops: Mapping[str, Op]
    site: Mapping[str, Site]
    barriers: Mapping[str, Barrier]
    storage: Mapping[str, Storage]
    guards: Mapping[str, tuple[str, ...]]

    def role(self, op: str) -> str:
        """Name of the role that executes an op."""
        return self.site[op].role.name

    def declared(self, op: str) -> tuple[Access, ...]:
        """What the program says that an op touches."""
        x = self.site[op].instruction
        return x.accesses if isinstance(x, Execute) else ()

    def accesses(self, op: str) -> tuple[Access, ...]:
        """What an op touches: what the program says, and what follows from the graph's edges that name a storage."""
        implied = [Access(e.value, "write") for e in self.graph.edges if e.src == op and self._travels(e)]
        implied += [Access(e.value, "read", -e.distance) for e in self.graph.edges if e.dst == op and self._travels(e)]
        return tuple(dict.fromkeys((*self.declared(op), *implied)))

    def _travels(self, edge: Edge) -> bool:
        """Whether an edge means the storage that its value is named after; the program may have it travel through another one."""
        if edge.value not in self.storage or edge.kind != self.storage[edge.value].memory:
            return False
        written = {a.storage for a in self.declared(edge.src) if a.mode == "write"}
        common = written & {a.storage for a in self.declared(edge.dst)}
        return not common or edge.value in common

    def sites(self) -> Iterator[Site]:
        """Every instruction of every role."""
        for role in self.program.roles:
            for position in range(len(role.body)):
                yield Site(role, position)

    def arrivals(self, barrier: str) -> Iterator[tuple[Site, Arrive]]:
        for site in self.sites():
            x = site.instruction
            if isinstance(x, Arrive) and x.barrier == barrier:
                yield site, x

    def waits(self, barrier: str) -> Iterator[tuple[Site, Wait]]:
        for site in self.sites():
            x = site.instruction
            if isinstance(x, Wait) and x.barrier == barrier:
                yield site, x

    def guardians(self, label: str) -> str:
        """The barriers that claim to enforce a dependence, for messages."""
        return ", ".join(self.guards.get(label, ()))

    def arriving(self, barrier: Barrier) -> str:
        """The roles that ought to arrive on a barrier, by what it guards."""
        return self._listed([u for label in barrier.guards for u in self._ends(label)[0]])

    def waiting(self, barrier: Barrier) -> str:
        """The roles that ought to wait for a barrier, by what it guards."""
        return self._listed([v for label in barrier.guards for v in self._ends(label)[1]])

    def _listed(self, ops: list[str]) -> str:
        return ", ".join(dict.fromkeys(self.role(x) for x in ops if x in self.site))

    def _ends(self, label: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The ops that a dependence leads from and to, by its label."""
        kind, _, rest = label.partition(" ")
        if kind == "release":
            storage, _, op = rest.partition(" by ")
            return (op,), next((b.writers for b in self.graph.buffers if b.name == storage), ())
        src, _, dst = rest.partition("->")
        return (src,), (dst.partition("@")[0],)

    def labels(self) -> dict[str, Edge | tuple[str, Reader]]:
        """Every dependence that a barrier can guard, by label."""
        result: dict[str, Edge | tuple[str, Reader]] = {edge_label(e): e for e in self.graph.edges}
        for b in self.graph.buffers:
            result.update({release_label(b.name, r.op): (b.name, r) for r in b.readers})
        return result


def edge_label(edge: Edge) -> str:
    """The label of an edge among the guards of a barrier."""
    return f"edge {edge.label}"


def release_label(storage: str, op: str) -> str:
    """The label of "``op`` is done with ``storage``, which may be written again"."""
    return f"release {storage} by {op}"


def is_mma(op: Op) -> bool:
    """Whether an op is one of the asynchronous MMA groups that a role issues and that complete in the order of issue."""
    return op.asynchronous and op.kind.startswith("mma")


def mma_positions(facts: ProtocolFacts, role: Role) -> list[int]:
    """Where a role issues MMA groups."""
    return [p for p, x in enumerate(role.body) if isinstance(x, Execute) and x.op in facts.ops and is_mma(facts.ops[x.op])]


def facts_of(program: WarpProgram, graph: LoopGraph) -> ProtocolFacts:
    """Index a program; it need not be well formed."""
    ops = {op.name: op for op in graph.ops}
    site: dict[str, Site] = {}
    for role in program.roles:
        for position, x in enumerate(role.body):
            if isinstance(x, Execute):
                site.setdefault(x.op, Site(role, position))
    guards: dict[str, tuple[str, ...]] = {}
    for b in program.barriers:
        for label in b.guards:
            guards[label] = (*guards.get(label, ()), b.name)
    for role in program.roles:
        for x in role.body:
            for label in x.guards if isinstance(x, WaitOwn) else ():
                guards[label] = (*guards.get(label, ()), f"(wait for own MMAs of {role.name})")
    return ProtocolFacts(
        program, graph, ops, site, {b.name: b for b in program.barriers}, {s.name: s for s in program.storage}, guards
    )  # fmt: skip
