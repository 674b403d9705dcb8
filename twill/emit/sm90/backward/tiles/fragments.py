"""What a warpgroup holds in registers: the scores of a sub-tile of keys, dV and dK of it, a part of dQ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import OperandMajorMode, warpgroup
from cutlass.utils import hopper_helpers

from twill.emit.sm90.backward.tiles.block import HEIGHT, LETTERS
from twill.emit.tiles.backward.block import Block
from twill.emit.tiles.backward.work import Work
from twill.emit.tiles.barriers import NamedBarrier

__all__ = [
    "WARPGROUP", "Accumulator", "Gradient", "Scores", "begin_work", "dk", "dk_mma", "dq", "dq_mma", "dv", "dv_mma", "qk_mma", "scores",
    "turned",
]  # fmt: skip

WARPGROUP = 128
LOG2_E = 1.4426950408889634


@dataclass(frozen=True, eq=False)
class Scores:
    """64 keys by the queries of an iteration, as rows of S^T: two keys a thread, ``key`` and ``key + 8`` of its warp's 16.

    ``s`` holds scores and then their exponentials, ``dp`` dP and then dS; value 4 g + 2 h + c is of key h and query
    8 g + 2 (thread mod 4) + c. ``p_packed`` and ``ds_packed`` are P and dS in pairs, which ``p`` and ``ds`` show as A operands. LSE and
    dPsum have a value for each of the thread's queries. ``meeting`` is where the warpgroup's warps meet.
    """

    block: Block
    work: Any
    subtile: int
    thread: Any
    meeting: NamedBarrier
    k: Any
    q: Any
    v: Any
    do: Any
    s: Any
    dp: Any
    p_packed: Any
    p: Any
    ds_packed: Any
    ds: Any
    lse: Any
    dpsum: Any
    scale_log2: Any


@dataclass(frozen=True, eq=False)
class Accumulator:
    """dV or dK of 64 keys; ``b`` is dO or Q as the B operand."""

    block: Block
    work: Any
    subtile: int
    thread: Any
    meeting: NamedBarrier
    b: Any
    sum: Any


@dataclass(frozen=True, eq=False)
class Gradient:
    """A part of dQ or dQ^T, and its operands of each sub-tile of keys; the role adds ``others`` to global memory too."""

    block: Block
    work: Any
    part: int
    others: int
    thread: Any
    meeting: NamedBarrier
    operands: tuple[tuple[Any, Any], ...]
    sum: Any
    staging: Any


def _mma(b: Block, a_kind: Any, b_kind: Any, columns: int, source: Any) -> Any:
    return hopper_helpers.make_trivial_tiled_mma(b.dtype, b.dtype, a_kind, b_kind, cutlass.Float32, (1, 1, 1), (HEIGHT, columns), source)


def qk_mma(b: Block) -> Any:
    """S^T = K Q^T, and dP^T = V dO^T."""
    return _mma(b, OperandMajorMode.K, OperandMajorMode.K, b.tiles.queries, warpgroup.OperandSource.SMEM)


def dv_mma(b: Block) -> Any:
    """dV += P^T dO."""
    return _mma(b, OperandMajorMode.K, OperandMajorMode.MN, b.tiles.columns_v, warpgroup.OperandSource.RMEM)


def dk_mma(b: Block) -> Any:
    """dK += dS^T Q."""
    return _mma(b, OperandMajorMode.K, OperandMajorMode.MN, b.tiles.columns, warpgroup.OperandSource.RMEM)


def dq_mma(b: Block) -> Any:
    """dQ = dS K, or dQ^T = K^T dS^T."""
    k, mn = OperandMajorMode.K, OperandMajorMode.MN
    kinds = (k, mn) if b.tiles.divides == "queries" else (mn, k)
    return _mma(b, *kinds, b.tiles.dq_shape[1], warpgroup.OperandSource.SMEM)


def turned(tensor: Any) -> Any:
    """A tile in SMEM with rows and columns exchanged."""
    return cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=[1, 0, 2]))


def _thread() -> Any:
    return cute.arch.thread_idx()[0] % WARPGROUP


def _packed(mma: Any, dtype: Any, queries: int) -> tuple[Any, Any]:
    """Registers for a tile in the input's type, as words and as the A operand."""
    words = cute.make_rmem_tensor(queries // 4, cutlass.Int32)
    layout = mma.make_fragment_A(mma.partition_shape_A((HEIGHT, queries))).layout
    return words, cute.make_tensor(cute.recast_ptr(words.iterator, dtype=dtype), layout)


def scores(b: Block, subtile: int, meeting: str) -> Scores:
    """The fragments of the scores of a sub-tile, not yet at work."""
    queries, thread, qk = b.tiles.queries, _thread(), qk_mma(b)
    mine = qk.get_slice(thread)
    p_packed, p = _packed(dv_mma(b), b.dtype, queries)
    ds_packed, ds = _packed(dk_mma(b), b.dtype, queries)
    shape = qk.partition_shape_C((HEIGHT, queries))
    return Scores(
        block=b, work=None, subtile=subtile, thread=thread, meeting=b.rings[meeting],
        k=qk.make_fragment_A(mine.partition_A(b.smem["K"])), q=qk.make_fragment_B(mine.partition_B(b.smem["Q"])),
        v=qk.make_fragment_A(mine.partition_A(b.smem["V"])), do=qk.make_fragment_B(mine.partition_B(b.smem["dO"])),
        s=cute.make_rmem_tensor(shape, cutlass.Float32), dp=cute.make_rmem_tensor(shape, cutlass.Float32),
        p_packed=p_packed, p=p, ds_packed=ds_packed, ds=ds,
        lse=cute.make_rmem_tensor((2, queries // 8), cutlass.Float32), dpsum=cute.make_rmem_tensor((2, queries // 8), cutlass.Float32),
        scale_log2=b.softmax_scale * LOG2_E,
    )  # fmt: skip


def _accumulator(b: Block, subtile: int, meeting: str, mma: Any, operand: str, columns: int) -> Accumulator:
    thread = _thread()
    fragment = mma.make_fragment_B(mma.get_slice(thread).partition_B(turned(b.smem[operand])))
    made = cute.make_rmem_tensor(mma.partition_shape_C((HEIGHT, columns)), cutlass.Float32)
    return Accumulator(b, None, subtile, thread, b.rings[meeting], fragment, made)


def dv(b: Block, subtile: int, meeting: str) -> Accumulator:
    """dV of a sub-tile, not yet at work."""
    return _accumulator(b, subtile, meeting, dv_mma(b), "dO", b.tiles.columns_v)


def dk(b: Block, subtile: int, meeting: str) -> Accumulator:
    """dK of a sub-tile, not yet at work."""
    return _accumulator(b, subtile, meeting, dk_mma(b), "Q", b.tiles.columns)


def dq(b: Block, part: int, meeting: str, others: int = 0) -> Gradient:
    """A part of dQ, not yet at work; ``others`` are there beside it in the same role."""
    t, mma, thread = b.tiles, dq_mma(b), _thread()
    mine, (rows, columns) = mma.get_slice(thread), t.dq_shape
    k = turned(b.smem["K"])
    operands = []
    for y in range(t.subtiles):
        ds, own_k = b.smem[f"dS_{LETTERS[y]}"], k[None, None, y]
        if t.divides == "queries":
            a = mma.make_fragment_A(mine.partition_A(cute.local_tile(ds, (rows, t.sub_keys), (part, 0, None))))
            operands.append((a, mma.make_fragment_B(mine.partition_B(own_k))))
        else:
            a = mma.make_fragment_A(mine.partition_A(cute.local_tile(own_k, (rows, t.sub_keys), (part, 0))))
            operands.append((a, mma.make_fragment_B(mine.partition_B(ds))))
    made = cute.make_rmem_tensor(mma.partition_shape_C((rows, columns)), cutlass.Float32)
    name = "dQ" if t.parts == 1 else f"dQ_{LETTERS[part]}"
    return Gradient(b, None, part, others, thread, b.rings[meeting], tuple(operands), made, b.smem[name])


def begin_work(x: Any, work: Work) -> Any:
    """The fragments at work on a work tile; what accumulates over it begins with 0."""
    if isinstance(x, Accumulator):
        x.sum.fill(0.0)
    return replace(x, work=work)
