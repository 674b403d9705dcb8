"""Rules memory and placement: how long buffers live, how many stages they need, and where they lie."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from twill.check.facts import Facts, ceil_div, round_up
from twill.check.periodic import Span, first_common_cycle, peak
from twill.check.report import Finding, finding
from twill.model.graph import Buffer

__all__ = ["lifetime", "memory", "placement", "stored_size", "stride"]


def lifetime(facts: Facts, buffer: Buffer) -> tuple[int, int]:
    """[start(b), end(b)) of a buffer that is not persistent, in cycles of the iteration that writes it."""
    start = min(facts.start[w] for w in buffer.writers)
    ends = []
    for r in buffer.readers:
        far = facts.on("hand-over") and any(not facts.same(r.op, w) for w in buffer.writers)
        ends.append(facts.start[r.op] + r.distance * facts.ii + r.hold_cycles + (r.cross_group_cycles if far else 0))
    return start, max(start + 1, *ends)


def stride(facts: Facts, buffer: Buffer) -> int:
    """From one stage to the next: the size rounded up to the alignment of the memory."""
    return round_up(buffer.size, facts.machine.memories[buffer.memory].alignment)


def stored_size(facts: Facts, buffer: Buffer) -> int:
    """n(b) stride(b): all stages."""
    return facts.placed[buffer.name].stages * stride(facts, buffer)


def memory(facts: Facts) -> Iterator[Finding]:
    """Every buffer has the stages that its lifetime needs, and every memory holds its buffers."""
    yield from _stages(facts)
    for name, description in facts.machine.memories.items():
        buffers = [b for b in facts.graph.buffers if b.memory == name]
        yield from (_overlaid if description.overlay else _side_by_side)(facts, name, buffers)


def _stages(facts: Facts) -> Iterator[Finding]:
    for buffer in facts.graph.buffers:
        have = facts.placed[buffer.name].stages
        if buffer.persistent:
            if have != 1:
                yield finding("memory", buffer.name, None, f"is persistent and has {have} stages; exactly 1 needed")
            continue
        start, end = lifetime(facts, buffer)
        need = max(1, ceil_div(end - start, facts.ii))
        if have < need:
            text = f"lives until {end}, {end - start} cycles; at initiation interval {facts.ii} that needs {need} stages, it has {have}"
            yield finding("memory", buffer.name, start, text)


def _side_by_side(facts: Facts, name: str, buffers: list[Buffer]) -> Iterator[Finding]:
    total = sum(stored_size(facts, b) for b in buffers)
    have = facts.capacity_of(name)
    if total > have:
        parts = ", ".join(f"{b.name} {stored_size(facts, b)}" for b in buffers)
        yield finding("memory", name, None, f"its buffers need {total} ({parts}), it has {have}")


def _occupied(facts: Facts, buffer: Buffer) -> Span:
    """When and how much a buffer occupies of a memory that overlays."""
    size = stored_size(facts, buffer)
    if buffer.persistent or facts.placed[buffer.name].stages > 1:
        return Span(buffer.name, 0, facts.ii, size)
    start, end = lifetime(facts, buffer)
    return Span(buffer.name, start, max(0, min(end - start, facts.ii)), size)


def _overlaid(facts: Facts, name: str, buffers: list[Buffer]) -> Iterator[Finding]:
    top = peak([_occupied(facts, b) for b in buffers], facts.ii)
    have = facts.capacity_of(name)
    if top.amount > have:
        text = f"of the period the buffers {', '.join(top.owners)} occupy {top.amount} of {name}, which has {have}"
        yield finding("memory", top.beginners[0], top.cycle, text)


def placement(facts: Facts) -> Iterator[Finding]:
    """Offsets are aligned and in bounds; buffers share addresses only where they may, and never in one cycle."""
    for buffer in facts.graph.buffers:
        placed = facts.placed[buffer.name]
        alignment = facts.machine.memories[buffer.memory].alignment
        if placed.offset % alignment:
            text = f"lies at {placed.offset} of {buffer.memory}, which is not a multiple of the alignment {alignment}"
            yield finding("placement", buffer.name, None, text)
        (begin, end), have = _range(facts, buffer), facts.capacity_of(buffer.memory)
        if end > have:
            yield finding("placement", buffer.name, None, f"lies in [{begin}, {end}) of {buffer.memory}, which ends at {have}")
    for a, b in combinations(facts.graph.buffers, 2):
        if a.memory == b.memory and _addresses_meet(facts, a, b):
            yield from _shared(facts, a, b)


def _range(facts: Facts, buffer: Buffer) -> tuple[int, int]:
    offset = facts.placed[buffer.name].offset
    return offset, offset + stored_size(facts, buffer)


def _addresses_meet(facts: Facts, a: Buffer, b: Buffer) -> bool:
    (a_begin, a_end), (b_begin, b_end) = _range(facts, a), _range(facts, b)
    return a_begin < b_end and b_begin < a_end


def _shared(facts: Facts, a: Buffer, b: Buffer) -> Iterator[Finding]:
    (a_begin, a_end), (b_begin, b_end) = _range(facts, a), _range(facts, b)
    what = f"{a.name} [{a_begin}, {a_end}) and {b.name} [{b_begin}, {b_end}) share addresses of {a.memory}"
    if not facts.machine.memories[a.memory].overlay:
        yield finding("placement", a.name, None, f"{what}, which does not overlay")
        return
    for buffer in (a, b):
        stages = facts.placed[buffer.name].stages
        if buffer.persistent or stages > 1:
            why = "is persistent" if buffer.persistent else f"has {stages} stages, of at most 1 allowed"
            yield finding("placement", a.name, None, f"{what}, but {buffer.name} {why}")
            return
    cycle = first_common_cycle(_occupied(facts, a), _occupied(facts, b), facts.ii)
    if cycle is not None:
        yield finding("placement", a.name, cycle, f"of the period both live: {what}")
