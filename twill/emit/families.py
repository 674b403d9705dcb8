"""Roles that do the same for different sub-tiles: they get one function, which is told its sub-tile.

One copy of the code for all warpgroups is kinder to the instruction cache than one each, and shorter to read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twill.emit.expansion import Expansion, Step
from twill.emit.launch import Seat
from twill.lower import Execute, Instruction, Role, WaitOwn
from twill.lower.allocators import WARPGROUP

__all__ = ["Family", "families"]


@dataclass(frozen=True, slots=True)
class Family:
    """One function for ``roles``, whose sub-tiles count up from ``first_subtile``; ``expansion`` is that of the first of them.

    ``subtiles`` are those of the first role. A family of one role may hold any number of sub-tiles.
    """

    name: str
    roles: tuple[Role, ...]
    subtiles: tuple[int, ...]
    expansion: Expansion
    seats: tuple[Seat, ...]

    @property
    def shared(self) -> bool:
        """Whether the function is told its sub-tile."""
        return len(self.roles) > 1

    def label(self, text: str) -> str:
        """A label of the program, without the letter of the sub-tile where several roles share the line."""
        return re.sub(r"(?<=\w)_[a-z]\b", "", text) if self.shared else text


def _mine(request: Any, role: Role) -> tuple[int, ...]:
    ops = [x.op for x in role.body if isinstance(x, Execute)]
    return tuple(sorted({request.subtile[v] for v in ops if v in request.subtile}))


def _anonymous(request: Any, x: Instruction) -> Instruction | tuple[object, ...]:
    """The instruction without the name of its sub-tile."""
    if isinstance(x, Execute):
        return (request.kinds[x.op], x.stage)
    if isinstance(x, WaitOwn):
        return (x.pending, x.stage, x.behind)
    return x


def _key(request: Any, e: Expansion, seat: Seat) -> tuple[object, ...]:
    def same(steps: Sequence[Step]) -> tuple[object, ...]:
        ages = [sorted((request.kinds[v], age) for v, age in s.ages.items()) for s in steps]
        return tuple((_anonymous(request, s.instruction), s.at, tuple(a)) for s, a in zip(steps, ages, strict=True))

    return same(e.prologue), same(e.steady), same(e.epilogue), tuple(map(same, e.short)), seat.registers, seat.rises


def _prefix(names: Sequence[str]) -> str:
    common = names[0]
    for name in names[1:]:
        while not name.startswith(common):
            common = common[:-1]
    return common.rstrip("_") or "_".join(names)


def families(request: Any, expansions: Mapping[str, Expansion], seats: Sequence[Seat]) -> tuple[Family, ...]:
    """The functions of the kernel, in the order of their seats."""
    found: list[Family] = []
    for seat in seats:
        for role, _ in seat.roles:
            e, mine = expansions[role.name], _mine(request, role)
            last = found[-1] if found else None
            if (
                last is not None
                and len(mine) == len(last.subtiles) == 1
                and role.warps == WARPGROUP
                and mine[0] == last.subtiles[0] + len(last.roles)
                and _key(request, e, seat) == _key(request, last.expansion, last.seats[0])
            ):
                roles = (*last.roles, role)
                found[-1] = Family(_prefix([r.name for r in roles]), roles, last.subtiles, last.expansion, (*last.seats, seat))
            else:
                found.append(Family(role.name, (role,), mine, e, (seat,)))
    return tuple(found)
