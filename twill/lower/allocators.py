"""Checked allocation of what the hardware has few of: named barriers and registers."""

from __future__ import annotations

from collections.abc import Mapping

from twill.errors import LowerError
from twill.model.machine import RegisterFile

__all__ = ["NAMED_BARRIERS", "WARPGROUP", "NamedBarriers", "register_requests", "warpgroups"]

NAMED_BARRIERS = 16
"""Hardware barriers of a block (PTX ISA, barrier); 0 is __syncthreads'."""
WARPGROUP = 4
THREADS_PER_WARP = 32
SETMAXNREG_STEP, SETMAXNREG_MIN, SETMAXNREG_MAX = 8, 24, 256
"""What setmaxnreg takes (PTX ISA)."""


class NamedBarriers:
    """Hands out hardware barrier ids, each once; id 0 is never given."""

    def __init__(self, reserved: int = 1) -> None:
        self._next = reserved

    @property
    def left(self) -> int:
        return NAMED_BARRIERS - self._next

    def take(self, name: str) -> int:
        """The next id.

        Raises
        ------
        LowerError : all are taken.
        """
        if self.left <= 0:
            raise LowerError(f"no named barrier is left for {name}: the hardware has {NAMED_BARRIERS}, id 0 reserved", "use an mbarrier")
        self._next += 1
        return self._next - 1


def warpgroups(warps: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
    """Which roles sit in which warpgroups, in launch order: roles of whole warpgroups alone, the rest packed together in order.

    A packed set may fill more than one warpgroup; all of them ask for the same registers.
    """
    whole = tuple((role,) for role, w in warps.items() if w % WARPGROUP == 0)
    rest = tuple(role for role, w in warps.items() if w % WARPGROUP)
    return (*whole, rest) if rest else whole


def register_requests(warps: Mapping[str, int], wanted: Mapping[str, int], registers: RegisterFile) -> dict[str, int]:
    """Registers per thread that each role asks for with setmaxnreg; roles that share a warpgroup ask for the most of theirs.

    Raises
    ------
    LowerError : a request that setmaxnreg does not take, or together more than the register file holds.
    """
    machine_is_real = registers.per_thread_min.value >= SETMAXNREG_MIN
    least = SETMAXNREG_MIN if machine_is_real else int(registers.per_thread_min.value)
    requests: dict[str, int] = {}
    total = 0
    for members in warpgroups(warps):
        ask = max(wanted[role] for role in members)
        if ask % SETMAXNREG_STEP or not least <= ask <= SETMAXNREG_MAX:
            raise LowerError(
                f"role {members[0]} wants {ask} registers a thread; setmaxnreg takes multiples of {SETMAXNREG_STEP} "
                f"from {least} to {SETMAXNREG_MAX}",
                "solve it again: the rule register-limit keeps to them",
            )
        requests |= dict.fromkeys(members, ask)
        size = -(-sum(warps[role] for role in members) // WARPGROUP)
        total += size * WARPGROUP * THREADS_PER_WARP * ask
    if total > registers.file.value:
        raise LowerError(
            f"the roles ask for {total} registers in all; the register file holds {int(registers.file.value)}",
            "solve it with fewer groups or a smaller --registers",
        )
    return requests
