"""Attention backward for sm90, head dim 128: 64 query rows an iteration by 128 keys. Generated; do not edit.

Command:   twill emit sm90_attn_bwd_d128_q64
Schedule:  8f19efe25c8ba44d363aef5e44e73cc758fe6444b58baeab48679efdf32abf0d
Solved by: twill solve --arch sm90 attn_bwd --head-dim 128 --tile 64x128
I = 2758 cycles an iteration, L = 7614, optimal.

Role functions run in warp groups of their own. i is the iteration at which a role stands; an op of i - 1 belongs to the tile of
queries before. Barriers count iterations on through all work tiles of a block.
"""

from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from twill.emit.sm90.backward import tiles

SCHEDULE = "8f19efe25c8ba44d363aef5e44e73cc758fe6444b58baeab48679efdf32abf0d"
TILES = tiles.Tiles(head_dim=128, head_dim_v=128, queries=64, keys=128, subtiles=2, parts=2, divides="rows of dQ^T")
# role of the schedule: its function, its first warp
ROLES = {
    "stage_dq1": ("stage_dq1", 0),
    "stage_dq2": ("stage_dq2", 4),
    "load": ("load", 8),
}
STORAGE = {
    "Q": tiles.Buffer(offset=0, stride=16384, stages=4),
    "dO": tiles.Buffer(offset=65536, stride=16384, stages=3),
    "K": tiles.Buffer(offset=114688, stride=32768, stages=1),
    "V": tiles.Buffer(offset=147456, stride=32768, stages=1),
    "dS_a": tiles.Buffer(offset=180224, stride=8192, stages=1),
    "dS_b": tiles.Buffer(offset=188416, stride=8192, stages=1),
    "dQ_a": tiles.Buffer(offset=196608, stride=16384, stages=1),
    "dQ_b": tiles.Buffer(offset=212992, stride=16384, stages=1),
    "LSE": tiles.Buffer(offset=229376, stride=256, stages=4),
    "dPsum": tiles.Buffer(offset=230400, stride=256, stages=3),
}
BARRIERS = {
    # around the loop: keys and values, the number of the next work tile, and where warps meet
    "keys_full": tiles.RingShape(slots=1, arrivals=1, tx_bytes=32768),
    "keys_empty": tiles.RingShape(slots=1, arrivals=8),
    "values_full": tiles.RingShape(slots=1, arrivals=1, tx_bytes=32768),
    "values_empty": tiles.RingShape(slots=1, arrivals=8),
    "stage_dq1": tiles.NamedBarrier(number=1, threads=128),
    "stage_dq2": tiles.NamedBarrier(number=2, threads=128),
    "work_full": tiles.RingShape(slots=2, arrivals=1),
    "work_empty": tiles.RingShape(slots=2, arrivals=9),
    # edge LQ->QK_a; edge LQ->QK_b
    "Q_full": tiles.RingShape(slots=4, arrivals=1, tx_bytes=16384),
    # edge LDO->DP_a; edge LDO->DP_b
    "dO_full": tiles.RingShape(slots=3, arrivals=1, tx_bytes=16384),
    # edge DSST_a->DQ_a
    "dS_a_full": tiles.RingShape(slots=1, arrivals=4),
    # edge DSST_b->DQ_b
    "dS_b_full": tiles.RingShape(slots=1, arrivals=4),
    # release Q by DK_a; release Q by DK_b
    "Q_empty": tiles.RingShape(slots=4, arrivals=8),
    # release dO by DV_a; release dO by DV_b
    "dO_empty": tiles.RingShape(slots=3, arrivals=8),
    # release dS_a by DQ_a
    "dS_a_empty": tiles.RingShape(slots=1, arrivals=4),
    # release dS_b by DQ_b
    "dS_b_empty": tiles.RingShape(slots=1, arrivals=4),
}


@cute.jit
def keys(block: cutlass.Constexpr) -> None:
    """1 warp beside those of the schedule: shares out work tiles and loads their keys and values."""
    turn = tiles.start_turns(block)
    tiles.prefetch(block)
    number = tiles.claim(block)
    tiles.announce(block, turn, number)
    while number < block.work_tiles:
        tiles.load_keys(block, turn, number)
        number = tiles.claim(block, number)
        tiles.advance(turn)
        tiles.announce(block, turn, number)


@cute.jit
def count_dq(block: cutlass.Constexpr) -> None:
    """1 warp beside those of the schedule: says of additions to dQ that they are over, to blocks whose turn is next."""
    turn, over = tiles.start_turns(block), tiles.counting()
    number = tiles.first(block, turn)
    while number < block.work_tiles:
        tiles.count_work(block, turn, number, over)
        number = tiles.following(block, turn, number)


@cute.jit
def order_dq(block: cutlass.Constexpr) -> None:
    """1 warp beside those of the schedule: lets additions to dQ go when their turn has come."""
    turn, over = tiles.start_turns(block), tiles.counting()
    number = tiles.first(block, turn)
    while number < block.work_tiles:
        tiles.keep_turns(block, turn, number, over)
        number = tiles.following(block, turn, number)


def stage_dq1_period(ring: Any, scores_a: Any, dv_a: Any, dk_a: Any, dq_b: Any, i: Any, masked: bool) -> None:
    """A period of stage_dq1 in the steady state."""
    tiles.wait_peeked(ring["Q_full"], i)
    tiles.mma_qk(scores_a, i)
    tiles.reductions_read(dq_b)
    tiles.stage_dq(dq_b, i - 2)
    tiles.reduce_add(dq_b, i - 2)
    tiles.wait_peeked(ring["dO_full"], i)
    tiles.mma_dp(scores_a, i)
    tiles.read_lse(scores_a, i, masked=masked)
    tiles.wait_mma(1)  # edge QK_a->EXP_a
    tiles.peek(ring["Q_full"], i + 1)
    tiles.peek(ring["dO_full"], i + 1)
    tiles.peek(ring["dS_b_full"], i - 1)
    tiles.exp2(scores_a, i, masked=masked)
    tiles.convert(scores_a, i)
    tiles.wait_mma(0)  # edge DP_a->DV_a
    tiles.mma_dv(dv_a, scores_a, i)
    tiles.read_dpsum(scores_a, i)
    tiles.dscore(scores_a, i)
    tiles.settle(scores_a, "dS")
    tiles.wait_mma(0)  # registers held by DV_a; release dO by DV_a
    tiles.arrive(ring["dO_empty"], i)
    tiles.wait_peeked(ring["dS_b_full"], i - 1)
    tiles.mma_dq(dq_b, i - 1)
    tiles.mma_dk(dk_a, scores_a, i)
    tiles.wait_mma(1)  # edge DQ_b->DQST_b; release dS_a by DQ_b; release dS_b by DQ_b
    tiles.arrive(ring["dS_b_empty"], i - 1)
    tiles.wait(ring["dS_a_empty"], i, distance=1)
    tiles.store_ds(scores_a, i, meet_first=True)
    tiles.arrive(ring["dS_a_full"], i)
    tiles.wait_mma(0)  # edge DK_a->QK_a@1; release Q by DK_a
    tiles.arrive(ring["Q_empty"], i)
    tiles.advance(i)


@cute.jit
def stage_dq1_work(
    block: cutlass.Constexpr, scores_a: cutlass.Constexpr, dv_a: cutlass.Constexpr, dk_a: cutlass.Constexpr, dq_b: cutlass.Constexpr,
    i: cutlass.Constexpr, turn: cutlass.Constexpr, number: cutlass.Int32,
) -> None:  # fmt: skip
    """A work tile of stage_dq1."""
    ring, work = block.rings, tiles.locate(block, turn, number)
    tiles.begin(i)
    scores_a = tiles.begin_work(scores_a, work)
    dv_a = tiles.begin_work(dv_a, work)
    dk_a = tiles.begin_work(dk_a, work)
    dq_b = tiles.begin_work(dq_b, work)
    tiles.wait_slot(ring["keys_full"], 0, turn)
    tiles.wait_slot(ring["values_full"], 0, turn)
    if work.trips == 1:
        tiles.wait(ring["Q_full"], i)
        tiles.mma_qk(scores_a, i)
        tiles.wait(ring["dO_full"], i)
        tiles.mma_dp(scores_a, i)
        tiles.read_lse(scores_a, i, masked=True)
        tiles.wait_mma(1)  # edge QK_a->EXP_a
        tiles.exp2(scores_a, i, masked=True)
        tiles.convert(scores_a, i)
        tiles.wait_mma(0)  # edge DP_a->DV_a
        tiles.mma_dv(dv_a, scores_a, i)
        tiles.read_dpsum(scores_a, i)
        tiles.dscore(scores_a, i)
        tiles.wait_mma(0)  # registers held by DV_a; release dO by DV_a
        tiles.arrive(ring["dO_empty"], i)
        tiles.mma_dk(dk_a, scores_a, i)
        tiles.wait(ring["dS_a_empty"], i, distance=1)
        tiles.store_ds(scores_a, i, meet_first=True)
        tiles.arrive(ring["dS_a_full"], i)
        tiles.wait_mma(0)  # edge DK_a->QK_a@1; release Q by DK_a
        tiles.arrive(ring["Q_empty"], i)
        tiles.wait(ring["dS_b_full"], i)
        tiles.mma_dq(dq_b, i)
        tiles.wait_mma(0)  # edge DQ_b->DQST_b; release dS_a by DQ_b; release dS_b by DQ_b
        tiles.arrive(ring["dS_b_empty"], i)
        tiles.reductions_read(dq_b)
        tiles.stage_dq(dq_b, i)
        tiles.reduce_add(dq_b, i)
        tiles.advance(i, by=1)
    elif work.trips >= 2:
        tiles.wait(ring["Q_full"], i)
        tiles.mma_qk(scores_a, i)
        tiles.wait(ring["dO_full"], i)
        tiles.mma_dp(scores_a, i)
        tiles.read_lse(scores_a, i, masked=True)
        tiles.wait_mma(1)  # edge QK_a->EXP_a
        tiles.exp2(scores_a, i, masked=True)
        tiles.convert(scores_a, i)
        tiles.wait_mma(0)  # edge DP_a->DV_a
        tiles.mma_dv(dv_a, scores_a, i)
        tiles.read_dpsum(scores_a, i)
        tiles.dscore(scores_a, i)
        tiles.wait_mma(0)  # registers held by DV_a; release dO by DV_a
        tiles.arrive(ring["dO_empty"], i)
        tiles.mma_dk(dk_a, scores_a, i)
        tiles.wait(ring["dS_a_empty"], i, distance=1)
        tiles.store_ds(scores_a, i, meet_first=True)
        tiles.arrive(ring["dS_a_full"], i)
        tiles.wait_mma(0)  # edge DK_a->QK_a@1; release Q by DK_a
        tiles.arrive(ring["Q_empty"], i)
        tiles.wait(ring["Q_full"], i + 1)
        tiles.mma_qk(scores_a, i + 1)
        tiles.wait(ring["dO_full"], i + 1)
        tiles.mma_dp(scores_a, i + 1)
        tiles.read_lse(scores_a, i + 1, masked=True)
        tiles.wait_mma(1)  # edge QK_a->EXP_a
        tiles.exp2(scores_a, i + 1, masked=True)
        tiles.convert(scores_a, i + 1)
        tiles.wait_mma(0)  # edge DP_a->DV_a
        tiles.mma_dv(dv_a, scores_a, i + 1)
        tiles.read_dpsum(scores_a, i + 1)
        tiles.dscore(scores_a, i + 1)
        tiles.settle(scores_a, "dS")
        tiles.wait_mma(0)  # registers held by DV_a; release dO by DV_a
        tiles.arrive(ring["dO_empty"], i + 1)
        tiles.wait(ring["dS_b_full"], i)
        tiles.mma_dq(dq_b, i)
        tiles.mma_dk(dk_a, scores_a, i + 1)
        tiles.wait_mma(1)  # edge DQ_b->DQST_b; release dS_a by DQ_b; release dS_b by DQ_b
        tiles.arrive(ring["dS_b_empty"], i)
        tiles.wait(ring["dS_a_empty"], i + 1, distance=1)
        tiles.store_ds(scores_a, i + 1, meet_first=True)
        tiles.arrive(ring["dS_a_full"], i + 1)
        tiles.wait_mma(0)  # edge DK_a->QK_a@1; release Q by DK_a
        tiles.arrive(ring["Q_empty"], i + 1)
        tiles.advance(i, by=2)
        for _ in cutlass.range(2, work.masked, unroll=1):
            stage_dq1_period(ring, scores_a, dv_a, dk_a, dq_b, i, masked=True)
        for _ in cutlass.range(cutlass.max(work.masked, 2), work.trips, unroll=1):
            stage_dq1_period(ring, scores_a, dv_a, dk_a, dq_b, i, masked=False)
        tiles.reductions_read(dq_b)
        tiles.stage_dq(dq_b, i - 2)
        tiles.reduce_add(dq_b, i - 2)
        tiles.wait(ring["dS_b_full"], i - 1)
        tiles.mma_dq(dq_b, i - 1)
        tiles.wait_mma(0)  # edge DQ_b->DQST_b; release dS_a by DQ_b; release dS_b by DQ_b
        tiles.arrive(ring["dS_b_empty"], i - 1)
        tiles.reductions_read(dq_b)
        tiles.stage_dq(dq_b, i - 1)
        tiles.reduce_add(dq_b, i - 1)
    tiles.arrive_slot(ring["keys_empty"], 0)
    tiles.finish_dv(dv_a)
    tiles.finish_dk(dk_a)
    tiles.stored(block)
    tiles.arrive_slot(ring["values_empty"], 0)
    tiles.reductions_over(dq_b)


@cute.jit
def stage_dq1(block: cutlass.Constexpr) -> None:
    """4 warps; sub-tile a; the schedule asks for 240 registers a thread."""
    i, turn = tiles.start((1, 3, 4), peeked=("Q_full", "dO_full", "dS_b_full")), tiles.start_turns(block)
    scores_a = tiles.scores(block, subtile=0, meeting="stage_dq1")
    dv_a = tiles.dv(block, subtile=0, meeting="stage_dq1")
    dk_a = tiles.dk(block, subtile=0, meeting="stage_dq1")
    dq_b = tiles.dq(block, part=1, meeting="stage_dq1")
    number = tiles.first(block, turn)
    while number < block.work_tiles:
        stage_dq1_work(block, scores_a, dv_a, dk_a, dq_b, i, turn, number)
        number = tiles.following(block, turn, number)
    tiles.stored(block)


def stage_dq2_period(ring: Any, scores_b: Any, dv_b: Any, dk_b: Any, dq_a: Any, i: Any, masked: bool) -> None:
    """A period of stage_dq2 in the steady state."""
    tiles.wait_peeked(ring["Q_full"], i)
    tiles.mma_qk(scores_b, i)
    tiles.reductions_read(dq_a)
    tiles.stage_dq(dq_a, i - 1)
    tiles.wait_peeked(ring["dO_full"], i)
    tiles.mma_dp(scores_b, i)
    tiles.read_lse(scores_b, i, masked=masked)
    tiles.wait_mma(1)  # edge QK_b->EXP_b
    tiles.peek(ring["Q_full"], i + 1)
    tiles.peek(ring["dO_full"], i + 1)
    tiles.peek(ring["dS_a_full"], i)
    tiles.exp2(scores_b, i, masked=masked)
    tiles.reduce_add(dq_a, i - 1)
    tiles.convert(scores_b, i)
    tiles.wait_mma(0)  # edge DP_b->DV_b
    tiles.mma_dv(dv_b, scores_b, i)
    tiles.read_dpsum(scores_b, i)
    tiles.dscore(scores_b, i)
    tiles.wait(ring["dS_b_empty"], i, distance=1)
    tiles.store_ds(scores_b, i, meet_first=True)
    tiles.arrive(ring["dS_b_full"], i)
    tiles.wait_mma(0)  # registers held by DV_b; release dO by DV_b
    tiles.arrive(ring["dO_empty"], i)
    tiles.wait_peeked(ring["dS_a_full"], i)
    tiles.mma_dq(dq_a, i)
    tiles.mma_dk(dk_b, scores_b, i)
    tiles.wait_mma(0)  # edge DQ_a->DQST_a; release dS_a by DQ_a; edge DK_b->QK_b@1; release Q by DK_b
    tiles.arrive(ring["dS_a_empty"], i)
    tiles.arrive(ring["Q_empty"], i)
    tiles.advance(i)


@cute.jit
def stage_dq2_work(
    block: cutlass.Constexpr, scores_b: cutlass.Constexpr, dv_b: cutlass.Constexpr, dk_b: cutlass.Constexpr, dq_a: cutlass.Constexpr,
    i: cutlass.Constexpr, turn: cutlass.Constexpr, number: cutlass.Int32,
) -> None:  # fmt: skip
    """A work tile of stage_dq2."""
    ring, work = block.rings, tiles.locate(block, turn, number)
    tiles.begin(i)
    scores_b = tiles.begin_work(scores_b, work)
    dv_b = tiles.begin_work(dv_b, work)
    dk_b = tiles.begin_work(dk_b, work)
    dq_a = tiles.begin_work(dq_a, work)
    tiles.wait_slot(ring["keys_full"], 0, turn)
    tiles.wait_slot(ring["values_full"], 0, turn)
    if work.trips > 0:
        tiles.wait(ring["Q_full"], i)
        tiles.mma_qk(scores_b, i)
        tiles.wait(ring["dO_full"], i)
        tiles.mma_dp(scores_b, i)
        tiles.read_lse(scores_b, i, masked=True)
        tiles.wait_mma(1)  # edge QK_b->EXP_b
        tiles.exp2(scores_b, i, masked=True)
        tiles.convert(scores_b, i)
        tiles.wait_mma(0)  # edge DP_b->DV_b
        tiles.mma_dv(dv_b, scores_b, i)
        tiles.read_dpsum(scores_b, i)
        tiles.dscore(scores_b, i)
        tiles.wait(ring["dS_b_empty"], i, distance=1)
        tiles.store_ds(scores_b, i, meet_first=True)
        tiles.arrive(ring["dS_b_full"], i)
        tiles.wait_mma(0)  # registers held by DV_b; release dO by DV_b
        tiles.arrive(ring["dO_empty"], i)
        tiles.wait(ring["dS_a_full"], i)
        tiles.mma_dq(dq_a, i)
        tiles.mma_dk(dk_b, scores_b, i)
        tiles.wait_mma(0)  # edge DQ_a->DQST_a; release dS_a by DQ_a; edge DK_b->QK_b@1; release Q by DK_b
        tiles.arrive(ring["dS_a_empty"], i)
        tiles.arrive(ring["Q_empty"], i)
        tiles.advance(i)
        for _ in cutlass.range(1, work.masked, unroll=1):
            stage_dq2_period(ring, scores_b, dv_b, dk_b, dq_a, i, masked=True)
        for _ in cutlass.range(work.masked, work.trips, unroll=1):
            stage_dq2_period(ring, scores_b, dv_b, dk_b, dq_a, i, masked=False)
        tiles.reductions_read(dq_a)
        tiles.stage_dq(dq_a, i - 1)
        tiles.reduce_add(dq_a, i - 1)
    tiles.arrive_slot(ring["keys_empty"], 0)
    tiles.finish_dv(dv_b)
    tiles.finish_dk(dk_b)
    tiles.stored(block)
    tiles.arrive_slot(ring["values_empty"], 0)
    tiles.reductions_over(dq_a)


@cute.jit
def stage_dq2(block: cutlass.Constexpr) -> None:
    """4 warps; sub-tile b; the schedule asks for 240 registers a thread."""
    i, turn = tiles.start((1, 3, 4), peeked=("Q_full", "dO_full", "dS_a_full")), tiles.start_turns(block)
    scores_b = tiles.scores(block, subtile=1, meeting="stage_dq2")
    dv_b = tiles.dv(block, subtile=1, meeting="stage_dq2")
    dk_b = tiles.dk(block, subtile=1, meeting="stage_dq2")
    dq_a = tiles.dq(block, part=0, meeting="stage_dq2")
    number = tiles.first(block, turn)
    while number < block.work_tiles:
        stage_dq2_work(block, scores_b, dv_b, dk_b, dq_a, i, turn, number)
        number = tiles.following(block, turn, number)
    tiles.stored(block)


def load_period(ring: Any, source: Any, i: Any) -> None:
    """A period of load in the steady state."""
    tiles.wait(ring["Q_empty"], i, distance=4)
    tiles.load_q(source, i, ring["Q_full"])
    tiles.wait(ring["dO_empty"], i, distance=3)
    tiles.load_do(source, i, ring["dO_full"])
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
    i, turn = tiles.start((1, 3, 4)), tiles.start_turns(block)
    number = tiles.first(block, turn)
    while number < block.work_tiles:
        load_work(block, i, turn, number)
        number = tiles.following(block, turn, number)


@cute.kernel
def kernel(
    q_tma: cute.CopyAtom, q: cute.Tensor, k_tma: cute.CopyAtom, k: cute.Tensor, v_tma: cute.CopyAtom, v: cute.Tensor,
    do_tma: cute.CopyAtom, do: cute.Tensor, dk_tma: None, dk: cute.Tensor, dv_tma: cute.CopyAtom, dv: cute.Tensor,
    workspace: cute.Tensor, counter: cute.Tensor | None, batch: cutlass.Int32, seqlen_q: cutlass.Int32,
    heads: cutlass.Int32, seqlen_k: cutlass.Int32, kv_heads: cutlass.Int32, softmax_scale: cutlass.Float32,
    causal: cutlass.Constexpr, deterministic: cutlass.Constexpr, dtype: cutlass.Constexpr,
) -> None:  # fmt: skip
    """A block: every warp group goes to its role."""
    given = tiles.Operands((q_tma, q), (k_tma, k), (v_tma, v), (do_tma, do), (dk_tma, dk), (dv_tma, dv))
    shape = (batch, seqlen_q, heads, seqlen_k, kv_heads)
    block = tiles.enter(
        TILES, STORAGE, BARRIERS, causal, deterministic, dtype, given, workspace, counter, shape, softmax_scale,
    )  # fmt: skip
    if block.warp < 4:
        cute.arch.setmaxregister_increase(240)
        stage_dq1(block)
    elif block.warp < 8:
        cute.arch.setmaxregister_increase(240)
        stage_dq2(block)
    else:
        cute.arch.setmaxregister_decrease(24)
        if block.warp == 8:
            load(block)
        if block.warp == 9:
            keys(block)
        if cutlass.const_expr(deterministic):
            if block.warp == 10:
                count_dq(block)
            if block.warp == 11:
                order_dq(block)


kernel.set_name_prefix("twill_sm90_attn_bwd_d128", remove_cutlass_symbol=True, keep_mangled_name=False)


@cute.jit
def attn_bwd(
    q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, do: cute.Tensor, lse: cute.Tensor, dq: cute.Tensor,
    dk: cute.Tensor, dv: cute.Tensor, workspace: cute.Tensor, counter: cute.Tensor | None, softmax_scale: cutlass.Float32,
    sm_count: cutlass.Int32, causal: cutlass.Constexpr, deterministic: cutlass.Constexpr, stream: cuda.CUstream,
) -> None:  # fmt: skip
    """dQ, dK and dV of O = softmax(Q K^T * softmax_scale) V for dO.

    All (batch, seq, heads, dim), dim contiguous; lse (batch, heads, seq). Three kernels: row sums of O * dO and a cleared
    sum for dQ go into ``workspace`` (fp32, at least `tiles.workspace_words`), the loop makes dK and dV and adds to that
    sum, and the last one makes dQ of it. At most ``sm_count`` blocks run the loop. They take work tiles in turn or, given
    a ``counter``, as they come to need them. A counter is one int32 in global memory, 0 before and after; it and the
    workspace belong to one launch at a time. ``deterministic`` gradients are the same to the bit in every run: for that,
    blocks wait for each other, so that without a counter all of them have to run at once.
    """
    tiles.preprocess(TILES, q, k, o, do, lse, workspace, deterministic, stream)
    given = tiles.operands(TILES, STORAGE, q, k, v, do, dk, dv)
    kernel(
        *given.q, *given.k, *given.v, *given.do, *given.dk, *given.dv, workspace, counter, q.shape[0], q.shape[1],
        q.shape[2], k.shape[1], k.shape[2], softmax_scale, causal, deterministic, q.element_type,
    ).launch(grid=tiles.grid(TILES, k, sm_count), block=(384, 1, 1), smem=tiles.smem_bytes(STORAGE, BARRIERS), stream=stream)  # fmt: skip
    tiles.postprocess(TILES, q, k, dq, workspace, softmax_scale, stream)
