"""A warp: its registers, where its lanes are, and how segments of code are run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from twill.emulate.findings import Finding, Kind
from twill.emulate.machine.asynchronous import Groups, Operation
from twill.emulate.machine.barriers import Counter

if TYPE_CHECKING:
    from twill.emulate.machine.block import Block
    from twill.emulate.machine.code import Code

__all__ = ["BLOCKED", "EXITED", "Warp"]

Array = np.ndarray[Any, Any]

EXITED, BLOCKED, SPLIT = -1, -2, -3
STEPS = 3_000_000
LANES = np.arange(32, dtype=np.uint32)


class Warp:
    """32 lanes of a block. Generated code gets it as ``w`` and works on ``w.R``."""

    def __init__(self, block: Block, index: int, code: Code) -> None:
        self.block, self.index, self.code = block, index, code
        self.R: list[Any] = list(code.initial)
        self.tid = self._threads(index)
        self.component, self.clock = block.cluster.clocks.component()
        role = code.role(index)
        self.name = f"warp {index}" + (f" ({role})" if role else "") + (f" of block {block.rank}" if len(block.cluster.ranks) > 1 else "")
        self.fragments: list[tuple[int, Array | None]] = [(0, None)]
        self.waits: list[tuple[Counter, int, str]] = []
        self.token: Any = None
        self.cluster_generation: int | None = None
        self.tried, self.tries = (0, 0, 0), 0
        self.peeked = (0, -1)
        """Barrier and phase of the last try that failed although the phase was over."""
        self.looked: int | None = None
        """How many words of memory had changed when the warp first looked at one since it last slept."""
        self.done = False
        self.line = 0
        self.taught: set[int] = set()
        self.steps = 0
        self.registers = block.launch_registers
        self.wgmma, self.bulk, self.copies = Groups(), Groups(), Groups()
        self.last_wgmma: Operation | None = None
        self.multiplies: list[Any] = []
        self.tensor_stores: list[Operation] = []
        self.tensor_done = Counter()
        self.tensor_queue: tuple[int, Any, Operation | None] | None = None

    def _threads(self, index: int) -> tuple[Array, Array, Array]:
        x, y, _ = self.block.dimensions
        linear = LANES + np.uint32(32 * index)
        return linear % np.uint32(x), linear // np.uint32(x) % np.uint32(y), linear // np.uint32(x * y)

    # clocks

    def release(self) -> Any:
        """What has happened in this warp up to now; later events get a new time."""
        snapshot = self.clock.copy()
        self.clock[0, self.component] += 1
        return snapshot

    def acquire(self, clock: Any, line: int) -> None:
        """What ``clock`` knows has happened before what this warp does next; the wait on ``line`` has seen it."""
        if line not in self.taught and (clock > self.clock).any():
            self.taught.add(line)
        np.maximum(self.clock, clock, out=self.clock)

    # what generated code asks for

    def address(self, symbol: str, offset: int) -> int:
        """Address of a variable in shared memory, or of a parameter."""
        return self.block.address(symbol) + offset

    def special(self, name: str) -> Any:
        """A special register."""
        if name.startswith("%tid."):
            return self.tid["xyz".index(name[-1])]
        if name == "%laneid":
            return LANES
        if name == "%warpid":
            return self.index
        return self.block.special(name)

    def shuffle(self, mode: str, a: Array, lane: Any, clamp: Any) -> tuple[Array, Array]:
        """Source lane of each lane per PTX ISA 9.7.9.6: bits 0-4 of ``clamp`` are the bound, bits 8-12 the segment."""
        own, width, segment = LANES.astype(np.int64), np.asarray(clamp, np.int64) & 31, np.asarray(clamp, np.int64) >> 8 & 31
        top = (own & segment) | (width & ~segment)
        low = own & segment
        b = np.asarray(lane, np.int64) & 31
        source = {"up": own - b, "down": own + b, "bfly": own ^ b, "idx": low | (b & ~segment)}[mode]
        inside = source >= top if mode == "up" else source <= top
        source = np.where(inside, source, own)
        return a[source], inside

    def wait(self, counter: Counter, reason: str) -> int:
        """Leave the segment before anything in it has happened; it is tried again when ``counter`` has moved."""
        self.waits.append((counter, counter.version, reason))
        return BLOCKED

    def trap(self, line: int) -> None:
        self.find("warp", line, "executes a trap")

    def find(self, kind: Kind, line: int, text: str, key: str = "", severity: Any = "error") -> None:
        """Report something."""
        cluster = self.block.cluster
        cluster.findings.add(Finding(kind, text, line, self.code.source(line), self.place, severity, self.code.statement(line)), key)

    @property
    def place(self) -> str:
        """Who this is, for reports."""
        return f"{self.name}, block {self.block.ctaid}"

    # control flow

    def branch(self, p: Array, taken: int, follows: int, mask: Array | None) -> int:
        """A jump whose predicate differs between lanes, perhaps."""
        active = p if mask is None else p & mask
        if not active.any():
            return follows
        others = ~p if mask is None else ~p & mask
        if not others.any():
            return taken
        self._pending = [(taken, active), (follows, others)]
        return SPLIT

    @property
    def runnable(self) -> bool:
        return not self.done and (not self.waits or any(c.version != seen for c, seen, _ in self.waits))

    def run(self, quantum: int) -> None:
        """Run segments until the warp has to wait, has ended, or ``quantum`` segments with effects on others are over."""
        self.waits.clear()
        functions, effects, hits = self.code.whole, self.code.effects, self.code.hits
        while not self.done:
            if len(self.fragments) == 1 and self.fragments[0][1] is None:
                at = self.fragments[0][0]
                self.steps += 1
                hits[at] = 1
                after = functions[at](self)
                if after >= 0:
                    self.fragments[0] = (after, None)
                elif after == BLOCKED:
                    return
                elif after == SPLIT:
                    self.fragments = list(self._pending)
                else:
                    self._exit()
                    return
                if effects[at]:
                    quantum -= 1
                    if quantum <= 0:
                        return
                if self.steps > STEPS:
                    self.find("limit", self.code.first_line(at), f"more than {STEPS} segments of code were run: an endless loop?")
                    self._exit()
                    return
            elif not self._run_divergent():
                return

    def _run_divergent(self) -> bool:
        """One segment of the lanes that are furthest behind, or of the first others that can go on. False if none can."""
        self._merge()
        self.waits.clear()
        if len(self.fragments) == 1 and self.fragments[0][1] is None:
            return True
        for i, (at, mask) in enumerate(self.fragments):
            assert mask is not None
            self.steps += 1
            if self.code.needs_all[at] and len(self.fragments) > 1:
                continue
            self.code.hits[at] = 1
            after = self.code.masked(at)(self, mask)
            if after == BLOCKED:
                continue
            self.waits.clear()
            if after >= 0:
                self.fragments[i] = (after, mask)
            elif after == SPLIT:
                self.fragments[i : i + 1] = self._pending
            else:
                del self.fragments[i]
                if not self.fragments:
                    self._exit()
                    return False
            return True
        if not self.waits:
            at, _ = self.fragments[0]
            line = self.code.first_line(at)
            self.find("warp", line, "an instruction for all lanes of the warp is reached by some only")
            self._exit()
        return False

    def _merge(self) -> None:
        places: dict[int, Array] = {}
        for at, mask in self.fragments:
            lanes = mask if mask is not None else np.ones(32, bool)
            places[at] = places[at] | lanes if at in places else lanes
        self.fragments = [(at, None if mask.all() else mask) for at, mask in sorted(places.items())]

    def _exit(self) -> None:
        self.done = True
        self.block.warp_exits(self)

    _pending: list[tuple[int, Array | None]]
