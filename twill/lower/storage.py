"""Storage of the program: the buffers of the schedule, and SMEM slots for register data that changes role.

Row statistics travel between roles through SMEM that the graph keeps free (``graph.reserved``): `BARRIER_BYTES` for barriers
first, hand-over slots behind them. A slot holds one 4-byte word for each thread of the producing role, or all registers of
the value if it is one that the graph knows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from twill.errors import LowerError
from twill.lower.program import Access, Storage
from twill.lower.roles import Loop
from twill.model.graph import Buffer, Edge

__all__ = ["BARRIER_BYTES", "Slot", "accesses", "handover_slots", "placed_storage", "readers_of"]

BARRIER_BYTES = 1024
WORD_BYTES = 4
THREADS_PER_WARP = 32


@dataclass(frozen=True, slots=True)
class Slot:
    """A hand-over slot: ``writer`` fills it; each reader, with the distance of its edge, takes a copy."""

    storage: Storage
    writer: str
    readers: tuple[tuple[str, int], ...]


def placed_storage(loop: Loop) -> tuple[Storage, ...]:
    """The buffers of the schedule, in its order."""
    persistent = {b.name: b.persistent for b in loop.graph.buffers}
    found = []
    for b in loop.schedule.buffers:
        alignment = loop.machine.memories[b.memory].alignment
        stride = math.ceil(b.size / alignment) * alignment
        found.append(Storage(b.name, b.memory, b.offset, stride, b.stages, persistent[b.name]))
    return tuple(found)


def readers_of(loop: Loop, buffer: Buffer) -> tuple[tuple[str, int], ...]:
    """(op, distance) of everybody who reads a buffer: its declared readers, and ops that an edge from a writer brings it to by name.

    Graphs declare only readers that may be the last; the first of two chunked MMAs reads V as well.
    """
    declared = tuple((r.op, r.distance) for r in buffer.readers)
    named = (
        (e.dst, e.distance)
        for e in loop.graph.edges
        if e.src in buffer.writers and e.kind == buffer.memory and e.value == buffer.name and not _declared(loop, e)
    )
    return tuple(dict.fromkeys((*declared, *named)))


def _declared(loop: Loop, edge: Edge) -> bool:
    """Whether some buffer says that it brings what the edge carries, under whatever name."""
    buffers = (b for b in loop.graph.buffers if b.memory == edge.kind and edge.src in b.writers)
    return any(r.op == edge.dst for b in buffers for r in b.readers)


def handover_slots(loop: Loop) -> tuple[Slot, ...]:
    """A slot for every register value or statistic that is read outside the role that makes it.

    It lives from the issue of its writer until its last reader is done: ceil(life / I) stages.

    Raises
    ------
    LowerError : the reserved SMEM cannot hold the slots, or an asynchronous op would have to fill one.
    """
    crossing: dict[tuple[str, str], dict[tuple[str, int], int]] = {}
    for e in loop.graph.edges:
        if e.kind != "registers" or loop.same(e.src, e.dst):
            continue
        if loop.ops[e.src].asynchronous:
            raise LowerError(
                f"{e.label} carries registers of the asynchronous {e.src} from role {loop.role(e.src)} to role {loop.role(e.dst)}",
                "solve it with the rule register-tiles in force",
            )
        crossing.setdefault((e.src, e.value or e.src), {})[e.dst, e.distance] = e.cross_group_cycles
    registers = {v.name: v.registers for v in loop.graph.values}
    reserved = loop.graph.reserved.get("smem", 0)
    base = loop.machine.memory_size("smem") - reserved
    offset = base + BARRIER_BYTES
    taken: set[str] = {b.name for b in loop.schedule.buffers}
    found = []
    for (writer, value), readers in crossing.items():
        end = max(loop.start[v] + d * loop.ii + loop.ops[v].issue_cycles + c for (v, d), c in readers.items())
        stages = max(1, math.ceil((end - loop.start[writer]) / loop.ii))
        stride = WORD_BYTES * registers.get(value, 1) * THREADS_PER_WARP * loop.warps[loop.role(writer)]
        name = value if value not in taken else f"{value}_of_{writer}"
        taken.add(name)
        found.append(Slot(Storage(name, "smem", offset, stride, stages, False), writer, tuple(readers)))
        offset += stages * stride
    if found and offset > base + reserved:
        raise LowerError(
            f"hand-over slots {', '.join(s.storage.name for s in found)} and barriers need {offset - base} bytes of SMEM; "
            f"graph {loop.graph.name} reserves {reserved}",
            "reserve more in the graph, or solve it with --with local-registers",
        )
    return tuple(found)


def accesses(loop: Loop, slots: tuple[Slot, ...]) -> dict[str, tuple[Access, ...]]:
    """What every op touches. A persistent buffer is touched by the ends of the edges that carry its name."""
    found: dict[str, dict[Access, None]] = {v: {} for v in loop.ops}
    for b in loop.graph.buffers:
        for reader, distance in readers_of(loop, b):
            found[reader][Access(b.name, "read", -distance)] = None
        for w in b.writers:
            found[w][Access(b.name, "write")] = None
    kept = {b.name: b.memory for b in loop.graph.buffers if b.persistent}
    for e in loop.graph.edges:
        if e.value in kept and e.kind == kept[e.value]:
            found[e.src][Access(e.value, "write")] = None
            found[e.dst][Access(e.value, "read")] = None
    for slot in slots:
        found[slot.writer][Access(slot.storage.name, "write")] = None
        for reader, distance in slot.readers:
            found[reader][Access(slot.storage.name, "read", -distance)] = None
    return {v: tuple(sorted(a, key=lambda x: (x.mode, x.storage, x.shift))) for v, a in found.items()}
