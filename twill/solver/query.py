"""What the search asks of the solver."""

from __future__ import annotations

from dataclasses import dataclass, replace

from twill.solver.candidate import Candidate

__all__ = ["RANK", "Query"]

RANK = ("groups", "held_up", "handovers", "waits", "peak")
"""The numbers that rank schedules of equal I and L, most important first."""


@dataclass(frozen=True, slots=True)
class Query:
    """Is there a schedule with this I, no longer than this, with at least this margin, within these limits on its rank?

    With ``alike`` ops that a symmetry maps onto one another come in one order. ``slots`` is the number of groups that the
    formula offers; with fewer than the options allow, only a "yes" counts.
    """

    ii: int
    length: int
    slots: int
    margin: int = 0
    groups: int | None = None
    held_up: int | None = None
    handovers: int | None = None
    waits: int | None = None
    peak: int | None = None
    alike: bool = False
    excluded: tuple[Candidate, ...] = ()

    def limited(self, name: str, most: int, slots: int) -> Query:
        """The same question with one number of the rank limited."""
        match name:
            case "groups":
                return replace(self, groups=most, slots=slots)
            case "held_up":
                return replace(self, held_up=most, slots=slots)
            case "handovers":
                return replace(self, handovers=most, slots=slots)
            case "waits":
                return replace(self, waits=most, slots=slots)
            case _:
                return replace(self, peak=most, slots=slots)
