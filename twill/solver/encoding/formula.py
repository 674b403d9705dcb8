"""A formula of difference logic: clauses over Booleans and differences of start times, and pseudo-Boolean sums.

A literal is either a non-zero int (a Boolean variable, negative for its complement) or a `Diff` atom. Bounds of atoms
are affine in I, so that a model found at one I can be tightened to the smallest I that its choices allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from twill.solver.bounds import Distances

__all__ = ["ORIGIN", "Clause", "Diff", "Formula", "Literal", "Sum"]

ORIGIN = -1
"""The node that stands for time 0."""


class Diff(NamedTuple):
    """node ``a`` - node ``b`` >= ``c0`` + ``c1`` * I, in cycles."""

    a: int
    b: int
    c0: int
    c1: int


Literal = int | Diff


class Clause(NamedTuple):
    """At least one literal holds. ``label`` is (rule, subject)."""

    literals: tuple[Literal, ...]
    label: tuple[str, str]


class Sum(NamedTuple):
    """Sum of weight * literal <= bound, over Boolean literals."""

    terms: tuple[tuple[int, int], ...]
    bound: int
    label: tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Extreme:
    """An auxiliary node: the largest (or smallest) of op start times plus offsets, each offset within a range."""

    largest: bool
    terms: tuple[tuple[int, int, int], ...]


@dataclass(slots=True)
class Formula:
    """Clauses and sums at one I, with the known range of every difference to leave out what cannot matter.

    All numbers are cycles; nodes are multiples of ``unit``, so a difference of at least c is one of at least c rounded up.
    A clause that known ranges imply is left out: whoever relies on a range must have put the constraints in that imply it.
    """

    ii: int
    known: Distances
    ops: int
    unit: int = 1
    clauses: list[Clause] = field(default_factory=list)
    sums: list[Sum] = field(default_factory=list)
    booleans: list[str] = field(default_factory=list)
    _extremes: list[_Extreme] = field(default_factory=list)
    _names: dict[str, int] = field(default_factory=dict)

    @property
    def nodes(self) -> int:
        """Number of time nodes: ops first, then auxiliary nodes."""
        return self.ops + len(self._extremes)

    def boolean(self, name: str) -> int:
        """The Boolean variable of that name, made at first use."""
        known = self._names.get(name)
        if known is None:
            self.booleans.append(name)
            known = self._names[name] = len(self.booleans)
        return known

    def has(self, name: str) -> bool:
        return name in self._names

    def extreme(self, *, largest: bool, terms: Iterable[tuple[int, int, int]]) -> int:
        """A new auxiliary node over ``(op, least offset, largest offset)`` terms. The caller adds its constraints."""
        self._extremes.append(_Extreme(largest, tuple(terms)))
        return self.nodes - 1

    def address(self, name: str, room: int) -> int:
        """A new node for an address in [0, room] steps, which has nothing to do with time: state its differences with `steps`."""
        del name
        self._extremes.append(_Extreme(True, ((ORIGIN, 0, room * self.unit),)))
        return self.nodes - 1

    def steps(self, a: int, b: int, count: int) -> Diff:
        """Address node ``a`` - address node ``b`` >= ``count`` steps, whatever the time unit."""
        return Diff(a, b, count * self.unit, 0)

    def span(self, b: int, a: int) -> tuple[int, int]:
        """Range of node a - node b."""
        if a == b:
            return (0, 0)
        if a >= self.ops:
            return self._fold(a, lambda op: self.span(b, op))
        if b >= self.ops:
            low, high = self._fold(b, lambda op: self.span(a, op))
            return (-high, -low)
        if a == ORIGIN:
            return (-self.known.late[b], -self.known.early[b])
        if b == ORIGIN:
            return (self.known.early[a], self.known.late[a])
        return self.known.span(b, a)

    def _fold(self, node: int, span: Callable[[int], tuple[int, int]]) -> tuple[int, int]:
        extreme = self._extremes[node - self.ops]
        choose = max if extreme.largest else min
        ranges = [(span(op), low, high) for op, low, high in extreme.terms]
        low, high = choose(r[0] + low for r, low, _ in ranges), choose(r[1] + high for r, _, high in ranges)
        return (-(-low // self.unit) * self.unit, -(-high // self.unit) * self.unit)

    def mark(self) -> tuple[int, int, int, int]:
        """Where the formula ends now; see `drop`."""
        return len(self.clauses), len(self.sums), len(self.booleans), len(self._extremes)

    def drop(self, mark: tuple[int, int, int, int]) -> None:
        """Forget everything added since `mark`."""
        clauses, sums, booleans, extremes = mark
        for name in self.booleans[booleans:]:
            del self._names[name]
        del self.clauses[clauses:], self.sums[sums:], self.booleans[booleans:], self._extremes[extremes:]

    def bound(self, atom: Diff) -> int:
        """The smallest difference that satisfies an atom."""
        return -(-(atom.c0 + atom.c1 * self.ii) // self.unit) * self.unit

    def add(self, label: tuple[str, str], *literals: Literal | None) -> None:
        """Add a clause; ``None`` literals are dropped, and clauses that the known ranges settle are left out."""
        kept: list[Literal] = []
        for literal in literals:
            if literal is None:
                continue
            if isinstance(literal, Diff):
                low, high = self.span(literal.b, literal.a)
                bound = self.bound(literal)
                if low >= bound:
                    return
                if high < bound:
                    continue
            kept.append(literal)
        self.clauses.append(Clause(tuple(kept), label))

    def require(self, label: tuple[str, str], atom: Diff) -> None:
        """Add a clause of one atom, even where the known ranges imply it (they may come from it)."""
        self.clauses.append(Clause((atom,), label))

    def at_most(self, label: tuple[str, str], terms: Iterable[tuple[int, int]], bound: int) -> None:
        """Sum of weight * literal <= bound; left out if it cannot be exceeded."""
        kept = tuple((w, lit) for w, lit in terms if w)
        if sum(w for w, _ in kept) > bound:
            self.sums.append(Sum(kept, bound, label))
