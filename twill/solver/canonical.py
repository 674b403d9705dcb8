"""From a model to the choices that it made, and to the best schedules under these choices.

A model satisfies, in every clause, some literal. Keeping one satisfied literal a clause leaves a system of
difference constraints. Its latest solution is unique: late starts mean short live ranges, and the result does not
depend on which numbers the solver happened to pick. The same system says how small I or L may get without
another choice, which saves most of a bisection.
"""

from __future__ import annotations

from twill.solver.encoding.formula import ORIGIN, Clause, Diff, Formula

__all__ = ["choices", "latest", "shortened", "shortest", "smallest_ii"]

UNBOUNDED = 10**12


def choices(f: Formula, values: dict[str, int]) -> list[Diff]:
    """One satisfied difference atom of every clause that no Boolean satisfies."""
    times = [values.get(f"t{i}", 0) * f.unit for i in range(f.nodes)]

    def margin(d: Diff) -> int:
        a = 0 if d.a == ORIGIN else times[d.a]
        b = 0 if d.b == ORIGIN else times[d.b]
        return a - b - f.bound(d)

    def choice(clause: Clause) -> Diff | None:
        atoms = []
        for x in clause.literals:
            if isinstance(x, Diff):
                atoms.append(x)
            elif (values.get(f"b{abs(x)}", 0) == 1) == (x > 0):
                return None
        return max(atoms, key=margin)

    return [d for d in map(choice, f.clauses) if d is not None]


def _relax(nodes: int, kept: list[Diff], ii: int, unit: int) -> list[int] | None:
    """Latest times under the atoms, or None if they contradict one another at this I."""
    edges: dict[tuple[int, int], int] = {}
    for d in kept:
        bound = -(-(d.c0 + d.c1 * ii) // unit) * unit
        key = (d.a, d.b)
        edges[key] = max(edges.get(key, -UNBOUNDED), bound)
    times = [UNBOUNDED] * nodes
    for _ in range(nodes + 2):
        changed = False
        for (a, b), bound in edges.items():
            limit = (0 if a == ORIGIN else times[a]) - bound
            if b == ORIGIN:
                if limit < 0:
                    return None
            elif limit < times[b]:
                times[b] = limit
                changed = True
        if not changed:
            return times
    return None


def latest(f: Formula, kept: list[Diff]) -> tuple[int, ...]:
    """Latest start of every op, shifted so that the first op starts at 0."""
    times = _relax(f.nodes, kept, f.ii, f.unit)
    assert times is not None, "a model contradicts its own choices"
    starts = times[: f.ops]
    first = min(starts)
    return tuple(t - first for t in starts)


def _ends(f: Formula, d: Diff) -> bool:
    """Whether an atom says that an op is over by the horizon."""
    return d.a == ORIGIN and d.c1 == 0 and 0 <= d.b < f.ops


def shortened(f: Formula, kept: list[Diff], spans: list[int]) -> tuple[int, ...]:
    """Latest starts under the atoms with L as small as they allow."""
    length = shortest(f, kept, spans)
    return latest(f, [d._replace(c0=spans[d.b] - length) if _ends(f, d) else d for d in kept])


def smallest_ii(f: Formula, kept: list[Diff], floor: int) -> int:
    """Smallest I that the choices allow, no less than ``floor``.

    The I's that a system allows form an interval, so bisection below the model's own I finds its end.
    """
    low, high = -(-floor // f.unit), f.ii // f.unit
    while low < high:
        middle = (low + high) // 2
        if _relax(f.nodes, kept, middle * f.unit, f.unit) is None:
            low = middle + 1
        else:
            high = middle
    return high * f.unit


def shortest(f: Formula, kept: list[Diff], spans: list[int]) -> int:
    """Smallest L that the choices allow at the model's I."""
    inner = [d for d in kept if not _ends(f, d)]
    early = [0] * f.nodes
    changed = True
    while changed:
        changed = False
        for d in inner:
            if d.a != ORIGIN:
                least = (0 if d.b == ORIGIN else early[d.b]) + f.bound(d)
                if least > early[d.a]:
                    early[d.a] = least
                    changed = True
    longest = max(t + span for t, span in zip(early[: f.ops], spans, strict=True))
    return -(-longest // f.unit) * f.unit
