"""Refuse loop graphs that make no sense on a machine, before anybody spends time on solving them."""

from __future__ import annotations

from collections import Counter
from graphlib import CycleError, TopologicalSorter

from twill.errors import GraphError
from twill.model.graph import Edge, LoopGraph, Reader
from twill.model.machine import Machine

__all__ = ["validate_graph"]


def validate_graph(graph: LoopGraph, machine: Machine) -> None:
    """Check a graph against itself and against a machine.

    Raises
    ------
    GraphError : costed for another machine, duplicate or dangling names, units or memories that the machine lacks,
        more of a unit than there is, cycles of zero distance, synchronous ops that are busy for less than their latency, or declared
        symmetries that are none.
    """
    if graph.machine != machine.name:
        raise GraphError(
            f"graph {graph.name!r} was costed for machine {graph.machine!r}, not for {machine.name!r}",
            f"build it for {machine.name}, or use {graph.machine}",
        )
    _check_names(graph)
    _check_units(graph, machine)
    _check_storage(graph, machine)
    _check_cycles(graph)
    for first, second in graph.symmetries:
        _check_symmetry(graph, first, second)


def _unique(kind: str, names: list[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise GraphError(f"{count} {kind} are called {name!r}", "give each its own name")


def _check_names(graph: LoopGraph) -> None:
    _unique("ops", [op.name for op in graph.ops])
    _unique("buffers", [b.name for b in graph.buffers])
    _unique("register values", [v.name for v in graph.values])
    known = {op.name for op in graph.ops}

    def need(name: str, where: str) -> None:
        if name not in known:
            raise GraphError(f"{where} names the op {name!r}, which does not exist", f"use one of {', '.join(sorted(known)[:12])}")

    for edge in graph.edges:
        need(edge.src, f"edge {edge.label}")
        need(edge.dst, f"edge {edge.label}")
    for buffer in graph.buffers:
        for name in (*buffer.writers, *(r.op for r in buffer.readers)):
            need(name, f"buffer {buffer.name}")
    for value in graph.values:
        for name in (value.producer, *(r.op for r in value.readers)):
            need(name, f"register value {value.name}")
    for pair in graph.symmetries:
        for name in (*pair[0], *pair[1]):
            need(name, "a symmetry")


def _check_units(graph: LoopGraph, machine: Machine) -> None:
    for op in graph.ops:
        for r in op.reservations:
            if r.unit not in machine.units:
                raise GraphError(
                    f"op {op.name} reserves {r.unit!r}, a unit that {machine.name} does not have",
                    f"use one of {', '.join(machine.units)}, or a machine that has it",
                )
            if r.amount > machine.capacity(r.unit):
                raise GraphError(
                    f"op {op.name} reserves {r.amount} of {r.unit}, of which {machine.name} has {machine.capacity(r.unit)}",
                    "split the op, or reserve less for longer",
                )
        if not op.asynchronous and op.issue_cycles < op.latency_cycles:
            raise GraphError(
                f"op {op.name} is synchronous but its warps are busy for {op.issue_cycles} of {op.latency_cycles} cycles",
                "make it asynchronous, or set issue_cycles to its latency",
            )
        if op.warps != 1 and op.warps % 4:
            raise GraphError(f"op {op.name} needs {op.warps} warps", "use 1, or a multiple of 4: a warpgroup has four warps")
        if op.span_cycles == 0:
            raise GraphError(f"op {op.name} takes no time at all", "give it a latency or a reservation")


def _check_storage(graph: LoopGraph, machine: Machine) -> None:
    for buffer in graph.buffers:
        if buffer.memory not in machine.memories:
            raise GraphError(
                f"buffer {buffer.name} lies in {buffer.memory!r}, a memory that {machine.name} does not have",
                f"use one of {', '.join(machine.memories)}",
            )
        if not buffer.persistent and not (buffer.writers and buffer.readers):
            raise GraphError(f"buffer {buffer.name} is never written or never read", "mark it persistent, or name its writers and readers")
    for memory in graph.reserved:
        if memory not in machine.memories:
            raise GraphError(f"the graph reserves {memory!r}, a memory that {machine.name} does not have", "remove it")


def _check_cycles(graph: LoopGraph) -> None:
    inside: TopologicalSorter[str] = TopologicalSorter()
    for e in graph.edges:
        if e.distance == 0:
            inside.add(e.dst, e.src)
    try:
        inside.prepare()
        return
    except CycleError as error:
        path = " -> ".join(error.args[1])
    raise GraphError(
        f"the ops {path} wait for one another within one iteration",
        "one of these edges must have distance >= 1: a loop-carried value comes from an earlier iteration",
    )


def _check_symmetry(graph: LoopGraph, first: tuple[str, ...], second: tuple[str, ...]) -> None:
    if len(first) != len(second) or len({*first, *second}) != 2 * len(first):
        raise GraphError(f"the symmetry {first} / {second} does not pair ops off", "list each op once, in matching order")
    swap = {**dict(zip(first, second, strict=True)), **dict(zip(second, first, strict=True))}

    def name(op: str) -> str:
        return swap.get(op, op)

    def edge(e: Edge) -> tuple[object, ...]:
        return (name(e.src), name(e.dst), e.kind, e.distance, e.latency_cycles, e.same_group_cycles, e.cross_group_cycles)

    def readers(rs: tuple[Reader, ...]) -> tuple[object, ...]:
        return tuple(sorted((name(r.op), r.hold_cycles, r.distance, r.cross_group_cycles) for r in rs))

    def plain(rs: tuple[Reader, ...]) -> tuple[object, ...]:
        return tuple(sorted((r.op, r.hold_cycles, r.distance, r.cross_group_cycles) for r in rs))

    ignore = {"name", "subtile", "chunk"}
    ops = {op.name: op.model_dump(exclude=ignore) for op in graph.ops}
    same = all(ops[a] == ops[b] for a, b in zip(first, second, strict=True))
    same &= Counter(edge(e) for e in graph.edges) == Counter(
        (e.src, e.dst, e.kind, e.distance, e.latency_cycles, e.same_group_cycles, e.cross_group_cycles) for e in graph.edges
    )
    same &= Counter(
        (b.memory, b.size, b.persistent, b.prefetch, tuple(sorted(map(name, b.writers))), readers(b.readers)) for b in graph.buffers
    ) == Counter((b.memory, b.size, b.persistent, b.prefetch, tuple(sorted(b.writers)), plain(b.readers)) for b in graph.buffers)
    same &= Counter((name(v.producer), v.registers, v.persistent, readers(v.readers)) for v in graph.values) == Counter(
        (v.producer, v.registers, v.persistent, plain(v.readers)) for v in graph.values
    )
    if not same:
        raise GraphError(
            f"swapping {', '.join(first)} with {', '.join(second)} changes the graph", "remove the symmetry, or make the two halves alike"
        )
