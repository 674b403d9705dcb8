"""Who goes next: the warps of a cluster and its operations in flight, in orders that a GPU might choose or that hurt most."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twill.emulate.machine.asynchronous import Operation
from twill.emulate.machine.warp import Warp

if TYPE_CHECKING:
    from twill.emulate.machine.block import Cluster

__all__ = ["SCHEDULERS", "Scheduler", "make"]

FOREVER = 1 << 30


@dataclass
class Scheduler:
    """Warps in turn, each until it has to wait; operations take effect at once."""

    name: str = "eager"
    at_once: bool = True
    _turn: int = 0

    def step(self, cluster: Cluster) -> bool:
        """Let someone do something. False if nobody can."""
        ready = [w for w in cluster.warps if w.runnable]
        if ready:
            self.run(self.warp(ready))
            return True
        operations = [o for o in cluster.pending if o.ready]
        if operations:
            cluster.finish(self.operation(operations))
            return True
        return False

    def run(self, warp: Warp) -> None:
        warp.run(4096)

    def fails(self, again: bool) -> bool:
        """True if a try of a barrier whose phase is over is to fail, as one whose time is up may; ``again``: it has failed once."""
        return False

    def warp(self, ready: list[Warp]) -> Warp:
        self._turn += 1
        return ready[self._turn % len(ready)]

    def operation(self, ready: list[Operation]) -> Operation:
        return ready[0]


@dataclass
class Late(Scheduler):
    """Operations take effect only when no warp can go on, oldest first. The first try of a barrier fails."""

    name: str = "late"
    at_once: bool = False

    def fails(self, again: bool) -> bool:
        return not again


@dataclass
class Newest(Scheduler):
    """The last warp first, and of the operations, once no warp can go on, the one issued last."""

    name: str = "newest"
    at_once: bool = False

    def warp(self, ready: list[Warp]) -> Warp:
        return ready[-1]

    def operation(self, ready: list[Operation]) -> Operation:
        return ready[-1]


@dataclass
class Random(Scheduler):
    """Random priorities, drawn anew now and then; an operation may take effect at any moment."""

    name: str = "random"
    at_once: bool = False
    seed: int = 0
    _random: random.Random = field(default_factory=random.Random)
    _priorities: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def step(self, cluster: Cluster) -> bool:
        ready = [w for w in cluster.warps if w.runnable]
        operations = [o for o in cluster.pending if o.ready]
        if not ready and not operations:
            return False
        if self._random.random() < 0.02:
            self._priorities.clear()
        if operations and (not ready or self._random.random() < self._weight(-1)):
            cluster.finish(self._random.choice(operations))
        else:
            self.run(max(ready, key=lambda w: self._weight(id(w))))
        return True

    def _weight(self, who: int) -> float:
        if who not in self._priorities:
            self._priorities[who] = self._random.random()
        return self._priorities[who]

    def run(self, warp: Warp) -> None:
        warp.run(self._random.choice((1, 2, 5, 20)))

    def fails(self, again: bool) -> bool:
        return not again and self._random.random() < 0.5


@dataclass
class Held(Scheduler):
    """One line of the PTX is held back: what it put in flight takes effect only when nobody can do anything else, newest first.

    Where two loads of one line are in flight, the later one is seen complete while the earlier one is not.
    """

    name: str = "held"
    at_once: bool = False
    line: int = 0

    def operation(self, ready: list[Operation]) -> Operation:
        return next((o for o in ready if o.line != self.line), ready[-1])


SCHEDULERS = ("eager", "late", "newest", "random", "held")


def make(name: str, seed: int, lines: Sequence[int] = ()) -> Scheduler:
    """A scheduler by name. ``seed`` matters to ``random``, and says which of ``lines``, those that put something in flight, ``held``
    holds back."""
    if name == "random":
        return Random(seed=seed)
    if name == "held":
        return Held(line=lines[seed % len(lines)] if lines else 0)
    return {"eager": Scheduler, "late": Late, "newest": Newest}[name]()
