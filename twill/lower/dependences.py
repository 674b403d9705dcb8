"""What a program must enforce so that it computes what the graph says.

A `Dependence` (u, v, d) means: u of iteration i - d is done before v of iteration i begins. A negative d looks at later
iterations of u. Within a role, a synchronous op is done when the next begins; all else is listed here:

* ``edge``: edges of the graph between roles, or from an asynchronous op;
* ``release``: who overwrites a stage of a buffer comes after everybody who reads it; ``slot``: the same for hand-over slots;
* ``registers``: an asynchronous op that reads registers is done before they are written again;
* ``overlay``: single-stage buffers that share addresses take turns;
* ``pace``: an op may not run so far ahead of its consumer that barrier phases are confused (added by `twill.lower.sync`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Literal

from twill.errors import LowerError
from twill.lower.roles import Loop
from twill.lower.storage import Slot, placed_storage, readers_of
from twill.model.graph import Buffer

__all__ = ["Dependence", "dependences", "register_copies"]


@dataclass(frozen=True, slots=True)
class Dependence:
    """u of iteration i - ``distance`` is done before v of iteration i begins; ``guarded`` is the storage that it protects.

    If ``issued``, u is done before v is even issued: an MMA in the tensor pipe behind another will not do.
    """

    label: str
    kind: Literal["edge", "release", "slot", "registers", "overlay", "pace"]
    src: str
    dst: str
    distance: int
    guarded: str = ""
    issued: bool = False


def dependences(loop: Loop, slots: Iterable[Slot]) -> tuple[Dependence, ...]:
    """Everything to be enforced by synchronization, in the order of the graph.

    Raises
    ------
    LowerError : program order contradicts an edge inside a role (ops that issue in the same cycle).
    """
    found: dict[tuple[str, str, int, str], Dependence] = {}
    for d in (*_edges(loop), *_releases(loop), *_slot_releases(loop, slots), *_registers(loop), *_overlays(loop)):
        if loop.same(d.src, d.dst):
            if not loop.ops[d.src].asynchronous:
                _follows(loop, d)
                continue
            if d.src == d.dst and loop.is_mma(d.src) and d.distance > 0:
                continue
        found.setdefault((d.src, d.dst, d.distance, d.label), d)
    return tuple(found.values())


def _follows(loop: Loop, d: Dependence) -> None:
    if loop.following(d.src, d.dst) > d.distance:
        raise LowerError(
            f"{d.label}: role {loop.role(d.src)} issues {d.dst} before {d.src} is done",
            "solve it again with the rules dependence and concurrency in force",
        )


def _edges(loop: Loop) -> Iterator[Dependence]:
    written: dict[str, list[Buffer]] = {}
    for b in loop.graph.buffers:
        for w in b.writers:
            written.setdefault(w, []).append(b)
    for e in loop.graph.edges:
        read = [b.name for b in written.get(e.src, ()) if e.kind == b.memory and any(r == e.dst for r, _ in readers_of(loop, b))]
        # an order that takes as long as the source does says when to issue; nothing travels that the destination could wait for itself
        issued = e.kind == "order" and e.latency_cycles >= loop.ops[e.src].latency_cycles
        yield Dependence(f"edge {e.label}", "edge", e.src, e.dst, e.distance, read[0] if len(read) == 1 else e.value, issued)


def _releases(loop: Loop) -> Iterator[Dependence]:
    stages = {b.name: b.stages for b in loop.schedule.buffers}
    for b in loop.graph.buffers:
        if b.persistent:
            continue
        readers = readers_of(loop, b) or tuple((w, 0) for w in b.writers)
        for reader, shift in readers:
            for writer in b.writers:
                if reader == writer:
                    continue
                yield Dependence(f"release {b.name} by {reader}", "release", reader, writer, stages[b.name] - shift, b.name)


def _slot_releases(loop: Loop, slots: Iterable[Slot]) -> Iterator[Dependence]:
    for slot in slots:
        for reader, distance in slot.readers:
            yield Dependence(
                f"slot {slot.storage.name} by {reader}", "slot", reader, slot.writer, slot.storage.stages - distance,
                slot.storage.name,
            )  # fmt: skip


def register_copies(loop: Loop) -> dict[str, int]:
    """How many copies each register value needs: ceil(life / I) over the readers in the role of its producer."""
    copies = {}
    for value in loop.graph.values:
        start = loop.start[value.producer]
        ends = [
            loop.start[r.op] + r.distance * loop.ii + r.hold_cycles for r in value.readers if loop.same(r.op, value.producer)
        ]  # fmt: skip
        ends.append(loop.done(value.producer))
        copies[value.name] = 1 if value.persistent else max(1, math.ceil((max(ends) - start) / loop.ii))
    return copies


def _registers(loop: Loop) -> Iterator[Dependence]:
    copies = register_copies(loop)
    for value in loop.graph.values:
        if value.persistent:
            continue
        for r in value.readers:
            if loop.same(r.op, value.producer) and loop.ops[r.op].asynchronous:
                label = f"registers {value.name} by {r.op}"
                yield Dependence(label, "registers", r.op, value.producer, copies[value.name] - r.distance, value.name)


def _overlays(loop: Loop) -> Iterator[Dependence]:
    placed = {s.name: s for s in placed_storage(loop)}
    single = [b for b in loop.graph.buffers if not b.persistent and placed[b.name].stages == 1 and b.writers]
    for earlier, later in permutations(single, 2):
        a, b = placed[earlier.name], placed[later.name]
        if a.memory != b.memory or a.offset + a.stride <= b.offset or b.offset + b.stride <= a.offset:
            continue
        # the occupants never meet, so the next occupation by `later` that starts after `earlier` has started comes after it
        from_, to = (min(loop.start[w] for w in x.writers) for x in (earlier, later))
        ahead = math.floor((from_ - to) / loop.ii) + 1
        readers = readers_of(loop, earlier) or tuple((w, 0) for w in earlier.writers)
        for reader, shift in readers:
            for writer in later.writers:
                if reader != writer:
                    label = f"overlay {later.name} after {earlier.name} by {reader}"
                    yield Dependence(label, "overlay", reader, writer, ahead - shift, earlier.name)
