"""Rule placement inside the formula: fixed addresses for buffers that share an overlaying memory.

Only written down once a schedule came out whose buffers fit in every cycle but have no fixed addresses
(circular-arc colouring), since live ranges that fit almost always can be placed.
"""

from __future__ import annotations

import itertools

from twill.solver.encoding.families import copies
from twill.solver.encoding.formula import ORIGIN, Diff, Formula
from twill.solver.problem import BufferSpec, Problem

__all__ = ["placement"]


def placement(p: Problem, f: Formula, nodes: dict[str, tuple[int, int]]) -> None:
    """Address ranges of buffers that are occupied at the same time do not meet. Offsets count alignment steps."""
    for name in p.memory:
        memory = p.machine.memories[name]
        buffers = [b for b in p.buffers if b.memory == name]
        if not memory.overlay:
            if not p.on("memory") and sum(b.size for b in buffers) > p.memory[name]:
                f.add(("placement", name))
            continue
        step = memory.alignment
        room = p.memory[name] // step
        offset: dict[str, int] = {}
        for b in buffers:
            offset[b.name] = f.address(f"{name}:{b.name}", room)
            f.require(("placement", b.name), f.steps(offset[b.name], ORIGIN, 0))
            for count, more in _stage_counts(f, b, nodes, room * step // b.size):
                f.add(("placement", b.name), *more, f.steps(ORIGIN, offset[b.name], count * (b.size // step) - room))
        for b, c in itertools.combinations(buffers, 2):
            label = ("placement", f"{b.name}, {c.name}")
            meet = _meet(p, f, b, c, nodes)
            unless = () if meet is None else (-meet,)
            below, above = f.boolean(f"below_{b.name}_{c.name}"), f.boolean(f"below_{c.name}_{b.name}")
            f.add(label, *unless, below, above)
            for low, high, literal in ((b, c, below), (c, b, above)):
                for count, more in _stage_counts(f, low, nodes, room * step // low.size):
                    f.add(label, -literal, *more, f.steps(offset[high.name], offset[low.name], count * (low.size // step)))


def _stage_counts(f: Formula, b: BufferSpec, nodes: dict[str, tuple[int, int]], most: int) -> list[tuple[int, tuple[int, ...]]]:
    """(stages, literals of which one holds if the buffer has fewer stages)."""
    result: list[tuple[int, tuple[int, ...]]] = [(1, ())]
    if b.name in nodes:
        known = (k for k in range(2, most + 1) if f.has(f"stages_{b.name}_{k}"))
        result += [(k, (-f.boolean(f"stages_{b.name}_{k}"),)) for k in known]
    return result


def _meet(p: Problem, f: Formula, b: BufferSpec, c: BufferSpec, nodes: dict[str, tuple[int, int]]) -> int | None:
    """Literal "b and c are occupied at the same time"; None if they always are."""
    if b.persistent or c.persistent:
        return None
    meet = f.boolean(f"meet_{b.name}_{c.name}")
    label = ("placement", f"{b.name}, {c.name}")
    for x in (b, c):
        if f.has(f"stages_{x.name}_2"):
            f.add(label, meet, -f.boolean(f"stages_{x.name}_2"))
    (start_b, end_b), (start_c, end_c) = nodes[b.name], nodes[c.name]
    low, _ = f.span(end_c, start_b)
    _, high = f.span(start_c, end_b)
    for k in copies(f, -high, -low):
        # b's copy at kI ends before c starts, or starts after c ends
        f.add(label, meet, Diff(start_c, end_b, 0, k), Diff(start_b, end_c, 0, -k))
    return meet
