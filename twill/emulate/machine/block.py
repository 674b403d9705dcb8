"""A block of threads and what it owns: shared memory, barriers, tensor memory, registers; and the cluster that it is in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from twill.emulate.findings import Finding, Findings, Kind
from twill.emulate.machine.asynchronous import Operation
from twill.emulate.machine.barriers import Counter, MBarrier, NamedBarrier
from twill.emulate.machine.clocks import Access, Clock, Clocks, Shadow
from twill.emulate.machine.memory import PARAMETERS, GlobalMemory
from twill.emulate.machine.operands import Tile, to_float
from twill.emulate.machine.tensor_memory import TensorMemory
from twill.emulate.machine.warp import Warp

if TYPE_CHECKING:
    from twill.emulate.host.record import Launch
    from twill.emulate.machine.code import Code
    from twill.emulate.machine.names import Names
    from twill.emulate.machine.schedulers import Scheduler

__all__ = ["Block", "Cluster"]

Array = np.ndarray[Any, Any]

RESERVED = 1024
"""Bytes of shared memory that the system keeps at the start of a block's window (CUDA C++ Programming Guide, compute capability 9.0)."""
LIMIT = 227 * 1024
WINDOW = 24
"""A block's rank in its cluster is in bits 24.. of its shared memory addresses (cute/arch/copy_sm100_tma.hpp masks that bit)."""


class Block:
    """One block of a cluster."""

    def __init__(self, cluster: Cluster, rank: int, ctaid: tuple[int, int, int]) -> None:
        self.cluster, self.rank, self.ctaid = cluster, rank, ctaid
        launch = cluster.launch
        self.dimensions = launch.block
        self.window = rank << WINDOW
        self.layout, size = cluster.code.shared_layout(RESERVED, launch.shared_bytes)
        self.shared_end = size
        padded = -(-size // 1024) * 1024
        self.shared = np.zeros(padded, np.uint8)
        self.shadow = Shadow(padded // 4, cluster.clocks)
        self._moment = 0
        self._changes = np.zeros(padded // 1024 + 1, np.int64)
        self._operands: dict[int, tuple[int, Tile, Array]] = {}
        self.barriers: dict[int, MBarrier] = {}
        self.unfenced: dict[int, MBarrier] = {}
        self.words: dict[int, Clock] = {}
        """What is known to whoever acquires a word of shared memory, by its offset."""
        self.named: dict[int, NamedBarrier] = {}
        count = -(-launch.block[0] * launch.block[1] * launch.block[2] // 32)
        self.launch_registers = cluster.code.launch_registers(32 * count)
        # a block has what it was launched with: the rest of the register file is not lent to it (an H200 waits for ever)
        self.free_registers = 0
        self.register_pool = Counter()
        self.tensor = TensorMemory(cluster.clocks)
        self.running = True
        self.warps: list[Warp] = []
        for i in range(count):
            self.warps.append(Warp(self, i, cluster.code))

    def address(self, symbol: str) -> int:
        """Address of a symbol."""
        if symbol in self.layout:
            return self.window + self.layout[symbol]
        return PARAMETERS + self.cluster.code.parameter(symbol).offset

    def special(self, name: str) -> int:
        """A special register that is the same for all threads of the block."""
        launch = self.cluster.launch
        family, _, axis = name[1:].partition(".")
        i = "xyz".index(axis) if axis else 0
        match family:
            case "ctaid":
                return self.ctaid[i]
            case "nctaid":
                return launch.grid[i]
            case "ntid":
                return launch.block[i]
            case "clusterid":
                return self.ctaid[i] // launch.cluster[i]
            case "nclusterid":
                return launch.grid[i] // launch.cluster[i]
            case "cluster_ctaid":
                return self.ctaid[i] % launch.cluster[i]
            case "cluster_nctaid":
                return launch.cluster[i]
            case "cluster_ctarank":
                return self.rank
            case "cluster_nctarank":
                return len(self.cluster.ranks)
            case "dynamic_smem_size":
                return launch.shared_bytes
            case "smid":
                return 0
            case "nwarpid":
                return len(self.warps)
        return 0

    def changed(self, offset: int, size: int) -> None:
        """Shared memory has changed."""
        self._moment += 1
        self._changes[offset >> 10 : ((offset + size - 1) >> 10) + 1] = self._moment

    def changed_at(self, offsets: Array) -> None:
        """Shared memory has changed near some offsets."""
        self._moment += 1
        self._changes[offsets >> 10] = self._moment

    def operand(self, tile: Tile, kind: str, size: int) -> Array:
        """An operand of a matrix instruction as fp32; kept until shared memory changes there."""
        kept = self._operands.get(id(tile))
        if kept is not None and int(self._changes[tile.pages].max()) <= kept[0]:
            return kept[2]
        values = to_float(self.shared.view(f"u{size}")[tile.elements], kind)
        if len(self._operands) > 256:
            self._operands.clear()
        self._operands[id(tile)] = (self._moment, tile, values)
        return values

    def barrier(self, address: int) -> MBarrier | None:
        """The mbarrier at an address within this block's window."""
        return self.barriers.get(address & ((1 << WINDOW) - 1))

    def named_barrier(self, number: int) -> NamedBarrier:
        if number not in self.named:
            self.named[number] = NamedBarrier(number=number)
        return self.named[number]

    def warp_exits(self, warp: Warp) -> None:
        """Account for a warp that has ended."""
        for groups, what in ((warp.bulk, "bulk stores"), (warp.wgmma, "wgmma groups"), (warp.copies, "cp.async groups")):
            left = [o for g in groups.committed if not g.waited for o in g.operations] + groups.open
            if left:
                line = left[0].line
                warp.find("left over", line, f"the warp ends while {what} are in flight that it never waited for", key=what)
        if all(w.done for w in self.warps):
            self.running = False
            if self.tensor.allocated:
                self.find("tensor memory", 0, f"the block ends with columns {self.tensor.allocated} of tensor memory allocated")
            for address, barrier in sorted(self.barriers.items()):
                if barrier.bytes:
                    text = f"{self.cluster.names.barrier(address - RESERVED)} is left with {barrier.bytes} bytes announced that never came"
                    self.find("left over", 0, text, key=str(address), severity="warning")

    def find(self, kind: Kind, line: int, text: str, key: str = "", severity: Any = "error") -> None:
        code = self.cluster.code
        self.cluster.findings.add(
            Finding(kind, text, line, code.source(line), f"block {self.ctaid}", severity, code.statement(line)), key
        )  # fmt: skip

    def reporter(self, line: int, who: str, memory: str = "shared memory") -> Callable[[str, Access, int], None]:
        """A function that turns what a shadow has found into a finding."""

        def report(what: str, other: Access, granule: int) -> None:
            names = self.cluster.names
            lanes = f"lanes {32 * (granule >> 9)} to {32 * (granule >> 9) + 31}"
            place = names.storage(4 * granule - RESERVED) if memory == "shared memory" else f"column {granule & 511}, {lanes}"
            if what == "uninitialised":
                self.find("uninitialised read", line, f"{who} reads {memory} at {place}, which nothing has written", key=who)
                return
            place_of_other = f"{other.who} at {self.cluster.code.place(other.line)}"
            if what == "proxy":
                text = f"{who} reads {memory} at {place}, written by {place_of_other} without a fence.proxy.async in between"
                self.find("missing proxy fence", line, text, key=str(other.line))
                return
            first, _, second = what.partition(" after ")
            verb = {"read": "reads", "write": "writes"}
            text = f"{who} {verb[first]} {memory} at {place}; nothing orders it after the {second} by {place_of_other}"
            self.find("race", line, text, key=f"{what}{other.line}")

        return report

    def in_shared(self, address: int, size: int) -> int | None:
        """Offset in shared memory, None if the access is out of bounds."""
        offset = address & ((1 << WINDOW) - 1)
        return offset if offset >= RESERVED and offset + size <= self.shared_end else None


class Cluster:
    """Blocks that run together, and what is in flight among them."""

    def __init__(
        self, launch: Launch, code: Code, memory: GlobalMemory, first: Sequence[int], scheduler: Scheduler, findings: Findings, names: Names
    ) -> None:
        self.launch, self.code, self.memory = launch, code, memory
        self.scheduler, self.findings, self.names = scheduler, findings, names
        self.clocks = Clocks()
        self.pending: list[Operation] = []
        self.issued = 0
        self.barrier = NamedBarrier()
        self.activity = Counter()
        """Moves with every word of memory that a warp changes: what others who look at words sleep on."""
        cx, cy, cz = launch.cluster
        self.ranks = [(first[0] + x, first[1] + y, first[2] + z) for z in range(cz) for y in range(cy) for x in range(cx)]
        self.blocks = [Block(self, rank, ctaid) for rank, ctaid in enumerate(self.ranks)]
        self.warps = [w for b in self.blocks for w in b.warps]

    def parameter(self, name: str, offset: int, size: int) -> int:
        """A value in the parameters of the launch."""
        begin = self.code.parameter(name).offset + offset
        return int.from_bytes(self.launch.parameters[begin : begin + size], "little")

    def parameter_at(self, address: int, size: int) -> int:
        """A value in the parameters by its generic address."""
        begin = address - PARAMETERS
        return int.from_bytes(self.launch.parameters[begin : begin + size], "little")

    def bytes_at(self, address: int, size: int) -> bytes | None:
        """Constant bytes in the parameters or in global memory, None if there is nothing."""
        begin = address - PARAMETERS
        if begin >= 0 and begin + size <= len(self.launch.parameters):
            return self.launch.parameters[begin : begin + size]
        place = self.memory.find(address, size)
        return place[0].data[place[1] : place[1] + size].tobytes() if place else None

    def linear(self, ctaid: tuple[int, int, int]) -> int:
        """Number of a block in the grid."""
        x, y, _ = self.launch.grid
        return ctaid[0] + x * (ctaid[1] + y * ctaid[2])

    def block_of(self, address: int) -> Block | None:
        """The block whose shared memory window has an address."""
        rank = address >> WINDOW
        return self.blocks[rank] if 0 <= rank < len(self.blocks) else None

    def submit(self, operation: Operation) -> Operation:
        """Put an operation in flight."""
        self.issued += 1
        operation.number = self.issued
        self.pending.append(operation)
        if self.scheduler.at_once:
            self.settle()
        return operation

    def settle(self) -> None:
        """Let all operations that may do so take effect, oldest first."""
        moved = True
        while moved:
            moved = False
            for operation in list(self.pending):
                if operation.ready:
                    self.finish(operation)
                    moved = True

    def finish(self, operation: Operation) -> None:
        """Let one operation take effect."""
        self.pending.remove(operation)
        operation.run()

    def operation_clock(self, clock: Clock) -> tuple[int, Clock]:
        """Component and clock for an operation issued under ``clock``."""
        return self.clocks.operation(clock)
