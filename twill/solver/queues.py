"""Results of a queued unit: who waits for them, what may be ahead in the queue, and how late they may be.

The quantities are defined in ``docs/formulation.md`` (rule queueing, and margin in section 3).
"""

from __future__ import annotations

from collections.abc import Iterator

from twill.solver.problem import EdgeSpec, Problem

__all__ = ["held_up_pairs", "most_margin", "rivals", "step_cycles", "waiting"]


def waiting(p: Problem) -> Iterator[EdgeSpec]:
    """Edges from a queued op to one that is not queued."""
    return (e for e in p.edges if p.ops[e.src].queue and not p.ops[e.dst].queue)


def rivals(p: Problem, u: int) -> Iterator[int]:
    """Queued ops of the unit of u that may sit in another group than u."""
    for w, op in enumerate(p.ops):
        if op.queue and op.unit == p.ops[u].unit and not p.together(u, w):
            yield w


def held_up_pairs(p: Problem) -> Iterator[tuple[int, int]]:
    """(v, x): v waits for a result of a queued unit; x waits for none and does not need v, but is held up behind v in one group."""
    waits = {e.dst for e in waiting(p) if not p.ops[e.dst].asynchronous}
    free = [x for x, op in enumerate(p.ops) if not op.asynchronous and x not in waits]
    after: dict[int, set[int]] = {}
    for e in p.edges:
        if e.distance == 0:
            after.setdefault(e.src, set()).add(e.dst)
    for v in sorted(waits):
        needs, stack = {v}, [v]
        while stack:
            for y in after.get(stack.pop(), set()) - needs:
                needs.add(y)
                stack.append(y)
        yield from ((v, x) for x in free if x not in needs and not p.separated(v, x))


def step_cycles(p: Problem) -> int:
    """Margins count in whole steps."""
    return max(1, int(p.machine.cost("margin_step"))) if "margin_step" in p.machine.costs else 1


def most_margin(p: Problem) -> int:
    """Where the margin stops to count, and what it is without the rule queueing: one more op of the longest kind ahead of every result."""
    return max(op.queue for op in p.ops) // step_cycles(p) * step_cycles(p)
