"""Issue slots by sub-partition: what the warps of each have to issue in one iteration of the loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from twill.build.roles import Seat

__all__ = ["SUB_PARTITIONS", "SubPartition", "issue_slots"]

SUB_PARTITIONS = 4
"""Each issues an instruction a cycle, for every fourth warp of a block (taken for granted, not documented)."""
WARPGROUP = 4

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SubPartition:
    """Instructions of an iteration, on the shortest and the longest way: of each role with a warp there, and together."""

    number: int
    roles: Mapping[str, Span]

    @property
    def total(self) -> Span:
        return sum(low for low, _ in self.roles.values()), sum(high for _, high in self.roles.values())


def issue_slots(places: Sequence[Seat], first_warps: Mapping[str, int], turns: Iterable[tuple[str, Span]]) -> tuple[SubPartition, ...]:
    """``turns`` names the code of a role and a turn of one of its loops; of several the shortest is its steady state.

    Empty if a role has no turn. A warp of the frame, which acts once a work tile, does not count.
    """
    steady: dict[str, Span] = {}
    for name, span in turns:
        steady[name] = min(steady.get(name, span), span, key=lambda s: s[1])
    shares: list[dict[str, Span]] = [{} for _ in range(SUB_PARTITIONS)]
    for seat in places:
        warps = 1 if len(seat.roles) + len(seat.frame) > 1 else WARPGROUP
        for code in seat.roles:
            if code.name not in steady:
                return ()
            for role in code.roles:
                for warp in range(first_warps[role], first_warps[role] + warps):
                    shares[warp % SUB_PARTITIONS][role] = steady[code.name]
    return tuple(SubPartition(n, share) for n, share in enumerate(shares))
