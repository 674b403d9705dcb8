"""Attention forward for sm90, head dim 128: 128 query rows by 128 keys an iteration. Generated; do not edit.

Command:   twill emit sm90_attn_fwd_d128
Schedule:  dca1446f5ce97a267a1c54b1db37ea32ecc484377babffab7cb7d468d67ee1d1
Solved by: twill solve --arch sm90 attn_fwd --head-dim 128
I = 2284 cycles an iteration, L = 5388, optimal.

Role functions run in warp groups of their own. n numbers periods; an op of iteration n - 1 belongs to the tile of keys before.
"""

from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from twill.emit.sm90 import tiles

SCHEDULE = "dca1446f5ce97a267a1c54b1db37ea32ecc484377babffab7cb7d468d67ee1d1"
TILES = tiles.Tiles(head_dim=128, head_dim_v=128, keys=128, subtiles=2)
STORAGE = {
    "K": tiles.Buffer(offset=0, stride=32768, stages=3),
    "V": tiles.Buffer(offset=98304, stride=32768, stages=3),
    "Q": tiles.Buffer(offset=196608, stride=32768, stages=1),
}
BARRIERS = {
    # before the loop: Q has been loaded, a sub-tile a slot
    "Q_full": tiles.RingShape(slots=2, arrivals=1, tx_bytes=16384),
    # edge LK->QK_a; edge LK->QK_b
    "K_full": tiles.RingShape(slots=3, arrivals=1, tx_bytes=32768),
    # edge LV->PV_a; edge LV->PV_b
    "V_full": tiles.RingShape(slots=3, arrivals=1, tx_bytes=32768),
    # release K by QK_a; release K by QK_b
    "K_empty": tiles.RingShape(slots=3, arrivals=8),
    # release V by PV_a; release V by PV_b
    "V_empty": tiles.RingShape(slots=3, arrivals=8),
}


def load_period(ring: Any, source: Any, n: Any) -> None:
    """Period n of load in the steady state."""
    tiles.wait(ring["K_empty"], n, distance=3)
    tiles.load_k(source, n, ring["K_full"])
    tiles.wait(ring["V_empty"], n, distance=3)
    tiles.load_v(source, n, ring["V_full"])


@cute.jit
def load(block: cutlass.Constexpr) -> None:
    """1 warp; the schedule asks for 24 registers a thread."""
    ring = block.rings
    source = tiles.loader(block)
    tiles.load_q(source, ring["Q_full"])
    for n in cutlass.range(0, block.trips, unroll=1):
        load_period(ring, source, n)


def softmax_a_period(ring: Any, tile_a: Any, n: Any, masked: bool) -> None:
    """Period n of softmax_a in the steady state."""
    tiles.wait(ring["K_full"], n)
    tiles.mma_qk(tile_a, n)
    tiles.wait(ring["V_full"], n - 1)
    tiles.mma_pv(tile_a, n - 1)
    tiles.wait_mma(1)  # edge QK_a->MAX_a; release K by QK_a
    tiles.arrive(ring["K_empty"], n)
    tiles.row_max(tile_a, n, masked=masked)
    tiles.exp2(tile_a, n)
    tiles.wait_mma(0)  # edge PV_a->RESC_a@1; release V by PV_a
    tiles.arrive(ring["V_empty"], n - 1)
    tiles.rescale(tile_a, n)
    tiles.row_sum(tile_a, n)
    tiles.convert(tile_a, n)


@cute.jit
def softmax_a(block: cutlass.Constexpr) -> None:
    """4 warps; sub-tile a; the schedule asks for 192 registers a thread."""
    ring = block.rings
    tile_a = tiles.consumer(block, subtile=0)
    tiles.wait(ring["Q_full"], 0)
    if block.trips > 0:
        tiles.wait(ring["K_full"], 0)
        tiles.mma_qk(tile_a, 0)
        tiles.wait_mma(0)  # edge QK_a->MAX_a; release K by QK_a
        tiles.arrive(ring["K_empty"], 0)
        tiles.row_max(tile_a, 0, masked=True)
        tiles.exp2(tile_a, 0)
        tiles.rescale(tile_a, 0)
        tiles.row_sum(tile_a, 0)
        tiles.convert(tile_a, 0)
        if cutlass.const_expr(block.causal):
            for n in cutlass.range(1, block.masked, unroll=1):
                softmax_a_period(ring, tile_a, n, masked=True)
        for n in cutlass.range(block.masked, block.trips, unroll=1):
            softmax_a_period(ring, tile_a, n, masked=False)
        tiles.wait(ring["V_full"], block.trips - 1)
        tiles.mma_pv(tile_a, block.trips - 1)
        tiles.wait_mma(0)  # edge PV_a->RESC_a@1; release V by PV_a
        tiles.arrive(ring["V_empty"], block.trips - 1)
    tiles.finish(tile_a, barrier_id=1)


def softmax_b_period(ring: Any, tile_b: Any, n: Any, masked: bool) -> None:
    """Period n of softmax_b in the steady state."""
    tiles.wait(ring["K_full"], n)
    tiles.mma_qk(tile_b, n)
    tiles.wait(ring["V_full"], n - 1)
    tiles.mma_pv(tile_b, n - 1)
    tiles.wait_mma(1)  # edge QK_b->MAX_b; release K by QK_b
    tiles.arrive(ring["K_empty"], n)
    tiles.row_max(tile_b, n, masked=masked)
    tiles.exp2(tile_b, n)
    tiles.wait_mma(0)  # edge PV_b->RESC_b@1; release V by PV_b
    tiles.arrive(ring["V_empty"], n - 1)
    tiles.rescale(tile_b, n)
    tiles.row_sum(tile_b, n)
    tiles.convert(tile_b, n)


@cute.jit
def softmax_b(block: cutlass.Constexpr) -> None:
    """4 warps; sub-tile b; the schedule asks for 192 registers a thread."""
    ring = block.rings
    tile_b = tiles.consumer(block, subtile=1)
    tiles.wait(ring["Q_full"], 1)
    if block.trips > 0:
        tiles.wait(ring["K_full"], 0)
        tiles.mma_qk(tile_b, 0)
        tiles.wait_mma(0)  # edge QK_b->MAX_b; release K by QK_b
        tiles.arrive(ring["K_empty"], 0)
        tiles.row_max(tile_b, 0, masked=True)
        tiles.exp2(tile_b, 0)
        tiles.rescale(tile_b, 0)
        tiles.row_sum(tile_b, 0)
        tiles.convert(tile_b, 0)
        if cutlass.const_expr(block.causal):
            for n in cutlass.range(1, block.masked, unroll=1):
                softmax_b_period(ring, tile_b, n, masked=True)
        for n in cutlass.range(block.masked, block.trips, unroll=1):
            softmax_b_period(ring, tile_b, n, masked=False)
        tiles.wait(ring["V_full"], block.trips - 1)
        tiles.mma_pv(tile_b, block.trips - 1)
        tiles.wait_mma(0)  # edge PV_b->RESC_b@1; release V by PV_b
        tiles.arrive(ring["V_empty"], block.trips - 1)
    tiles.finish(tile_b, barrier_id=2)


@cute.kernel
def kernel(
    q_tma: cute.CopyAtom, q: cute.Tensor, k_tma: cute.CopyAtom, k: cute.Tensor, v_tma: cute.CopyAtom, v: cute.Tensor,
    o_tma: cute.CopyAtom, o: cute.Tensor, lse: cute.Tensor | None, seqlen_q: cutlass.Int32, seqlen_k: cutlass.Int32,
    heads_per_kv: cutlass.Int32, softmax_scale: cutlass.Float32, causal: cutlass.Constexpr, dtype: cutlass.Constexpr,
) -> None:  # fmt: skip
    """A block: every warp group goes to its role."""
    given = tiles.Operands((q_tma, q), (k_tma, k), (v_tma, v), (o_tma, o))
    block = tiles.enter(TILES, STORAGE, BARRIERS, causal, dtype, given, lse, seqlen_q, seqlen_k, heads_per_kv, softmax_scale)
    if block.warp < 4:
        cute.arch.setmaxregister_increase(240)
        softmax_a(block)
    elif block.warp < 8:
        cute.arch.setmaxregister_increase(240)
        softmax_b(block)
    else:
        cute.arch.setmaxregister_decrease(24)
        if block.warp == 8:
            load(block)


kernel.set_name_prefix("twill_sm90_attn_fwd_d128", remove_cutlass_symbol=True, keep_mangled_name=False)


@cute.jit
def attn_fwd(
    q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, lse: cute.Tensor | None, softmax_scale: cutlass.Float32,
    causal: cutlass.Constexpr, stream: cuda.CUstream,
) -> None:  # fmt: skip
    """O = softmax(Q K^T * softmax_scale) V; all (batch, seq, heads, dim), dim contiguous; lse (batch, heads, seq) or None."""
    given = tiles.operands(TILES, STORAGE, q, k, v, o)
    grid = (cute.ceil_div(q.shape[1], TILES.rows), q.shape[2], q.shape[0])
    kernel(
        *given.q, *given.k, *given.v, *given.o, lse, q.shape[1], k.shape[1], q.shape[2] // k.shape[2], softmax_scale, causal,
        q.element_type,
    ).launch(grid=grid, block=(384, 1, 1), smem=tiles.smem_bytes(STORAGE, BARRIERS), stream=stream)  # fmt: skip
