"""Attention forward for sm90, head dim 64: 192 query rows by 128 keys an iteration. Generated; do not edit.

Command:   twill emit sm90_attn_fwd_d64
Schedule:  ee85495aa9f7eafaeb0e998db061ec6799ed708fa36661918f7fbb2c01590bd2
Solved by: twill solve --arch sm90 attn_fwd --head-dim 64
I = 2271 cycles an iteration, L = 5018, optimal.

Role functions run in warp groups of their own. i is the iteration at which a role stands; an op of i - 1 belongs to the tile of
keys before. Barriers count iterations on through all work tiles of a block.
"""

from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from twill.emit.sm90 import tiles

SCHEDULE = "ee85495aa9f7eafaeb0e998db061ec6799ed708fa36661918f7fbb2c01590bd2"
TILES = tiles.Tiles(head_dim=64, head_dim_v=64, keys=128, subtiles=3)
# role of the schedule: its function, its first warp
ROLES = {
    "softmax_a": ("softmax", 0),
    "softmax_b": ("softmax", 4),
    "softmax_c": ("softmax", 8),
    "load": ("load", 12),
}
STORAGE = {
    "K": tiles.Buffer(offset=0, stride=16384, stages=5),
    "V": tiles.Buffer(offset=81920, stride=16384, stages=6),
    "Q": tiles.Buffer(offset=180224, stride=24576, stages=1),
    "O_staging": tiles.Buffer(offset=204800, stride=24576, stages=1),
}
BARRIERS = {
    # around the loop: Q and, below, the number of the next work tile; a slot of Q is a sub-tile
    "Q_full": tiles.RingShape(slots=3, arrivals=1, tx_bytes=8192),
    "Q_empty": tiles.RingShape(slots=3, arrivals=4),
    "work_full": tiles.RingShape(slots=2, arrivals=1),
    "work_empty": tiles.RingShape(slots=2, arrivals=13),
    # edge LK->QK_a; edge LK->QK_b; edge LK->QK_c
    "K_full": tiles.RingShape(slots=5, arrivals=1, tx_bytes=16384),
    # edge LV->PV_a; edge LV->PV_b; edge LV->PV_c
    "V_full": tiles.RingShape(slots=6, arrivals=1, tx_bytes=16384),
    # release K by QK_a; release K by QK_b; release K by QK_c
    "K_empty": tiles.RingShape(slots=5, arrivals=12),
    # release V by PV_a; release V by PV_b; release V by PV_c
    "V_empty": tiles.RingShape(slots=6, arrivals=12),
}


@cute.jit
def queries(block: cutlass.Constexpr) -> None:
    """1 warp beside those of the schedule: shares out work tiles and loads their Q."""
    turn = tiles.start((1, 2))
    tiles.prefetch(block)
    number = tiles.claim(block)
    tiles.announce(block, turn, number)
    while number < block.work_tiles:
        tiles.load_q(block, turn, number)
        number = tiles.claim(block, number)
        tiles.advance(turn)
        tiles.announce(block, turn, number)


def softmax_skip(ring: Any, i: Any) -> None:
    """An iteration in which no row of softmax sees a key: what it would have used goes back unused."""
    tiles.wait(ring["K_full"], i)
    tiles.arrive(ring["K_empty"], i)
    tiles.wait(ring["V_full"], i)
    tiles.arrive(ring["V_empty"], i)
    tiles.advance(i)


def softmax_period(ring: Any, tile: Any, i: Any, masked: bool) -> None:
    """A period of softmax in the steady state."""
    tiles.wait_peeked(ring["K_full"], i)
    tiles.mma_qk(tile, i)
    tiles.rescale_if_grown(tile, i - 1)
    tiles.wait_peeked(ring["V_full"], i - 1)
    tiles.mma_pv(tile, i - 1)
    tiles.wait_mma(1)  # edge QK->MAX; release K by QK
    tiles.arrive(ring["K_empty"], i)
    tiles.peek(ring["K_full"], i + 1)
    tiles.peek(ring["V_full"], i)
    tiles.row_max(tile, i, masked=masked)
    tiles.exp2(tile, i)
    tiles.row_sum(tile, i)
    tiles.wait_mma(0)  # registers P by PV; release V by PV
    tiles.arrive(ring["V_empty"], i - 1)
    tiles.convert(tile, i)
    tiles.advance(i)


@cute.jit
def softmax_work(
    block: cutlass.Constexpr, tile: cutlass.Constexpr, i: cutlass.Constexpr, turn: cutlass.Constexpr, number: cutlass.Int32,
) -> None:  # fmt: skip
    """A work tile of softmax."""
    ring, work = block.rings, tiles.locate(block, turn, number)
    tiles.begin(i)
    tile = tiles.begin_work(tile, work)
    work = tile.work
    tiles.wait_slot(ring["Q_full"], tile.subtile, turn)
    for _ in cutlass.range(0, work.skipped, unroll=1):
        softmax_skip(ring, i)
    if work.trips > 0:
        tiles.wait(ring["K_full"], i)
        tiles.mma_qk(tile, i)
        tiles.wait_mma(0)  # edge QK->MAX; release K by QK
        tiles.arrive(ring["K_empty"], i)
        tiles.row_max(tile, i, masked=True)
        tiles.exp2(tile, i)
        tiles.row_sum(tile, i)
        tiles.convert(tile, i)
        tiles.advance(i)
        if cutlass.const_expr(block.causal):
            for _ in cutlass.range(1, work.masked, unroll=1):
                softmax_period(ring, tile, i, masked=True)
        for _ in cutlass.range(work.masked, work.trips, unroll=1):
            softmax_period(ring, tile, i, masked=False)
    tiles.arrive_slot(ring["Q_empty"], tile.subtile)
    if work.trips > 0:
        tiles.rescale_if_grown(tile, i - 1)
        tiles.wait(ring["V_full"], i - 1)
        tiles.mma_pv(tile, i - 1)
        tiles.wait_mma(0)  # registers P by PV; release V by PV
        tiles.arrive(ring["V_empty"], i - 1)
    tiles.finish(tile, barrier_id=1 + tile.subtile)


@cute.jit
def softmax(block: cutlass.Constexpr, subtile: cutlass.Int32) -> None:
    """4 warps each; sub-tiles a, b, c; the schedule asks for 160 registers a thread."""
    i, turn = tiles.start((5, 6), peeked=("K_full", "V_full")), tiles.start((1, 2))
    tile = tiles.consumer(block, subtile=subtile, keep=8.0)
    number = tiles.first(block, turn)
    while number < block.work_tiles:
        softmax_work(block, tile, i, turn, number)
        number = tiles.following(block, turn, number)
    tiles.leave(tile)


def load_period(ring: Any, source: Any, i: Any) -> None:
    """A period of load in the steady state."""
    tiles.wait(ring["K_empty"], i, distance=5)
    tiles.load_k(source, i, ring["K_full"])
    tiles.wait(ring["V_empty"], i, distance=6)
    tiles.load_v(source, i, ring["V_full"])
    tiles.advance(i)


@cute.jit
def load_work(
    block: cutlass.Constexpr, i: cutlass.Constexpr, turn: cutlass.Constexpr, number: cutlass.Int32,
) -> None:  # fmt: skip
    """A work tile of load."""
    ring, work = block.rings, tiles.locate(block, turn, number)
    tiles.begin(i)
    source = tiles.loader(block, work)
    for _ in cutlass.range(0, work.trips, unroll=1):
        load_period(ring, source, i)


@cute.jit
def load(block: cutlass.Constexpr) -> None:
    """1 warp; the schedule asks for 24 registers a thread."""
    i, turn = tiles.start((5, 6)), tiles.start((1, 2))
    number = tiles.first(block, turn)
    while number < block.work_tiles:
        load_work(block, i, turn, number)
        number = tiles.following(block, turn, number)


@cute.kernel
def kernel(
    q_tma: cute.CopyAtom, q: cute.Tensor, k_tma: cute.CopyAtom, k: cute.Tensor, v_tma: cute.CopyAtom, v: cute.Tensor,
    o_tma: cute.CopyAtom, o: cute.Tensor, lse: cute.Tensor | None, counter: cute.Tensor | None, batch: cutlass.Int32,
    seqlen_q: cutlass.Int32, heads: cutlass.Int32, seqlen_k: cutlass.Int32, kv_heads: cutlass.Int32,
    softmax_scale: cutlass.Float32, causal: cutlass.Constexpr, dtype: cutlass.Constexpr,
) -> None:  # fmt: skip
    """A block: every warp group goes to its role."""
    given = tiles.Operands((q_tma, q), (k_tma, k), (v_tma, v), (o_tma, o))
    shape = (batch, seqlen_q, heads, seqlen_k, kv_heads)
    block = tiles.enter(TILES, STORAGE, BARRIERS, causal, dtype, given, lse, counter, shape, softmax_scale)
    if block.warp < 12:
        cute.arch.setmaxregister_increase(160)
        softmax(block, block.warp // 4)
    else:
        cute.arch.setmaxregister_decrease(32)
        if block.warp == 12:
            load(block)
        if block.warp == 13:
            queries(block)


kernel.set_name_prefix("twill_sm90_attn_fwd_d64", remove_cutlass_symbol=True, keep_mangled_name=False)


@cute.jit
def attn_fwd(
    q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, lse: cute.Tensor | None, counter: cute.Tensor | None,
    softmax_scale: cutlass.Float32, sm_count: cutlass.Int32, causal: cutlass.Constexpr, stream: cuda.CUstream,
) -> None:  # fmt: skip
    """O = softmax(Q K^T * softmax_scale) V; all (batch, seq, heads, dim), dim contiguous; lse (batch, heads, seq) or None.

    At most ``sm_count`` blocks are launched. They take work tiles in turn or, given a ``counter``, as they come to need them.
    A counter is one int32 in global memory, 0 before and after, and belongs to one launch at a time.
    """
    given = tiles.operands(TILES, STORAGE, q, k, v, o)
    kernel(
        *given.q, *given.k, *given.v, *given.o, lse, counter, q.shape[0], q.shape[1], q.shape[2], k.shape[1], k.shape[2],
        softmax_scale, causal, q.element_type,
    ).launch(grid=tiles.grid(TILES, q, sm_count), block=(512, 1, 1), smem=tiles.smem_bytes(STORAGE, BARRIERS), stream=stream)  # fmt: skip
