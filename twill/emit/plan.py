"""What a file says (`Plan`), what a loop and an architecture add to what all have in common (`Wording`, `Architecture`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twill.check import CheckedSchedule
from twill.emit.expansion import Expansion
from twill.emit.families import Family
from twill.emit.launch import Launch
from twill.lower import Barrier, WarpProgram

__all__ = ["Architecture", "Helper", "Named", "Plan", "Ring", "Wording"]


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring of mbarriers as a file declares it; ``pair`` says how a pair of blocks shares it."""

    slots: int
    arrivals: int
    tx_bytes: int = 0
    pair: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """A named barrier around the loop: which of those that are left, and how many threads meet there."""

    number: int
    threads: int


@dataclass(frozen=True, slots=True)
class Helper:
    """A warp beside those of the schedule: its function."""

    name: str
    lines: tuple[str, ...]


class Wording(ABC):
    """What the file of one loop says around its roles: its title, the warp of the frame, kernel and host function.

    Attributes
    ----------
    graph : the loop that it is for.
    frame : the function of the warp that shares out work tiles and loads what stays for one.
    stays : what that is; ``load_stays`` names the operation that loads it.
    masked_by : the kind of the op that masks; its calls say whether they have to.
    masks_one : whether without a causal mask only the first iteration has to.
    around : what the barriers around the loop are for, behind "around the loop: ".
    order : what an op of i - 1 belongs to.
    helped : the argument of the kernel where that has to be true for the helpers to be there.
    turns : the call that begins to count work tiles.
    """

    graph: str
    frame: str
    stays: str
    load_stays: str
    masked_by: str
    masks_one: bool
    around: str
    order: str
    helped: str = ""
    turns: str = "tiles.start((1, 2))"

    @property
    def helpers(self) -> Sequence[Helper]:
        """Further warps beside those of the schedule, for some variants of the kernel."""
        return ()

    @abstractmethod
    def title(self, plan: Plan) -> str:
        """The first line of the file, without its arch."""

    @abstractmethod
    def tile_shapes(self, plan: Plan) -> str:
        """Arguments of ``Tiles``."""

    @abstractmethod
    def kernel_parameters(self, plan: Plan) -> Iterator[str]:
        """Lines of the kernel's parameters."""

    @abstractmethod
    def kernel_begin(self, plan: Plan) -> Iterator[str]:
        """Lines that make ``block``."""

    @abstractmethod
    def host(self, plan: Plan) -> Iterator[str]:
        """The host function."""


class Architecture(ABC):
    """What differs between architectures: their tile operations and what these need around the loop. Decides nothing about a schedule.

    Attributes
    ----------
    wording : the loop that it emits, and what its file says.
    name : prefix of kernels, and the package of the tile operations.
    package : where the tile operations are imported from.
    machines : architectures of machine files whose schedules are emitted.
    rows : query rows of a sub-tile.
    kinds : kinds of ops for which there is a tile operation.
    reads : for kinds of ops, the kinds whose register results they read.
    note : what the header of a kernel has to say about where it ran.
    """

    wording: Wording
    name: str
    package: str
    machines: tuple[str, ...]
    rows: int
    kinds: tuple[str, ...]
    reads: Mapping[str, tuple[str, ...]]
    note: str = ""

    @abstractmethod
    def request(self, checked: CheckedSchedule, program: WarpProgram) -> Any:
        """Read what is asked for off a schedule, or raise EmitError."""

    @abstractmethod
    def place(self, request: Any, program: WarpProgram, checked: CheckedSchedule) -> Launch:
        """Seat the roles."""

    @abstractmethod
    def refuse(self, request: Any, checked: CheckedSchedule, program: WarpProgram) -> None:
        """Raise EmitError for what the architecture's tile operations cannot do."""

    @abstractmethod
    def refuse_expansion(self, request: Any, e: Expansion) -> None:
        """Raise EmitError for an order of one role that the tile operations cannot follow."""

    def stores_registers(self, plan: Plan) -> bool:
        """Whether O goes to global memory straight from registers."""
        return False

    def tile_arguments(self, request: Any) -> str:
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

    def barriers(self, plan: Plan) -> Sequence[Barrier]:
        """The barriers of the program that the file declares."""
        return plan.program.barriers

    def ring(self, plan: Plan, b: Barrier) -> Ring:
        """A ring of mbarriers of the program as the file declares it."""
        return Ring(b.slots, b.arrivals, b.tx_bytes)

    def leads(self, plan: Plan, role: str) -> bool:
        """Whether only the leader of a pair of blocks acts in a role of one warp; the other block's then calls ``listen``."""
        return False

    def parting(self, plan: Plan) -> Iterator[str]:
        """Calls with the block that all warps make at last."""
        yield from ()

    @abstractmethod
    def rings(self, plan: Plan) -> Iterator[tuple[str, Ring | Named]]:
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
    request: Any
    families: Sequence[Family]
    launch: Launch
    command: str
