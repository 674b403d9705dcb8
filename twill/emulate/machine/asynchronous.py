"""Operations that complete at a later moment: copies by TMA, matrix multiplications, arrivals that follow them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from twill.emulate.machine.barriers import Counter
from twill.emulate.machine.clocks import Clock

__all__ = ["Group", "Groups", "Operation"]


@dataclass(eq=False)
class Operation:
    """Something in flight. It may take effect at any moment from now on, but not before those in ``after``."""

    name: str
    line: int
    clock: Clock
    component: int
    body: Callable[[Operation], None]
    after: tuple[Operation, ...] = ()
    done: bool = False
    number: int = 0

    @property
    def ready(self) -> bool:
        return all(x.done for x in self.after)

    def run(self) -> None:
        """Take effect."""
        self.body(self)
        self.done = True
        self.after = ()


@dataclass(eq=False)
class Group:
    """Operations committed together."""

    operations: tuple[Operation, ...]
    waited: bool = False

    @property
    def done(self) -> bool:
        return all(x.done for x in self.operations)


@dataclass(eq=False)
class Groups(Counter):
    """The groups of one kind that a warp has committed, and what it has issued since the last commit."""

    open: list[Operation] = field(default_factory=list)
    committed: list[Group] = field(default_factory=list)

    def commit(self) -> Group:
        """Close a group."""
        group = Group(tuple(self.open))
        self.open = []
        self.committed.append(group)
        return group

    def finished(self, allowed: int) -> list[Group] | None:
        """The groups that a wait for all but the last ``allowed`` has seen complete, None if it has to wait."""
        older = self.committed[: len(self.committed) - allowed] if allowed else self.committed
        if not all(g.done for g in older):
            return None
        self.committed = self.committed[len(older) :]
        return older
