"""Loop graphs of any size for growth measurements, made like real ones.

`scaling_graph` unrolls the attention forward loop of one sub-tile over several tiles of keys, which is what a kernel does that wants
its buffer indices static. `wide_graph` puts more sub-tiles and more chunks of P side by side.
"""

from __future__ import annotations

from twill.model.graph import Buffer, Edge, LoopGraph, Reader, RegisterValue
from twill.model.machine import load_machine
from twill.model.registry import GraphRequest, build_graph
from twill.model.validate import validate_graph

__all__ = ["BASE_OPS", "SIZES", "scaling_graph", "unrolled", "wide_graph"]

BASE_OPS = 10
"""Operations of one tile of keys in `scaling_graph`."""

SIZES = (10, 20, 30, 40, 50, 60, 80, 100)
"""Sizes worth measuring."""


def unrolled(graph: LoopGraph, times: int) -> LoopGraph:
    """The same loop with ``times`` iterations in its body.

    Storage is split: every copy has its own buffer where the original had a ring, accumulators and resident tiles stay single.
    The symmetries are those of all copies at once.
    """

    def named(name: str, copy: int) -> str:
        return f"{name}_u{copy}" if times > 1 else name

    def later(copy: int, distance: int) -> tuple[int, int]:
        """Which copy ``distance`` iterations after ``copy`` is, and how many turns of the new loop later."""
        return (copy + distance) % times, (copy + distance) // times

    def readers(copy: int, old: tuple[Reader, ...]) -> tuple[Reader, ...]:
        result = []
        for r in old:
            to, distance = later(copy, r.distance)
            result.append(r.model_copy(update={"op": named(r.op, to), "distance": distance}))
        return tuple(result)

    copies = range(times)
    edges: list[Edge] = []
    buffers: list[Buffer] = [b for b in graph.buffers if b.persistent]
    values: list[RegisterValue] = []
    for i in copies:
        for e in graph.edges:
            to, distance = later(i, e.distance)
            edges.append(e.model_copy(update={"src": named(e.src, i), "dst": named(e.dst, to), "distance": distance}))
        buffers += [
            b.model_copy(
                update={"name": named(b.name, i), "writers": tuple(named(w, i) for w in b.writers), "readers": readers(i, b.readers)}
            )
            for b in graph.buffers
            if not b.persistent
        ]
        values += [
            v.model_copy(update={"name": named(v.name, i), "producer": named(v.producer, i), "readers": readers(i, v.readers)})
            for v in graph.values
            if not v.persistent or i == 0
        ]
    result = graph.model_copy(
        update={
            "name": f"{graph.name}_x{times}" if times > 1 else graph.name,
            "ops": tuple(op.model_copy(update={"name": named(op.name, i)}) for i in copies for op in graph.ops),
            "edges": tuple(edges),
            "buffers": tuple(buffers),
            "values": tuple(values),
            "symmetries": tuple(
                (tuple(named(n, i) for i in copies for n in a), tuple(named(n, i) for i in copies for n in b)) for a, b in graph.symmetries
            ),
        }
    )
    return LoopGraph.model_validate(result.model_dump())


def scaling_graph(ops: int, machine: str = "b200") -> LoopGraph:
    """A graph with exactly ``ops`` operations, a multiple of `BASE_OPS`: a tile of keys for every ten of them.

    Raises
    ------
    ValueError : not a multiple of `BASE_OPS`, or more than SMEM has room for (100).
    """
    if ops < BASE_OPS or ops % BASE_OPS or ops > max(SIZES):
        raise ValueError(f"{ops} operations: use a multiple of {BASE_OPS} up to {max(SIZES)}")
    of_machine = load_machine(machine)
    request = GraphRequest(head_dim=64, tile="128x64", subtiles=1, settings={"chunks": "2"})
    graph = unrolled(build_graph("attn_fwd", of_machine, request), ops // BASE_OPS)
    validate_graph(graph, of_machine)
    return graph


def wide_graph(subtiles: int, chunks: int, machine: str = "b200") -> LoopGraph:
    """``2 + subtiles * (4 + 2 * chunks)`` operations for ``subtiles`` tiles of queries; four of 64 keys just fill TMEM at head dim 64."""
    request = GraphRequest(head_dim=64, tile=f"{128 * subtiles}x64", subtiles=subtiles, settings={"chunks": str(chunks)})
    return build_graph("attn_fwd", load_machine(machine), request)
