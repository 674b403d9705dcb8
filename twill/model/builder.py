"""Build a loop graph for a machine, operation by operation.

>>> b = GraphBuilder("axpy_tile", load_machine("h200"))
>>> b.load("LX", "X", 16384)
>>> b.compute("F", "fma", work=(Work("fma", 8192),))
>>> b.read("LX", "F", "X", hold_cycles=b.issue_cycles("F"))
>>> graph = b.finish()

Every cost comes from the machine description; the builder adds the contention of the loop as a whole
(`finish`) and refuses graphs that make no sense.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from twill.errors import GraphError
from twill.model.costs import ComputeCost, Work, compute_cost, mma_cost, register_handover, tma_load_cycles, tma_store_cycles
from twill.model.graph import Buffer, Edge, LoopGraph, Op, Reader, RegisterValue, Reservation
from twill.model.machine import Machine
from twill.model.validate import validate_graph

__all__ = ["GraphBuilder"]

EdgeKind = Literal["registers", "smem", "tmem", "order"]


class GraphBuilder:
    """Collects ops, edges, buffers and register values, then freezes them into a `LoopGraph`."""

    def __init__(self, name: str, machine: Machine, parameters: dict[str, int | float | str] | None = None) -> None:
        self.machine = machine
        self._name = name
        self._parameters = dict(parameters or {})
        self._ops: dict[str, Op] = {}
        self._edges: list[Edge] = []
        self._buffers: dict[str, Buffer] = {}
        self._values: dict[str, RegisterValue] = {}
        self._symmetries: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        self._reserved: dict[str, int] = {}
        self._notes: list[str] = []
        self._fma_cycles = 0.0
        self._bulk_bytes = 0.0

    # operations

    def add(self, op: Op) -> Op:
        """Add an op with costs of the caller's own.

        Raises
        ------
        GraphError : there is an op of that name.
        """
        _new("op", op.name, self._ops)
        self._ops[op.name] = op
        return op

    def load(self, name: str, buffer: str, size_bytes: int, *, row_bytes: int = 0, ctas: int = 1) -> Op:
        """A TMA load of ``size_bytes`` into a stage of the SMEM ring ``buffer``.

        ``row_bytes`` more arrive with it in reserved SMEM (row statistics). A second load into the same buffer fills
        it again in the same iteration: order it after the readers of the first. The fill is not charged to the SMEM
        port: beside wgmma neither slows the other (see the machine files).
        """
        issue = int(self.machine.cost("tma_issue"))
        latency = tma_load_cycles(self.machine, size_bytes + row_bytes)
        if ctas > 1:
            latency += int(self.machine.cost("handover_cluster") - self.machine.cost("handover_mbarrier"))
        op = Op(
            name=name, kind="tma_load", unit="tma", latency_cycles=latency, issue_cycles=issue,
            asynchronous=True, variable_latency=True, warps=1,
            reservations=(Reservation(unit="tma", cycles=issue, amount=100),),
        )  # fmt: skip
        old = self._buffers.get(buffer)
        if old is None:
            self._buffers[buffer] = Buffer(name=buffer, memory="smem", size=size_bytes, writers=(name,), prefetch=True)
        else:
            again = {"size": max(old.size, size_bytes), "writers": (*old.writers, name), "prefetch": False}
            self._buffers[buffer] = old.model_copy(update=again)
        return self.add(op)

    def bulk(self, name: str, kind: str, size_bytes: int, *, latency_cycles: int | None = None, port_bytes: float | None = None) -> Op:
        """An asynchronous bulk copy or reduction out of SMEM, of known latency, issued by one warp.

        ``port_bytes`` (default: all of it, once) pass through the SMEM port in the background, spread over the MMAs
        of the loop: `finish` slows down those that leave no room for them.
        """
        issue = int(self.machine.cost("tma_issue"))
        self._bulk_bytes += size_bytes if port_bytes is None else port_bytes
        return self.add(
            Op(
                name=name, kind=kind, unit="tma", issue_cycles=issue, asynchronous=True, warps=1,
                latency_cycles=tma_store_cycles(self.machine, size_bytes) if latency_cycles is None else latency_cycles,
                reservations=(Reservation(unit="tma", cycles=issue, amount=100),),
            )
        )  # fmt: skip

    def mma(self, name: str, kind: str, m: int, n: int, k: int, *, smem_operands: str, ctas: int = 1,
            subtile: int | None = None, chunk: int | None = None) -> Op:  # fmt: skip
        """An asynchronous tile MMA of m x n x k elements."""
        cost = mma_cost(self.machine, m, n, k, smem_operands=smem_operands, ctas=ctas)
        return self.add(
            Op(
                name=name, kind=kind, unit="tensor", latency_cycles=cost.latency_cycles, issue_cycles=cost.issue_cycles,
                asynchronous=True, warps=self.machine.mma_warps, subtile=subtile, chunk=chunk,
                reservations=(
                    Reservation(unit="tensor", cycles=cost.occupancy_cycles, amount=100),
                    Reservation(unit="smem", cycles=cost.occupancy_cycles, amount=cost.smem_bytes_per_cycle),
                ),
            )
        )  # fmt: skip

    def compute(self, name: str, kind: str, *, work: tuple[Work, ...], unit: str = "alu", warps: int = 4,
                floor_cycles: float = 0.0, extra_cycles: float = 0.0, extra: tuple[Reservation, ...] = (),
                ports: Mapping[str, float] | None = None, subtile: int | None = None, chunk: int | None = None) -> Op:  # fmt: skip
        """A synchronous operation of one warpgroup: pipe work, then ``extra_cycles`` of latency that hides nothing.

        ``ports`` gives what it takes of memory ports in all, spread evenly over its duration: bytes of ``smem``,
        percent cycles of ``tmem``.
        """
        cost: ComputeCost = compute_cost(self.machine, work, floor_cycles=floor_cycles)
        self._fma_cycles += cost.fma_cycles
        cycles = cost.cycles + math.ceil(extra_cycles)
        spread = tuple(
            Reservation(unit=port, cycles=cycles, amount=math.ceil(total / cycles)) for port, total in (ports or {}).items() if total
        )
        return self.add(
            Op(name=name, kind=kind, unit=unit, latency_cycles=cycles, issue_cycles=cycles, warps=warps,
               reservations=cost.reservations + extra + spread, subtile=subtile, chunk=chunk)
        )  # fmt: skip

    def issue_cycles(self, op: str) -> int:
        return self._ops[op].issue_cycles

    def latency_cycles(self, op: str) -> int:
        return self._ops[op].latency_cycles

    def occupancy_cycles(self, op: str) -> int:
        """Cycles for which the op holds its own unit."""
        own = [r.offset + r.cycles for r in self._ops[op].reservations if r.unit == self._ops[op].unit]
        return max(own, default=self._ops[op].issue_cycles)

    # dependences

    def edge(self, src: str, dst: str, kind: EdgeKind, *, value: str = "", distance: int = 0,
             size_bytes: float = 0.0, latency_cycles: int | None = None) -> Edge:  # fmt: skip
        """``dst`` waits for the result of ``src``; hand-over costs follow from what travels and who made it.

        Register data crosses groups through SMEM (``size_bytes``); results of asynchronous ops are seen through an
        mbarrier on the issuing group too; everything else crosses by an mbarrier.
        """
        op = self._ops[src]
        mbarrier = int(self.machine.cost("handover_mbarrier"))
        same = 0
        if op.variable_latency:
            same = mbarrier
        elif op.asynchronous and op.unit == "tensor":
            same = int(self.machine.cost("mma_completion_same_group"))
        cross = register_handover(self.machine, size_bytes) if kind == "registers" else mbarrier
        result = Edge(src=src, dst=dst, kind=kind, value=value, distance=distance,
                      latency_cycles=op.latency_cycles if latency_cycles is None else latency_cycles,
                      same_group_cycles=same, cross_group_cycles=max(same, cross))  # fmt: skip
        self._edges.append(result)
        return result

    def order(self, src: str, dst: str, *, latency_cycles: int = 0, distance: int = 0) -> None:
        """``dst`` issues after ``src``; nothing travels. In another group it must be told so."""
        cross = int(self.machine.cost("handover_mbarrier"))
        self._edges.append(Edge(src=src, dst=dst, kind="order", distance=distance, latency_cycles=latency_cycles, cross_group_cycles=cross))

    # storage

    def buffer(self, name: str, memory: str, size: int, *, writers: tuple[str, ...] = (), persistent: bool = False) -> None:
        """A buffer of ``size`` bytes (SMEM) or columns (TMEM)."""
        _new("buffer", name, self._buffers)
        self._buffers[name] = Buffer(name=name, memory=memory, size=size, writers=writers, persistent=persistent)

    def release(self, buffer: str, op: str, *, hold_cycles: int, distance: int = 0) -> None:
        """``op`` reads ``buffer`` until ``hold_cycles`` after its issue; another group learns of it by an mbarrier."""
        old = self._buffers[buffer]
        reader = Reader(op=op, hold_cycles=hold_cycles, distance=distance,
                        cross_group_cycles=int(self.machine.cost("handover_mbarrier")))  # fmt: skip
        self._buffers[buffer] = old.model_copy(update={"readers": (*old.readers, reader)})

    def read(self, src: str, dst: str, buffer: str, *, hold_cycles: int, distance: int = 0, kind: EdgeKind = "smem") -> None:
        """``dst`` reads what ``src`` wrote into ``buffer``: a dependence and a release in one."""
        self.edge(src, dst, kind, value=buffer, distance=distance)
        self.release(buffer, dst, hold_cycles=hold_cycles, distance=distance)

    def value(self, name: str, producer: str, registers: int, *, persistent: bool = False) -> None:
        """A value of ``registers`` per thread in the group of ``producer``."""
        _new("register value", name, self._values)
        self._values[name] = RegisterValue(name=name, producer=producer, registers=registers, persistent=persistent)

    def use(self, value: str, op: str, *, hold_cycles: int | None = None, distance: int = 0, size_bytes: float = 0.0) -> None:
        """``op`` uses a register value; the value stays until ``hold_cycles`` (default: the op's own) after issue."""
        old = self._values[value]
        self.edge(old.producer, op, "registers", value=value, distance=distance, size_bytes=size_bytes)
        hold = self._ops[op].issue_cycles if hold_cycles is None else hold_cycles
        reader = Reader(op=op, hold_cycles=hold, distance=distance)
        self._values[value] = old.model_copy(update={"readers": (*old.readers, reader)})

    def hold(self, value: str, op: str, *, distance: int = 0) -> None:
        """``op`` works on a register value in place; whoever must wait for whom is said by other edges."""
        old = self._values[value]
        reader = Reader(op=op, hold_cycles=self._ops[op].issue_cycles, distance=distance)
        self._values[value] = old.model_copy(update={"readers": (*old.readers, reader)})

    def reserve(self, memory: str, size: int) -> None:
        """Keep ``size`` of a memory for barriers, padding and statistics."""
        self._reserved[memory] = self._reserved.get(memory, 0) + size

    def symmetric(self, first: tuple[str, ...], second: tuple[str, ...]) -> None:
        """Swapping these ops pairwise leaves the graph unchanged (checked by `finish`)."""
        self._symmetries.append((first, second))

    def record(self, name: str, value: int | float | str) -> None:
        """Record a parameter that was chosen while building."""
        self._parameters[name] = value

    def note(self, text: str) -> None:
        """Record an assumption behind the costs."""
        self._notes.append(text)

    def finish(self) -> LoopGraph:
        """Charge the contention of the loop as a whole, validate and freeze.

        Raises
        ------
        GraphError : the graph makes no sense.
        """
        ops = self._contended(tuple(self._ops.values()))
        graph = LoopGraph(
            name=self._name, machine=self.machine.name, parameters=self._parameters, ops=ops,
            edges=tuple(self._edges), buffers=tuple(self._buffers.values()), values=tuple(self._values.values()),
            symmetries=tuple(self._symmetries), reserved=self._reserved, notes=tuple(self._notes),
        )  # fmt: skip
        validate_graph(graph, self.machine)
        return graph

    def _contended(self, ops: tuple[Op, ...]) -> tuple[Op, ...]:
        """Lengthen the MMAs by what the rest of the loop takes from them.

        FMA work steals tensor-core cycles of all MMAs alike. Bulk copies are spread evenly over the MMAs and pass
        through the SMEM port first: an MMA whose operands would need the rest of the port and more lasts longer.
        """
        total = sum(r.cycles for op in ops for r in op.reservations if r.unit == "tensor")
        stolen = self.machine.cost("mma_stolen_by_fma") * self._fma_cycles
        if not total or not (stolen or self._bulk_bytes):
            return ops
        stretch = 1.0 + stolen / total
        bulk = self._bulk_bytes / (total * stretch)
        if stolen:
            self.note(f"MMAs stretched by {stretch:.3f}: {self._fma_cycles:.0f} saturated FMA cycles an iteration beside them")
        if bulk:
            self.note(f"bulk copies take {bulk:.1f} bytes/clk of the SMEM port while MMAs run")
        longer: dict[str, int] = {}
        result = []
        for op in ops:
            own = next((r for r in op.reservations if r.unit == "tensor"), None)
            if own is None:
                result.append(op)
                continue
            port = self.machine.capacity("smem") if bulk else 0
            rate = next((r.amount for r in op.reservations if r.unit == "smem"), 0)
            cycles = math.ceil(own.cycles * max(stretch, (rate + bulk) / port if port else 0.0))
            longer[op.name] = cycles - own.cycles
            reservations = []
            for r in op.reservations:
                if r.cycles == own.cycles:
                    update = {"cycles": cycles}
                    if r.unit == "smem" and bulk:
                        update["amount"] = min(port, math.ceil(r.amount * own.cycles / cycles + bulk))
                    reservations.append(r.model_copy(update=update))
                else:
                    reservations.append(r)
            latency = op.latency_cycles + longer[op.name]
            result.append(op.model_copy(update={"latency_cycles": latency, "reservations": tuple(reservations)}))
        self._edges = [
            e.model_copy(update={"latency_cycles": e.latency_cycles + longer[e.src]}) if longer.get(e.src) and e.latency_cycles else e
            for e in self._edges
        ]
        for buffer in self._buffers.values():
            self._buffers[buffer.name] = buffer.model_copy(update={"readers": _held_longer(buffer.readers, longer)})
        for value in self._values.values():
            self._values[value.name] = value.model_copy(update={"readers": _held_longer(value.readers, longer)})
        return tuple(result)


def _new(kind: str, name: str, known: Mapping[str, object]) -> None:
    if name in known:
        raise GraphError(f"two {kind}s are called {name!r}", "give each its own name")


def _held_longer(readers: tuple[Reader, ...], longer: dict[str, int]) -> tuple[Reader, ...]:
    return tuple(
        r.model_copy(update={"hold_cycles": r.hold_cycles + longer[r.op]}) if longer.get(r.op) and r.hold_cycles else r for r in readers
    )
