"""Barrier objects. PTX ISA 9.7.13.15 (mbarrier), 9.7.13.1 (named barriers)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twill.emulate.machine.clocks import COMPONENTS, Clock

__all__ = ["Counter", "MBarrier", "NamedBarrier"]


def _nothing() -> Clock:
    return np.zeros((2, COMPONENTS), np.int32)


@dataclass(eq=False)
class Counter:
    """Something that warps wait for; ``version`` moves when it may be worth to look again."""

    version: int = 0


@dataclass(eq=False)
class MBarrier(Counter):
    """An mbarrier in shared memory.

    A phase ends when no arrival and no transaction byte is pending; bytes may arrive before they are announced, so that the count of bytes
    may be negative while arrivals are pending (the PTX ISA gives it the range -(2^20 - 1) .. 2^20 - 1).
    """

    address: int = 0
    expected: int = 1
    pending: int = 1
    bytes: int = 0
    phase: int = 0
    coming: Clock = field(default_factory=_nothing)
    done: Clock = field(default_factory=_nothing)
    waiting: dict[Any, int] = field(default_factory=dict)
    """Warps that sleep here, with the number of the phase that they wait for."""
    arrivals: dict[int, int] = field(default_factory=dict)
    """How many arrivals came from which PTX line."""
    waited: bool = False
    """True once a warp has tried to wait here."""
    made: tuple[int, int] = (0, 0)
    """Component and time of the initialisation."""
    fenced: bool = False
    """True after ``fence.mbarrier_init``: the asynchronous proxy and other blocks may use the barrier."""

    def arrive(self, count: int, announced: int, clock: Clock | None, line: int) -> str | None:
        """Count arrivals and announced bytes, of a PTX line. What is wrong, if something is."""
        if count:
            self.arrivals[line] = self.arrivals.get(line, 0) + count
        self.bytes += announced
        self.pending -= count
        if clock is not None:
            np.maximum(self.coming, clock, out=self.coming)
        if self.pending < 0:
            self.pending = 0
            return "more arrivals than the barrier expects in a phase"
        return self._turn()

    def complete(self, count: int, clock: Clock) -> str | None:
        """Count bytes that have arrived."""
        self.bytes -= count
        np.maximum(self.coming, clock, out=self.coming)
        if abs(self.bytes) >= 1 << 20:
            return "transaction count out of its range"
        return self._turn()

    def _turn(self) -> str | None:
        self.version += 1
        if self.pending or self.bytes:
            return None
        late = [who for who, phase in self.waiting.items() if phase < self.phase]
        self.phase += 1
        self.pending = self.expected
        self.done = self.coming.copy()
        if late:
            return "overrun:" + ", ".join(sorted(str(w) for w in late))
        return None

    def passed(self, parity: int) -> bool:
        """True if the phase of this parity is over: the present one has the other parity."""
        return self.phase & 1 != parity & 1

    def __str__(self) -> str:
        missing = [f"{self.pending} of {self.expected} arrivals"] if self.pending else []
        missing += [f"{self.bytes} bytes"] if self.bytes else []
        return f"phase {self.phase} (parity {self.phase & 1}), still expects {' and '.join(missing) or 'nothing'}"


@dataclass(eq=False)
class NamedBarrier(Counter):
    """One of the 16 barriers of a block."""

    number: int = 0
    threads: int = 0
    arrived: int = 0
    who: list[str] = field(default_factory=list)
    generation: int = 0
    coming: Clock = field(default_factory=_nothing)
    done: Clock = field(default_factory=_nothing)

    def arrive(self, threads: int, count: int, clock: Clock, who: str) -> str | None:
        """``threads`` more arrive at a barrier for ``count`` threads. What is wrong, if something is.

        One warp may arrive twice in a phase: flash-attn-4 counts a ``bar.arrive`` and a ``bar.sync`` of the same warps.
        """
        trouble = None
        if self.arrived and self.threads != count:
            trouble = f"called with {count} threads while {self.threads} were announced"
        elif count % 32 or count == 0:
            trouble = f"{count} threads is no multiple of a warp"
        self.threads = count
        self.arrived += threads
        self.who.append(who)
        np.maximum(self.coming, clock, out=self.coming)
        if self.arrived >= count:
            if self.arrived > count:
                trouble = f"{self.arrived} threads arrive where {count} are expected"
            self.done = self.coming.copy()
            self.arrived, self.who = 0, []
            self.generation += 1
            self.version += 1
        return trouble

    def __str__(self) -> str:
        return f"{self.arrived} of {self.threads} threads have arrived ({', '.join(self.who)})"
