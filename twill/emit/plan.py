"""What a file says (`Plan`), and what an architecture adds to what all have in common (`Architecture`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from twill.check import CheckedSchedule
from twill.emit.expansion import Expansion
from twill.emit.families import Family
from twill.emit.launch import Launch
from twill.emit.request import AttentionForward
from twill.lower import WarpProgram

__all__ = ["Architecture", "Plan", "Ring"]


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring of mbarriers as a file declares it."""

    slots: int
    arrivals: int
    tx_bytes: int = 0


class Architecture(ABC):
    """What differs between architectures: their tile operations and what these need around the loop. Decides nothing about a schedule.

    Attributes
    ----------
    name : prefix of kernels, and the package of the tile operations.
    machines : architectures of machine files whose schedules are emitted.
    rows : query rows of a sub-tile.
    kinds : kinds of ops for which there is a tile operation.
    reads : for kinds of ops, the kinds whose register results they read.
    note : what the header of a kernel has to say about where it ran.
    """

    name: str
    machines: tuple[str, ...]
    rows: int
    kinds: tuple[str, ...]
    reads: Mapping[str, tuple[str, ...]]
    note: str = ""

    @abstractmethod
    def refuse(self, request: AttentionForward, checked: CheckedSchedule, program: WarpProgram) -> None:
        """Raise EmitError for what the architecture's tile operations cannot do."""

    @abstractmethod
    def refuse_expansion(self, request: AttentionForward, e: Expansion) -> None:
        """Raise EmitError for an order of one role that the tile operations cannot follow."""

    def tile_arguments(self, request: AttentionForward) -> str:
        """Arguments of ``Tiles`` beside those that all have."""
        return ""

    def storage(self, plan: Plan) -> Iterator[tuple[str, tuple[int, int, int]]]:
        """Name, then offset, stride and stages of SMEM beside that of the program and O_staging."""
        yield from ()

    def enter_arguments(self, plan: Plan) -> str:
        """Arguments of ``enter`` beside those that all have."""
        return ""

    def launch_arguments(self) -> tuple[str, ...]:
        """Arguments of the launch beside grid, block, SMEM and stream."""
        return ()

    def at_last(self) -> Iterator[str]:
        """Calls with the block that the frame's warp makes when there is no further work tile."""
        yield from ()

    @abstractmethod
    def rings(self, plan: Plan) -> Iterator[tuple[str, Ring]]:
        """Barriers around the loop."""

    @abstractmethod
    def text(self, plan: Plan, family: Family) -> Iterator[str]:
        """The functions of a family of roles."""


@dataclass(frozen=True)
class Plan:
    """All that a file says."""

    architecture: Architecture
    checked: CheckedSchedule
    program: WarpProgram
    request: AttentionForward
    families: Sequence[Family]
    launch: Launch
    command: str
