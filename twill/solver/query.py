"""What the search asks of the solver."""

from __future__ import annotations

from dataclasses import dataclass

from twill.solver.candidate import Candidate

__all__ = ["Query"]


@dataclass(frozen=True, slots=True)
class Query:
    """Is there a schedule with this I, no longer than this, within these limits on its rank?

    ``slots`` is the number of groups that the formula offers; with fewer than the options allow, only a "yes" counts.
    """

    ii: int
    length: int
    slots: int
    groups: int | None = None
    handovers: int | None = None
    waits: int | None = None
    peak: int | None = None
    excluded: tuple[Candidate, ...] = ()
