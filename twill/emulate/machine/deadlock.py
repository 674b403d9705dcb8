"""What to say when no warp can go on: who waits for which barrier, who else has arrived there so far, and what every barrier expects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from twill.emulate.findings import Finding
from twill.emulate.machine.barriers import MBarrier

if TYPE_CHECKING:
    from twill.emulate.machine.block import Block, Cluster
    from twill.emulate.machine.warp import Warp

__all__ = ["deadlock"]

RESERVED = 1024


def deadlock(cluster: Cluster) -> Finding:
    """The finding. Warps that are alike share a line, and so do barriers."""
    waiting = [w for w in cluster.warps if not w.done]
    lines = [
        *dict.fromkeys(_hints(cluster, waiting)), *_grouped((w, _where(w)) for w in cluster.warps), *_rings(cluster, waiting),
        *(line for block in cluster.blocks for line in _barriers(cluster, block)),
        *(f"  in flight: {o.name} of {cluster.code.place(o.line)}" for o in cluster.pending),
    ]  # fmt: skip
    first = cluster.code.first_line(waiting[0].fragments[0][0])
    return Finding("deadlock", "no warp can go on\n" + "\n".join(lines), first, "", f"block {cluster.ranks[0]}")


def _hints(cluster: Cluster, waiting: Iterable[Warp]) -> Iterator[str]:
    for w in waiting:
        for counter, _, _ in w.waits:
            if isinstance(counter, MBarrier) and (counter.pending < counter.expected or counter.bytes):
                yield f"  look at {_name(cluster, counter)}, a phase of which has begun and does not end: {counter}"


def _name(cluster: Cluster, barrier: MBarrier) -> str:
    return cluster.names.barrier(barrier.address - RESERVED)


def _where(w: Warp) -> str:
    if w.done:
        return "has ended"
    code = w.code
    at = code.first_line(w.fragments[0][0])
    known = "; ".join(x for x in (code.statement(at), code.source(at)) if x)
    reasons = "; ".join(reason for _, _, reason in w.waits) or f"is at PTX line {at}"
    return reasons + (f" ({known})" if known else "")


def _grouped(found: Iterable[tuple[Warp, str]]) -> Iterator[str]:
    """One line for warps of one role that are at one place."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for w, text in found:
        groups.setdefault((w.code.role(w.index), str(w.block.ctaid), text), []).append(w.index)
    for (role, block, text), indices in groups.items():
        span = f"warp {indices[0]}" if len(indices) == 1 else f"warps {_span(indices)}"
        yield f"  {span}{f' ({role})' if role else ''}, block {block}: {text}"


def _span(numbers: list[int]) -> str:
    whole = numbers[-1] - numbers[0] + 1 == len(numbers)
    return f"{numbers[0]}-{numbers[-1]}" if whole else ", ".join(str(n) for n in numbers)


def _rings(cluster: Cluster, waiting: list[Warp]) -> Iterator[str]:
    """For every ring that is waited for, where the arrivals came from that it has had, in all its slots."""
    wanted: dict[str, list[str]] = {}
    for w in waiting:
        for counter, _, _ in w.waits:
            if isinstance(counter, MBarrier):
                wanted.setdefault(_ring(_name(cluster, counter)), []).append(w.code.role(w.index) or f"warp {w.index}")
    for ring, who in wanted.items():
        came: dict[int, int] = {}
        for block in cluster.blocks:
            for barrier in block.barriers.values():
                if _ring(_name(cluster, barrier)) == ring:
                    for line, times in barrier.arrivals.items():
                        came[line] = came.get(line, 0) + times
        places = "; ".join(f"{times} at {cluster.code.place(line)}" for line, times in sorted(came.items()))
        yield f"  {ring} is waited for by {', '.join(dict.fromkeys(who))}; arrivals so far: {places or 'none'}"


def _ring(name: str) -> str:
    return name.partition("[")[0] if name.endswith("]") else name


def _barriers(cluster: Cluster, block: Block) -> Iterator[str]:
    """One line for slots of a ring that expect the same."""
    groups: dict[tuple[str, str], list[str]] = {}
    for _, barrier in sorted(block.barriers.items()):
        name = _name(cluster, barrier)
        groups.setdefault((_ring(name), str(barrier)), []).append(name)
    for (ring, state), names in groups.items():
        slots = [n.partition("[")[2].rstrip("]") for n in names]
        shown = names[0] if len(names) == 1 else f"{ring}[{_span([int(s) for s in slots])}]" if all(slots) else ", ".join(names)
        yield f"  {shown}: {state}"
