"""How the roles sit in the block: warps, setmaxnreg requests, named barriers of the frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twill.emit.errors import EmitError
from twill.lower import Role, WarpProgram
from twill.lower.allocators import WARPGROUP, NamedBarriers, warpgroups
from twill.model.machine import Machine

__all__ = ["Launch", "Seat", "launch"]

THREADS = 32 * WARPGROUP
STEP = 8
SWIZZLE_ALIGNMENT = 1024
FRAME_BYTES = 1024
"""What barriers and announced work tiles take at most."""
MOST = 240
"""Registers a thread that a granted request does not go beyond; 255 can be encoded, and setmaxnreg counts in steps of 8."""

FRAME = 32
"""Registers a thread of the warp that works out where work tiles lie: with the 24 that a load warp asks for it spills."""


@dataclass(frozen=True, slots=True)
class Seat:
    """A warpgroup: its first warp, the roles in it with their first warps, its setmaxnreg value and whether that is a rise."""

    first_warp: int
    roles: tuple[tuple[Role, int], ...]
    registers: int
    rises: bool

    @property
    def end_warp(self) -> int:
        return self.first_warp + -(-sum(r.warps for r, _ in self.roles) // WARPGROUP) * WARPGROUP


@dataclass(frozen=True, slots=True)
class Launch:
    """The block: its warpgroups in order, its threads, the named barrier of each sub-tile's epilogue, and what the frame adds.

    Warp ``queries`` loads Q and shares out work tiles, and warps behind it are the frame's helpers; ``listeners`` warps of the schedule
    hear from it. ``o_offset`` is where O is staged in SMEM, if not where Q lies.
    """

    seats: tuple[Seat, ...]
    threads: int
    first_barrier: int
    queries: int
    listeners: int
    o_offset: int | None


def launch(program: WarpProgram, machine: Machine, named: int, o_bytes: int | None, helpers: int = 0) -> Launch:
    """Seat the roles, with ``named`` named barriers around the loop, and so many ``helpers`` of the frame. What the requests leave of the
    register file is shared out among the roles that hold tiles.

    The schedule's request counts tiles and statistics; addresses, masks and the second copy of the loop for masked tiles come on
    top, and registers that nobody asked for would be lost.
    """
    by_name = {role.name: role for role in program.roles}
    groups = [tuple(by_name[name] for name in names) for names in warpgroups({r.name: r.warps for r in program.roles})]
    sizes = [-(-sum(r.warps for r in g) // WARPGROUP) for g in groups]
    threads = THREADS * sum(sizes)
    at_launch = min(int(machine.registers.file.value) // threads // STEP * STEP, 256 - STEP)
    # what a block has got at launch is all that its warps can ask for: more of the file would be waited for in vain
    file = at_launch * threads
    wanted = [max(r.registers_per_thread for r in g) for g in groups]
    holders = [i for i, g in enumerate(groups) if all(r.warps % WARPGROUP == 0 for r in g)]
    others = [i for i in range(len(groups)) if i not in holders]
    asked = sum(size * want for size, want in zip(sizes, wanted, strict=True))
    if others and asked + sum(sizes[i] * max(FRAME - wanted[i], 0) for i in others) <= at_launch * sum(sizes):
        wanted = [max(want, FRAME) if i in others else want for i, want in enumerate(wanted)]
    left = file - sum(THREADS * size * want for size, want in zip(sizes, wanted, strict=True))
    if left < 0:
        text = f"the roles ask for {file - left} registers; a block of {threads} threads is launched with {file}"
        raise EmitError(text, "solve it with fewer registers a thread (`twill solve --registers`) or fewer groups")
    share = left // (THREADS * sum(sizes[i] for i in holders)) // STEP * STEP if holders else 0
    granted = [max(want, min(want + share, MOST)) if i in holders else want for i, want in enumerate(wanted)]
    # what does not go round among those goes to the others
    rest = file - sum(THREADS * size * given for size, given in zip(sizes, granted, strict=True))
    more = rest // (THREADS * sum(sizes[i] for i in others)) // STEP * STEP if others else 0
    granted = [min(given + more, MOST) if i in others else given for i, given in enumerate(granted)]
    seats, warp = [], 0
    for group, size, registers in zip(groups, sizes, granted, strict=True):
        roles, first = [], warp
        for role in group:
            roles.append((role, first))
            first += role.warps
        seats.append(Seat(warp, tuple(roles), registers, registers > at_launch))
        warp += size * WARPGROUP
    ids = NamedBarriers(1 + max((b.named_id or 0 for b in program.barriers), default=0))
    if ids.left < named:
        raise EmitError(f"{named} named barriers are needed around the loop; {ids.left} are left", "solve it with fewer groups")
    listeners = sum(role.warps for role in program.roles)
    return Launch(
        tuple(seats),
        threads,
        ids.take("epilogue"),
        _free_warp(seats, 1 + helpers),
        listeners,
        None if o_bytes is None else _o_offset(program, machine, o_bytes),
    )


def _free_warp(seats: Sequence[Seat], count: int) -> int:
    """The first of so many warps without a role, beside warps that hold no tiles."""
    for seat in seats:
        used = sum(r.warps for r, _ in seat.roles)
        if used % WARPGROUP and seat.first_warp + used + count <= seat.end_warp:
            return seat.first_warp + used
    raise EmitError(
        f"no {count} warps are left that could share out work tiles and do what else is around the loop", "solve it with fewer groups"
    )


def _o_offset(program: WarpProgram, machine: Machine, o_bytes: int) -> int | None:
    """Room for O behind the buffers of the schedule, so that the next Q can be loaded while O is being stored."""
    staged = [s.offset for s in program.storage if s.name == "O_staging"]
    if staged:
        return staged[0]
    end = max(s.offset + s.stride * s.stages for s in program.storage)
    end = -(-end // SWIZZLE_ALIGNMENT) * SWIZZLE_ALIGNMENT
    return end if end + o_bytes + FRAME_BYTES <= int(machine.memories["smem"].capacity.value) else None
