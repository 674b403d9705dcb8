"""The WarpProgram: what every warp role executes, with all synchronization spelled out.

A role runs *periods* n = 0, 1, ... In period n it goes through its instructions in order; an instruction of stage s
acts for iteration i = n - s and is skipped unless 0 <= i < T, T being the trip count. So one list says
prologue, steady state and epilogue for every trip count, 0 included; `periods` and `trace` make them explicit.

Synchronization counts *completions*: the k-th completion of a barrier belongs to iteration k. A barrier is a ring of
``slots`` hardware barriers; completion k uses slot k mod slots, with parity (k div slots) mod 2. A `Wait` of
distance d in iteration i waits for completion i - d and passes at once if that is negative.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

__all__ = [
    "Access",
    "Arrive",
    "Barrier",
    "Execute",
    "Instruction",
    "Role",
    "Storage",
    "Wait",
    "WaitOwn",
    "WarpProgram",
]


@dataclass(frozen=True, slots=True)
class Barrier:
    """A ring of barriers.

    Attributes
    ----------
    name : after what it says, e.g. ``K_full``, ``K_empty``, ``MAX_a_to_RESC_a``.
    kind : ``mbarrier``, or ``named`` (a hardware barrier that takes arrivals of warps and at most one phase in flight).
    slots : depth of the ring.
    arrivals : arrivals that complete a phase, counted as the `Arrive` instructions of one iteration count them.
    tx_bytes : bytes that TMA must deliver before a phase completes, 0 for none.
    named_id : hardware id of a named barrier.
    guards : labels of the dependences (``edge QK_a->MAX_a``, ``release K by QK_a``) that it enforces.
    """

    name: str
    kind: Literal["mbarrier", "named"]
    slots: int
    arrivals: int
    guards: tuple[str, ...]
    tx_bytes: int = 0
    named_id: int | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """An op touches iteration i + ``shift`` of a storage: slot (i + shift) mod stages; ``mode`` is ``read`` or ``write``."""

    storage: str
    mode: Literal["read", "write"]
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Storage:
    """A buffer (or a hand-over slot for register data that changes group) as the program uses it.

    ``memory`` is ``smem`` or ``tmem``; ``offset`` and ``stride`` in bytes or columns; persistent storage has one stage
    and is the same in all iterations.
    """

    name: str
    memory: str
    offset: int
    stride: int
    stages: int
    persistent: bool


@dataclass(frozen=True, slots=True)
class Execute:
    """Issue the op for iteration n - ``stage``. Synchronous ops are done when the role goes on; others go on beside it."""

    op: str
    stage: int
    accesses: tuple[Access, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for completion n - ``stage`` - ``distance`` of a barrier."""

    barrier: str
    stage: int
    distance: int


@dataclass(frozen=True, slots=True)
class Arrive:
    """Add ``count`` arrivals to completion n - ``stage`` of a barrier.

    ``when`` says what must be over before they count: ``now`` (program order), or ``after`` the asynchronous op ``op``
    of the same iteration (a TMA load with its bytes, a tcgen05.commit, a bulk copy).
    """

    barrier: str
    stage: int
    count: int
    when: Literal["now", "after"] = "now"
    op: str = ""


@dataclass(frozen=True, slots=True)
class WaitOwn:
    """Wait until at most ``pending`` of the asynchronous MMA groups that this role issued are unfinished (wgmma.wait_group).

    ``behind`` holds, for each of these ``pending`` groups, the stage at which the wait sees it: in period n the group is that
    of iteration n - stage. Where prologue or epilogue skip some of them, fewer may be unfinished; `Role.trace` yields the wait
    with ``pending`` reduced to the groups that were issued. Without ``behind`` the number holds in every period.
    ``guards`` are the labels of the dependences that it enforces.
    """

    pending: int
    stage: int
    behind: tuple[int, ...] = ()
    guards: tuple[str, ...] = ()

    def in_period(self, period: int, trip_count: int) -> WaitOwn:
        """The wait as period ``period`` executes it: only groups that were issued may be pending."""
        if not self.behind:
            return self
        return replace(self, pending=sum(0 <= period - stage < trip_count for stage in self.behind))


Instruction = Execute | Wait | Arrive | WaitOwn


@dataclass(frozen=True, slots=True)
class Role:
    """One warp group: its warps, its register request, and its instructions of one period in order."""

    name: str
    warps: int
    registers_per_thread: int
    body: tuple[Instruction, ...]

    @property
    def stages(self) -> int:
        """Stages in flight: periods run from 0 to T - 1 + stages - 1."""
        return 1 + max((x.stage for x in self.body), default=0)

    def trace(self, trip_count: int) -> Iterator[tuple[Instruction, int]]:
        """Every instruction that the role executes, in order, with the iteration that it acts for."""
        if trip_count < 0:
            raise ValueError(f"trip count {trip_count} is negative")
        for period in range(trip_count + self.stages - 1 if trip_count else 0):
            for x in self.body:
                iteration = period - x.stage
                if 0 <= iteration < trip_count:
                    yield x.in_period(period, trip_count) if isinstance(x, WaitOwn) else x, iteration


@dataclass(frozen=True, slots=True)
class WarpProgram:
    """All roles, storage and barriers of a block.

    ``latency_cycles`` and ``issue_cycles`` of ops are those of the schedule's graph; ``schedule_hash`` names the schedule.
    ``redundant`` lists dependences that need no barrier of their own, each with the path that already enforces it.
    """

    schedule_hash: str
    roles: tuple[Role, ...]
    storage: tuple[Storage, ...]
    barriers: tuple[Barrier, ...]
    asynchronous: frozenset[str]
    latency_cycles: dict[str, int]
    issue_cycles: dict[str, int]
    redundant: tuple[tuple[str, str], ...] = ()

    def barrier(self, name: str) -> Barrier:
        """The barrier of that name; KeyError if there is none."""
        for b in self.barriers:
            if b.name == name:
                return b
        raise KeyError(name)
