"""The MMAs of one warpgroup: S = Q K^T from SMEM, O += P V with P from registers. Both only issue; `wait_mma` waits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import OperandMajorMode, warpgroup
from cutlass.utils import hopper_helpers

from twill.emit.sm90.tiles.block import ROWS
from twill.emit.tiles.block import Block
from twill.emit.tiles.head_dims import MMA_DEPTH
from twill.emit.tiles.iteration import Iteration, place
from twill.emit.tiles.work import Work, held, hold, locate, sub_tile

__all__ = ["Consumer", "begin_work", "coming", "consumer", "grow_older", "joins", "mma_pv", "mma_qk", "take", "wait_mma"]

WARPGROUP = 128


@dataclass(frozen=True, eq=False)
class Consumer:
    """A warpgroup with its 64 query rows: fragments in registers, two rows a thread (``row`` and ``row + 8`` of its warp's 16).

    ``scores`` holds scores and then their exponentials, ``packed`` these in pairs, which ``p`` shows as the A operand. Value
    4 g + 2 h + c of scores and ``o`` is row h, column 8 g + 2 (thread mod 4) + c. The statistics have an entry a row; ``row_max`` is
    in powers of two, ``row_sum`` is the thread's share. ``scores``, ``shift`` and ``factor`` have a copy for each age: copy 0 is that of
    the latest iteration. ``keep`` is by how many powers of two a maximum may lag behind, ``grown`` 1 where O is still to be rescaled.
    """

    block: Block
    work: Any
    subtile: Any
    thread: Any
    q: Any
    k: Any
    v: Any
    scores: tuple[Any, ...]
    packed: Any
    p: Any
    o: Any
    row_max: Any
    row_sum: Any
    grown: Any
    shift: tuple[Any, ...]
    factor: tuple[Any, ...]
    scale_log2: Any
    keep: float

    @property
    def waits_for_growth(self) -> bool:
        """Whether maxima and factors are touched only where a maximum grows: no op may ask for those of an older iteration."""
        return self.keep > 0 and len(self.factor) == 1


def _qk(b: Block) -> Any:
    kinds = (OperandMajorMode.K, OperandMajorMode.K)
    return hopper_helpers.make_trivial_tiled_mma(b.dtype, b.dtype, *kinds, cutlass.Float32, (1, 1, 1), (ROWS, b.tiles.keys))


def _pv(b: Block) -> Any:
    kinds = (OperandMajorMode.K, OperandMajorMode.MN)
    return hopper_helpers.make_trivial_tiled_mma(
        b.dtype, b.dtype, *kinds, cutlass.Float32, (1, 1, 1), (ROWS, b.tiles.columns_v), warpgroup.OperandSource.RMEM
    )


LOG2_E = 1.4426950408889634


def consumer(b: Block, subtile: Any, keep: float = 0.0, scores: int = 1, factors: int = 1) -> Consumer:
    """The fragments of a warpgroup, not yet at work; ``scores`` and ``factors`` say how many copies there are, ``keep`` by how many
    powers of two a row maximum may lag behind.
    """
    t = b.tiles
    qk, pv = _qk(b), _pv(b)
    thread = cute.arch.thread_idx()[0] % WARPGROUP
    mine_qk, mine_pv = qk.get_slice(thread), pv.get_slice(thread)
    packed = cute.make_rmem_tensor(t.keys // 4, cutlass.Int32)
    p_layout = pv.make_fragment_A(pv.partition_shape_A((ROWS, t.keys))).layout
    return Consumer(
        block=b, work=held(), subtile=subtile, thread=thread,
        q=qk.make_fragment_A(mine_qk.partition_A(b.q)), k=qk.make_fragment_B(mine_qk.partition_B(b.k)),
        v=pv.make_fragment_B(mine_pv.partition_B(b.v)),
        scores=tuple(cute.make_rmem_tensor(qk.partition_shape_C((ROWS, t.keys)), cutlass.Float32) for _ in range(scores)),
        packed=packed, p=cute.make_tensor(cute.recast_ptr(packed.iterator, dtype=b.dtype), p_layout),
        o=cute.make_rmem_tensor(pv.partition_shape_C((ROWS, t.columns_v)), cutlass.Float32),
        row_max=cute.make_rmem_tensor(2, cutlass.Float32), row_sum=cute.make_rmem_tensor(2, cutlass.Float32),
        grown=cute.make_rmem_tensor(1, cutlass.Int32), shift=tuple(cute.make_rmem_tensor(2, cutlass.Float32) for _ in range(factors)),
        factor=tuple(cute.make_rmem_tensor(2, cutlass.Float32) for _ in range(factors)),
        scale_log2=b.softmax_scale * LOG2_E, keep=keep,
    )  # fmt: skip


def _clear(x: Consumer) -> None:
    x.o.fill(0.0)
    x.row_max.fill(-cutlass.Float32.inf)
    x.row_sum.fill(0.0)
    x.grown[0] = cutlass.Int32(0)
    x.factor[0].fill(1.0)


def begin_work(x: Consumer, work: Work, whole: bool = False) -> Consumer:
    """The fragments at work on their rows of a work tile, with O = 0 and no key seen yet; ``whole``: in step with all its rows."""
    _clear(x)
    own = sub_tile(x.block, work, x.subtile)
    return replace(x, work=replace(work, first_row=own.first_row) if whole else own)


def coming(x: Consumer, turn: Iteration, number: Any) -> Work:
    """The warpgroup's share of the ``turn``-th work tile, whose number is known; past the last there are no iterations in it."""
    work = sub_tile(x.block, locate(x.block, turn, number), x.subtile)
    there = number < x.block.work_tiles
    none = cutlass.Int32(0)
    return replace(work, trips=cutlass.Int32(cutlass.select_(there, work.trips, none)))


def take(x: Consumer, work: Work) -> None:
    """Put the fragments to work on another work tile, with O = 0 and no key seen yet."""
    hold(x.work, work)
    _clear(x)


def joins(x: Consumer, work: Work) -> Any:
    """Whether the end of the work tile at work can run into the beginning of the next.

    Both must have iterations, and what the next skips must not need the slot of V that the last PV is still to read.
    """
    stages = cute.size(x.block.v, mode=[2])
    return (x.work.trips > 0) & (work.trips > 0) & (work.skipped < stages)


def grow_older(copies: tuple[Any, ...]) -> None:
    """Every copy takes the place of the next older one; copy 0 is free."""
    for older, younger in zip(reversed(copies[1:]), reversed(copies[:-1]), strict=True):
        older.store(younger.load())


def _issue(mma: Any, out: Any, a: Any, b: Any, steps: int, accumulate: bool) -> None:
    warpgroup.fence()
    for step in range(steps):
        mma.set(warpgroup.Field.ACCUMULATE, accumulate or step > 0)
        cute.gemm(mma, out, a[None, None, step], b[None, None, step], out)
    warpgroup.commit_group()


def mma_qk(x: Consumer, i: Iteration) -> None:
    """Issue S = Q K^T with the tile of K in its slot."""
    grow_older(x.scores)
    slot, _ = place(i, cute.size(x.block.k, mode=[2]))
    q, k = x.q[None, None, None, x.subtile], x.k[None, None, None, slot]
    _issue(_qk(x.block), x.scores[0], q, k, x.block.tiles.columns // MMA_DEPTH, accumulate=False)


def mma_pv(x: Consumer, i: Iteration) -> None:
    """Issue O += P V with the tile of V in its slot."""
    slot, _ = place(i, cute.size(x.block.v, mode=[2]))
    _issue(_pv(x.block), x.o, x.p, x.v[None, None, None, slot], x.block.tiles.keys // MMA_DEPTH, accumulate=True)


def wait_mma(pending: int) -> None:
    """Wait until at most ``pending`` of the warpgroup's latest MMAs are unfinished."""
    warpgroup.wait_group(pending)
