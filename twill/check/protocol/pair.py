"""Two blocks that share their MMAs: the program of both, made of that of one, so that hand-overs across blocks are checked like others.

The leader issues the MMAs of both. What its role waits for is one barrier, at which both blocks arrive; what its MMAs have done is said
to both, each having a barrier of its own. All other roles, barriers and buffers are there twice; those of the second block have a prime.
Form is checked on the program of one block, order on this one.
"""

from __future__ import annotations

from dataclasses import replace

from twill.check.protocol.check import check_order, check_protocol
from twill.check.protocol.report import ProtocolReport
from twill.lower.program import Access, Arrive, Barrier, Execute, Instruction, Role, Storage, Wait, WarpProgram
from twill.model.graph import LoopGraph

__all__ = ["check_pair", "paired"]

PRIME = "'"
ELSEWHERE = 1 << 40
"""Added to addresses in the second block."""


def check_pair(program: WarpProgram, graph: LoopGraph) -> ProtocolReport:
    """The check of the program of a block, then that of both blocks together."""
    alone = check_protocol(program, graph)
    return alone if not alone.ok else check_order(*paired(program, graph))


def paired(program: WarpProgram, graph: LoopGraph) -> tuple[WarpProgram, LoopGraph]:
    """Program and graph of two blocks."""
    return _Pair(program, graph).made()


class _Pair:
    def __init__(self, program: WarpProgram, graph: LoopGraph) -> None:
        self.p, self.g = program, graph
        self.shared = {op.name for op in graph.ops if op.kind.startswith("mma")}
        self.issuers = {r.name for r in program.roles for x in r.body if isinstance(x, Execute) and x.op in self.shared}
        self.gathered = {x.barrier for r in program.roles if r.name in self.issuers for x in r.body if isinstance(x, Wait)}

    def made(self) -> tuple[WarpProgram, LoopGraph]:
        roles = [self._issuing(r) if r.name in self.issuers else r for r in self.p.roles]
        roles += [self._second(r) for r in self.p.roles if r.name not in self.issuers]
        ops = {self._op(name) for name in self.p.latency_cycles}
        program = replace(
            self.p, roles=tuple(roles), storage=(*self.p.storage, *map(_second_storage, self.p.storage)), barriers=tuple(self._barriers()),
            asynchronous=self.p.asynchronous | {self._op(v) for v in self.p.asynchronous},
            latency_cycles=self.p.latency_cycles | {v: self.p.latency_cycles[v.removesuffix(PRIME)] for v in ops},
            issue_cycles=self.p.issue_cycles | {v: self.p.issue_cycles[v.removesuffix(PRIME)] for v in ops},
            redundant=(),
        )  # fmt: skip
        return program, self._graph()

    def _op(self, name: str) -> str:
        """The op of the second block: that of the leader if they share it."""
        return name if name in self.shared else name + PRIME

    def _barrier(self, name: str) -> str:
        return name if name in self.gathered else name + PRIME

    def _guard(self, label: str) -> str:
        """The label of the same dependence in the second block."""
        kind, _, rest = label.partition(" ")
        if kind == "edge":
            src, _, dst = rest.partition("->")
            op, at, distance = dst.partition("@")
            return f"edge {self._op(src)}->{self._op(op)}{at}{distance}"
        if kind == "release":
            storage, _, op = rest.partition(" by ")
            return f"release {storage}{PRIME} by {self._op(op)}"
        return label + PRIME

    def _issuing(self, role: Role) -> Role:
        body: list[Instruction] = []
        for x in role.body:
            if isinstance(x, Execute):
                body.append(replace(x, accesses=(*x.accesses, *map(_second_access, x.accesses))))
                continue
            body.append(x)
            if isinstance(x, Arrive):
                body.append(replace(x, barrier=self._barrier(x.barrier)))
        return replace(role, body=tuple(body))

    def _second(self, role: Role) -> Role:
        body: list[Instruction] = []
        for x in role.body:
            match x:
                case Execute():
                    body.append(replace(x, op=self._op(x.op), accesses=tuple(map(_second_access, x.accesses))))
                case Wait():
                    body.append(replace(x, barrier=self._barrier(x.barrier)))
                case Arrive():
                    body.append(replace(x, barrier=self._barrier(x.barrier), op=self._op(x.op) if x.op else ""))
                case _:
                    body.append(x)
        return replace(role, name=role.name + PRIME, body=tuple(body))

    def _barriers(self) -> list[Barrier]:
        found = []
        for b in self.p.barriers:
            guards = tuple(map(self._guard, b.guards))
            if b.name in self.gathered:
                both = tuple(dict.fromkeys((*b.guards, *guards)))
                found.append(replace(b, arrivals=2 * b.arrivals, tx_bytes=2 * b.tx_bytes, guards=both))
            else:
                found += [b, replace(b, name=b.name + PRIME, guards=guards)]
        return found

    def _graph(self) -> LoopGraph:
        g = self.g
        ops = [*g.ops, *(op.model_copy(update={"name": op.name + PRIME}) for op in g.ops if op.name not in self.shared)]
        edges = list(g.edges)
        for e in g.edges:
            src, dst = self._op(e.src), self._op(e.dst)
            if (src, dst) != (e.src, e.dst):
                edges.append(e.model_copy(update={"src": src, "dst": dst, "value": e.value and e.value + PRIME}))
        buffers = list(g.buffers)
        for b in g.buffers:
            readers = tuple(r.model_copy(update={"op": self._op(r.op)}) for r in b.readers)
            buffers.append(b.model_copy(update={"name": b.name + PRIME, "writers": tuple(map(self._op, b.writers)), "readers": readers}))
        return g.model_copy(update={"ops": tuple(ops), "edges": tuple(edges), "buffers": tuple(buffers), "values": (), "symmetries": ()})


def _second_access(a: Access) -> Access:
    return replace(a, storage=a.storage + PRIME)


def _second_storage(s: Storage) -> Storage:
    return replace(s, name=s.name + PRIME, offset=s.offset + ELSEWHERE)
