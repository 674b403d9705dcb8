"""Attention forward for sm103, head dim 128: 256 query rows by 128 keys an iteration. Generated; do not edit.

Command:   twill emit sm103_attn_fwd_d128
Schedule:  ea1f1ca26405a7ec24792e3e356c74f87380f6abe12e51aba58f3d4b93364220
Solved by: twill solve --arch sm103 attn_fwd --head-dim 128
I = 2541 cycles an iteration, L = 4478, optimal.
No Blackwell GPU has run it: it is right under `twill emulate`.

Role functions run in warp groups of their own. i is the iteration at which a role stands; an op of i - 1 belongs to the tile of
keys before. Barriers count iterations on through all work tiles of a block.
"""

from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from twill.emit.sm103 import tiles

SCHEDULE = "ea1f1ca26405a7ec24792e3e356c74f87380f6abe12e51aba58f3d4b93364220"
TILES = tiles.Tiles(head_dim=128, head_dim_v=128, keys=128, subtiles=2, chunks=(96, 32), poly_share=0.0)
# role of the schedule: its function, its first warp
ROLES = {
    "softmax_a": ("softmax_a", 0),
    "rescale": ("rescale", 4),
    "softmax_b": ("softmax_b", 8),
    "load": ("load", 12),
    "mma": ("mma", 13),
}
STORAGE = {
    "K": tiles.Buffer(offset=0, stride=32768, stages=2),
    "V": tiles.Buffer(offset=65536, stride=32768, stages=1),
    "Q": tiles.Buffer(offset=98304, stride=65536, stages=1),
    "O_staging": tiles.Buffer(offset=163840, stride=65536, stages=1),
    "factor_a": tiles.Buffer(offset=230400, stride=512, stages=1),
    "factor_b": tiles.Buffer(offset=230912, stride=512, stages=1),
    "frame": tiles.Buffer(offset=229376, stride=1024, stages=1),
    "totals": tiles.Buffer(offset=231424, stride=512, stages=2),
}
# columns of TMEM
COLUMNS = {
    "SP_a": tiles.Buffer(offset=256, stride=128, stages=1),
    "O_a": tiles.Buffer(offset=0, stride=128, stages=1),
    "SP_b": tiles.Buffer(offset=384, stride=128, stages=1),
    "O_b": tiles.Buffer(offset=128, stride=128, stages=1),
}
BARRIERS = {
    # around the loop: Q and, below, the number of the next work tile; a slot of Q is a sub-tile
    "Q_full": tiles.RingShape(slots=2, arrivals=1, tx_bytes=32768),
    "Q_empty": tiles.RingShape(slots=2, arrivals=1),
    "O_full": tiles.RingShape(slots=2, arrivals=1),
    "O_empty": tiles.RingShape(slots=2, arrivals=4),
    "totals_full": tiles.RingShape(slots=2, arrivals=4),
    "totals_empty": tiles.RingShape(slots=2, arrivals=4),
    "tmem_empty": tiles.RingShape(slots=1, arrivals=4),
    "work_full": tiles.RingShape(slots=2, arrivals=1),
    "work_empty": tiles.RingShape(slots=2, arrivals=14),
    # edge LK->QK_a
    "K_full": tiles.RingShape(slots=2, arrivals=1, tx_bytes=32768),
    # edge QK_a->MAX_a
    "SP_a_full": tiles.RingShape(slots=1, arrivals=1),
    # edge EXP_a0->PV_a0
    "EXP_a0_to_PV_a0": tiles.RingShape(slots=1, arrivals=4),
    # edge LV->PV_a0
    "V_full": tiles.RingShape(slots=1, arrivals=1, tx_bytes=32768),
    # edge EXP_a1->PV_a1
    "EXP_a1_to_PV_a1": tiles.RingShape(slots=1, arrivals=4),
    # edge MAX_a->RESC_a
    "MAX_a_to_RESC_a": tiles.NamedBarrier(number=1, threads=256),
    # edge RESC_a->PV_a0
    "RESC_a_to_PV_a0": tiles.RingShape(slots=1, arrivals=4),
    # edge QK_b->MAX_b
    "SP_b_full": tiles.RingShape(slots=1, arrivals=1),
    # edge EXP_b0->PV_b0
    "EXP_b0_to_PV_b0": tiles.RingShape(slots=1, arrivals=4),
    # edge EXP_b1->PV_b1
    "EXP_b1_to_PV_b1": tiles.RingShape(slots=1, arrivals=4),
    # edge MAX_b->RESC_b
    "MAX_b_to_RESC_b": tiles.NamedBarrier(number=2, threads=256),
    # edge RESC_b->PV_b0
    "RESC_b_to_PV_b0": tiles.RingShape(slots=1, arrivals=4),
    # release V by PV_b1
    "V_empty": tiles.RingShape(slots=1, arrivals=1),
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
    tiles.release(block)


def softmax_a_period(ring: Any, tile: Any, i: Any, masked: bool) -> None:
    """A period of softmax_a in the steady state."""
    tiles.wait(ring["SP_a_full"], i)
    tiles.row_max(tile, i, masked=masked, keep=8.0)
    tiles.arrive_named(ring["MAX_a_to_RESC_a"], i)
    tiles.exp2(tile, i, chunk=0)
    tiles.arrive(ring["EXP_a0_to_PV_a0"], i)
    tiles.exp2(tile, i, chunk=1)
    tiles.arrive(ring["EXP_a1_to_PV_a1"], i)
    tiles.row_sum(tile, i)
    tiles.advance(i)


@cute.jit
def softmax_a_work(
    block: cutlass.Constexpr, tile: cutlass.Constexpr, i: cutlass.Constexpr, turn: cutlass.Constexpr, number: cutlass.Int32,
) -> None:  # fmt: skip
    """A work tile of softmax_a."""
    ring, work = block.rings, tiles.locate(block, turn, number)
    tiles.begin(i)
    tile = tiles.begin_work(tile, work)
    work = tile.work
    for _ in cutlass.range(0, cutlass.min(work.masked, work.trips), unroll=1):
        softmax_a_period(ring, tile, i, masked=True)
    for _ in cutlass.range(cutlass.min(work.masked, work.trips), work.trips, unroll=1):
        softmax_a_period(ring, tile, i, masked=False)
    tiles.total(tile, turn)


@cute.jit
def softmax_a(block: cutlass.Constexpr) -> None:
    """4 warps; sub-tile a; the schedule asks for 168 registers a thread."""
    i, turn = tiles.start((1, 2)), tiles.start((1, 2))
    tile = tiles.rows(block, subtile=0)
    number = tiles.first(block, turn)
    while number < block.work_tiles:
        softmax_a_work(block, tile, i, turn, number)
        number = tiles.following(block, turn, number)


def rescale_period(ring: Any, tile_a: Any, tile_b: Any, i: Any) -> None:
    """A period of rescale in the steady state."""
    tiles.meet(ring["MAX_a_to_RESC_a"], i)
    tiles.rescale_if_grown(tile_a, i)
    tiles.arrive(ring["RESC_a_to_PV_a0"], i)
    tiles.meet(ring["MAX_b_to_RESC_b"], i)
    tiles.rescale_if_grown(tile_b, i)
    tiles.arrive(ring["RESC_b_to_PV_b0"], i)
    tiles.advance(i)


@cute.jit
def rescale_work(
    block: cutlass.Constexpr, tile_a: cutlass.Constexpr, tile_b: cutlass.Constexpr,
    i: cutlass.Constexpr, turn: cutlass.Constexpr, number: cutlass.Int32,
) -> None:  # fmt: skip
    """A work tile of rescale."""
    ring, work = block.rings, tiles.locate(block, turn, number)
    tiles.begin(i)
    tile_a = tiles.begin_work(tile_a, work)
    tile_b = tiles.begin_work(tile_b, work)
    for _ in cutlass.range(0, work.trips, unroll=1):
        rescale_period(ring, tile_a, tile_b, i)
    tiles.finish(tile_a, turn, barrier_id=3 + tile_a.subtile, handed=True, stores=2)
    tiles.finish(tile_b, turn, barrier_id=3 + tile_b.subtile, handed=True, stores=2)


@cute.jit
def rescale(block: cutlass.Constexpr) -> None:
    """4 warps; sub-tiles a, b; the schedule asks for 72 registers a thread."""
    i, turn = tiles.start((1, 2)), tiles.start((1, 2))
    tile_a = tiles.rows(block, subtile=0)
    tile_b = tiles.rows(block, subtile=1)
    number = tiles.first(block, turn)
    while number < block.work_tiles:
        rescale_work(block, tile_a, tile_b, i, turn, number)
        number = tiles.following(block, turn, number)
    tiles.leave(tile_a, tile_b)


def softmax_b_period(ring: Any, tile: Any, i: Any, masked: bool) -> None:
    """A period of softmax_b in the steady state."""
    tiles.wait(ring["SP_b_full"], i)
    tiles.row_max(tile, i, masked=masked, keep=8.0)
    tiles.arrive_named(ring["MAX_b_to_RESC_b"], i)
    tiles.exp2(tile, i, chunk=0)
    tiles.arrive(ring["EXP_b0_to_PV_b0"], i)
    tiles.exp2(tile, i, chunk=1)
    tiles.arrive(ring["EXP_b1_to_PV_b1"], i)
    tiles.row_sum(tile, i)
    tiles.advance(i)


@cute.jit
def softmax_b_work(
    block: cutlass.Constexpr, tile: cutlass.Constexpr, i: cutlass.Constexpr, turn: cutlass.Constexpr, number: cutlass.Int32,
) -> None:  # fmt: skip
    """A work tile of softmax_b."""
    ring, work = block.rings, tiles.locate(block, turn, number)
    tiles.begin(i)
    tile = tiles.begin_work(tile, work)
    work = tile.work
    for _ in cutlass.range(0, cutlass.min(work.masked, work.trips), unroll=1):
        softmax_b_period(ring, tile, i, masked=True)
    for _ in cutlass.range(cutlass.min(work.masked, work.trips), work.trips, unroll=1):
        softmax_b_period(ring, tile, i, masked=False)
    tiles.total(tile, turn)


@cute.jit
def softmax_b(block: cutlass.Constexpr) -> None:
    """4 warps; sub-tile b; the schedule asks for 168 registers a thread."""
    i, turn = tiles.start((1, 2)), tiles.start((1, 2))
    tile = tiles.rows(block, subtile=1)
    number = tiles.first(block, turn)
    while number < block.work_tiles:
        softmax_b_work(block, tile, i, turn, number)
        number = tiles.following(block, turn, number)


def load_period(ring: Any, source: Any, i: Any) -> None:
    """A period of load in the steady state."""
    tiles.load_k(source, i, ring["K_full"])
    tiles.wait(ring["V_empty"], i, distance=1)
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
    """1 warp; the schedule asks for 48 registers a thread."""
    i, turn = tiles.start((1, 2)), tiles.start((1, 2))
    number = tiles.first(block, turn)
    while number < block.work_tiles:
        load_work(block, i, turn, number)
        number = tiles.following(block, turn, number)


def mma_period(ring: Any, tile_a: Any, tile_b: Any, i: Any) -> None:
    """A period of mma in the steady state."""
    tiles.wait(ring["K_full"], i)
    tiles.mma_qk(tile_a, i)
    tiles.commit(ring["SP_a_full"], i)
    tiles.wait(ring["EXP_b0_to_PV_b0"], i - 1)
    tiles.wait(ring["RESC_b_to_PV_b0"], i - 1)
    tiles.mma_pv(tile_b, i - 1, chunk=0)
    tiles.wait(ring["EXP_b1_to_PV_b1"], i - 1)
    tiles.mma_pv(tile_b, i - 1, chunk=1)
    tiles.commit(ring["V_empty"], i - 1)
    tiles.mma_qk(tile_b, i)
    tiles.commit(ring["SP_b_full"], i)
    tiles.wait(ring["EXP_a0_to_PV_a0"], i)
    tiles.wait(ring["V_full"], i)
    tiles.wait(ring["RESC_a_to_PV_a0"], i)
    tiles.mma_pv(tile_a, i, chunk=0)
    tiles.wait(ring["EXP_a1_to_PV_a1"], i)
    tiles.mma_pv(tile_a, i, chunk=1)
    tiles.advance(i)


@cute.jit
def mma_work(
    block: cutlass.Constexpr, tile_a: cutlass.Constexpr, tile_b: cutlass.Constexpr,
    i: cutlass.Constexpr, turn: cutlass.Constexpr, number: cutlass.Int32,
) -> None:  # fmt: skip
    """A work tile of mma."""
    ring, work = block.rings, tiles.locate(block, turn, number)
    tiles.begin(i)
    tiles.wait_slot(ring["Q_full"], tile_a.subtile, turn)
    tiles.wait_slot(ring["Q_full"], tile_b.subtile, turn)
    if work.trips > 0:
        tiles.wait(ring["K_full"], i)
        tiles.mma_qk(tile_a, i)
        tiles.commit(ring["SP_a_full"], i)
        tiles.mma_qk(tile_b, i)
        tiles.commit(ring["SP_b_full"], i)
        tiles.wait(ring["EXP_a0_to_PV_a0"], i)
        tiles.wait(ring["V_full"], i)
        tiles.wait(ring["RESC_a_to_PV_a0"], i)
        tiles.mma_pv(tile_a, i, chunk=0)
        tiles.wait(ring["EXP_a1_to_PV_a1"], i)
        tiles.mma_pv(tile_a, i, chunk=1)
        tiles.advance(i)
        for _ in cutlass.range(1, work.trips, unroll=1):
            mma_period(ring, tile_a, tile_b, i)
        tiles.commit_slot(ring["Q_empty"], tile_a.subtile)
        tiles.commit_slot(ring["Q_empty"], tile_b.subtile)
        tiles.commit_slot(ring["O_full"], tile_a.subtile)
        tiles.wait(ring["EXP_b0_to_PV_b0"], i - 1)
        tiles.wait(ring["RESC_b_to_PV_b0"], i - 1)
        tiles.mma_pv(tile_b, i - 1, chunk=0)
        tiles.wait(ring["EXP_b1_to_PV_b1"], i - 1)
        tiles.mma_pv(tile_b, i - 1, chunk=1)
        tiles.commit(ring["V_empty"], i - 1)
        tiles.commit_slot(ring["O_full"], tile_b.subtile)
    else:
        tiles.commit_slot(ring["Q_empty"], tile_a.subtile)
        tiles.commit_slot(ring["Q_empty"], tile_b.subtile)
        tiles.wait_slot(ring["O_empty"], tile_a.subtile, turn - 1)
        tiles.commit_slot(ring["O_full"], tile_a.subtile)
        tiles.wait_slot(ring["O_empty"], tile_b.subtile, turn - 1)
        tiles.commit_slot(ring["O_full"], tile_b.subtile)


@cute.jit
def mma(block: cutlass.Constexpr) -> None:
    """1 warp; sub-tiles a, b; the schedule asks for 48 registers a thread."""
    i, turn = tiles.start((1, 2)), tiles.start((1, 2))
    tile_a = tiles.issuer(block, subtile=0)
    tile_b = tiles.issuer(block, subtile=1)
    number = tiles.first(block, turn)
    while number < block.work_tiles:
        mma_work(block, tile_a, tile_b, i, turn, number)
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
    block = tiles.enter(TILES, STORAGE, COLUMNS, BARRIERS, causal, dtype, given, lse, counter, shape, softmax_scale, allocator=14)
    if block.warp < 4:
        cute.arch.setmaxregister_increase(184)
        softmax_a(block)
    elif block.warp < 8:
        cute.arch.setmaxregister_decrease(88)
        rescale(block)
    elif block.warp < 12:
        cute.arch.setmaxregister_increase(184)
        softmax_b(block)
    else:
        cute.arch.setmaxregister_decrease(56)
        if block.warp == 12:
            load(block)
        if block.warp == 13:
            mma(block)
        if block.warp == 14:
            queries(block)


kernel.set_name_prefix("twill_sm103_attn_fwd_d128", remove_cutlass_symbol=True, keep_mangled_name=False)


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
    ).launch(
        grid=tiles.grid(TILES, q, sm_count), block=(512, 1, 1), smem=tiles.smem_bytes(STORAGE, BARRIERS),
        min_blocks_per_mp=1, stream=stream,
    )  # fmt: skip
