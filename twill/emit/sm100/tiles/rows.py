"""A warpgroup with the 128 rows of a sub-tile, a row a thread."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cutlass
import cutlass.cute as cute

from twill.emit.sm100.tiles.block import ROWS, Block
from twill.emit.sm100.tiles.memory import lanes
from twill.emit.sm100.tiles.mma import LETTERS
from twill.emit.tiles.work import Work, sub_tile

__all__ = ["Rows", "begin_work", "grow_older", "rows"]

LOG2_E = 1.4426950408889634


@dataclass(frozen=True, eq=False)
class Rows:
    """What a thread holds of its row; roles use what their ops need of it.

    ``scores`` holds scores and then their exponentials, ``row_max`` is in units of the scores. ``scores``, ``scaled_max`` and ``factor``
    have a copy for each age: copy 0 is that of the latest iteration.
    """

    block: Block
    work: Any
    subtile: int
    thread: Any
    lanes: Any
    scores: tuple[Any, ...]
    row_max: Any
    row_sum: Any
    scaled_max: tuple[Any, ...]
    factor: tuple[Any, ...]
    scale_log2: Any

    def address(self, name: str, slot: Any = 0) -> Any:
        """Address of a slot of tensor memory for the thread's warp."""
        return self.block.column(name, slot) + self.lanes

    @property
    def scores_buffer(self) -> str:
        """Name of the buffer of S and P."""
        return f"SP_{LETTERS[self.subtile]}"

    @property
    def output(self) -> str:
        """Name of the buffer of O."""
        return f"O_{LETTERS[self.subtile]}"

    @property
    def factors(self) -> str:
        """Name of the slot through which rescale factors go to another role, if they do."""
        return f"factor_{LETTERS[self.subtile]}"


def rows(b: Block, subtile: int, copies: int = 1) -> Rows:
    """The registers of a warpgroup, not yet at work, with that many copies of what has an age."""

    def registers(count: int) -> Any:
        return cute.make_rmem_tensor(count, cutlass.Float32)

    return Rows(
        block=b, work=None, subtile=subtile, thread=cute.arch.thread_idx()[0] % ROWS, lanes=lanes(b.warp),
        scores=tuple(registers(b.tiles.keys) for _ in range(copies)), row_max=registers(1), row_sum=registers(1),
        scaled_max=tuple(registers(1) for _ in range(copies)), factor=tuple(registers(1) for _ in range(copies)),
        scale_log2=b.softmax_scale * LOG2_E,
    )  # fmt: skip


def begin_work(x: Rows, work: Work) -> Rows:
    """The rows at work on a work tile, no key seen yet.

    All sub-tiles walk the same keys, since one warp issues for all; but under a causal mask later rows need a mask for fewer of them.
    """
    b = x.block
    x.row_max.fill(-cutlass.Float32.inf)
    x.row_sum.fill(0.0)
    if b.causal:
        own = sub_tile(b, work, x.subtile)
        work = replace(work, masked=cutlass.min(own.skipped + own.masked, cutlass.max(work.trips, cutlass.Int32(1))))
    return replace(x, work=work)


def grow_older(copies: tuple[Any, ...]) -> None:
    """Every copy takes the place of the next older one; copy 0 is free."""
    for older, younger in zip(reversed(copies[1:]), reversed(copies[:-1]), strict=True):
        older.store(younger.load())
