"""Vector clocks, and the record of who last touched each 4 bytes of a memory.

Every warp is a component of the clocks, and so is every asynchronous operation in flight: two TMA loads of one warp are not ordered with
each other, and having seen one complete says nothing of the other. Components of operations are used again once whoever issues the next
one has seen the last one complete.

A clock has two rows. Row 0 counts what has happened before. Row 1 counts what of it has also been made visible to the asynchronous proxy
by ``fence.proxy.async`` (PTX ISA 8.9, proxies): data written through the generic proxy may be read by TMA or a tensor core only then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twill.emulate.errors import EmulationError

__all__ = ["Access", "Clock", "Clocks", "Shadow"]

COMPONENTS = 512

Clock = np.ndarray[Any, Any]
Granules = slice | np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Access:
    """A read or write: which component at which time, by whom (for the report), from which PTX line, through which proxy."""

    component: int
    time: int
    who: str
    line: int
    generic: bool


@dataclass
class Clocks:
    """Components of one cluster of blocks."""

    used: int = 0
    accesses: list[Access] = field(default_factory=lambda: [Access(0, 0, "nobody", 0, False)])
    _free: dict[int, list[list[int]]] = field(default_factory=dict)

    def component(self) -> tuple[int, Clock]:
        """A new component with its clock, at time 1."""
        if self.used >= COMPONENTS:
            raise EmulationError("more than 512 asynchronous operations whose completion nobody has seen", "report the kernel")
        clock = np.zeros((2, COMPONENTS), np.int32)
        clock[0, self.used] = 1
        self.used += 1
        return self.used - 1, clock

    def operation(self, issuer: Clock, pool: int = 0) -> tuple[int, Clock]:
        """Component and clock of an operation that is issued by someone whose clock is ``issuer``."""
        for entry in self._free.setdefault(pool, []):
            if issuer[0, entry[0]] >= entry[1]:
                entry[1] += 1
                clock = issuer.copy()
                clock[0, entry[0]] = entry[1]
                return entry[0], clock
        index, _ = self.component()
        self._free[pool].append([index, 1])
        clock = issuer.copy()
        clock[0, index] = 1
        return index, clock

    def access(self, component: int, clock: Clock, who: str, line: int, generic: bool) -> int:
        """A number for an access at the present time of a component."""
        self.accesses.append(Access(component, int(clock[0, component]), who, line, generic))
        return len(self.accesses) - 1


Report = Callable[[str, Access, int], None]
"""Called with what is wrong ("write after write" and so on), the earlier access, and the first granule."""


class Shadow:
    """The accesses to a memory of ``size`` granules of 4 bytes that later ones must be ordered with."""

    def __init__(self, size: int, clocks: Clocks) -> None:
        self.clocks = clocks
        self.writer = np.zeros(size, np.int32)
        self.readers = np.zeros(size, np.int32)
        self._sets: list[tuple[int, ...]] = [()]
        self._known: dict[tuple[int, ...], int] = {(): 0}

    def _unordered(self, access: Access, component: int, clock: Clock) -> bool:
        return access.component != component and access.time > clock[0, access.component]

    def read(self, at: Granules, number: int, component: int, clock: Clock, report: Report) -> None:
        """Note a read; call ``report`` where it is not ordered after the last write."""
        mine = self.clocks.accesses[number]
        for writer in _distinct(self.writer[at]):
            access = self.clocks.accesses[writer]
            if writer == 0:
                report("uninitialised", access, _first(self.writer, at, 0))
            elif self._unordered(access, component, clock):
                report("read after write", access, _first(self.writer, at, writer))
            elif access.generic and not mine.generic and access.time > clock[1, access.component]:
                report("proxy", access, _first(self.writer, at, writer))
        old = self.readers[at]
        values = _distinct(old)
        if len(values) == 1:
            self.readers[at] = self._with(values[0], number, component, clock)
        else:
            table = {v: self._with(v, number, component, clock) for v in values}
            new = np.empty_like(old)
            for v, w in table.items():
                new[old == v] = w
            self.readers[at] = new

    def _with(self, readers: int, number: int, component: int, clock: Clock) -> int:
        """The set with a read added, without those that are ordered before it."""
        kept = [r for r in self._sets[readers] if self._unordered(self.clocks.accesses[r], component, clock)]
        key = (*kept, number)
        if key not in self._known:
            self._known[key] = len(self._sets)
            self._sets.append(key)
        return self._known[key]

    def write(self, at: Granules, number: int, component: int, clock: Clock, report: Report) -> None:
        """Note a write; call ``report`` where it is not ordered after the last write or any read since."""
        for writer in _distinct(self.writer[at]):
            access = self.clocks.accesses[writer]
            if writer and self._unordered(access, component, clock):
                report("write after write", access, _first(self.writer, at, writer))
        for readers in _distinct(self.readers[at]):
            for r in self._sets[readers]:
                access = self.clocks.accesses[r]
                if self._unordered(access, component, clock):
                    report("write after read", access, _first(self.readers, at, readers))
        self.writer[at] = number
        self.readers[at] = 0


def _distinct(values: np.ndarray[Any, Any]) -> list[int]:
    if values.size == 0:
        return []
    first = values.flat[0]
    if values.size <= 64:
        return list(set(values.ravel().tolist()))
    if (values == first).all():
        return [int(first)]
    found: list[int] = np.unique(values).tolist()
    return found


def _first(table: np.ndarray[Any, Any], at: Granules, value: int) -> int:
    found = int((table[at].ravel() == value).argmax())
    return (at.start or 0) + found if isinstance(at, slice) else int(at.ravel()[found])
