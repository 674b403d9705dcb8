"""The FlashAttention forward loop: one iteration handles one tile of keys for one tile of queries.

Each sub-tile of queries runs QK -> row max -> exp2 -> PV, with the row sum beside and the accumulator rescaled
by the change of the row maximum. Where the accumulator lives decides the form: with ``registers``
(Hopper) S, P and O stay in the warpgroup that issues the MMAs; with ``tmem`` (Blackwell) S is read from tensor
memory, P overwrites S there, and O is rescaled there by whoever the solver picks.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, replace

from twill.errors import ParameterError
from twill.model.builder import GraphBuilder
from twill.model.costs import Work
from twill.model.graph import LoopGraph
from twill.model.graphs.parameters import DTYPE_BYTES, Rescale, Tile, check_head_dim, parse_chunks
from twill.model.machine import Machine

__all__ = ["AttnFwd", "attn_fwd"]

LETTERS = "abcdefgh"
STATISTIC_BYTES = 4
MMA_DEPTH = 16
"""Columns that one MMA multiplies: operands of other head dims are filled up with zeros in SMEM."""
OTHER_REGISTERS = 32
"""Addresses and row statistics of a thread that holds tiles."""
SCORE_INSTRUCTIONS = 4.1
"""Instructions that a score takes, polynomials aside: 422 of a softmax warp for 128 scores, and for 256 scores 160 of the MMA warp and 25
to 179 of one that rescales; counted in the machine code for head dim 128."""
SHARE_STEP = 1 / 16
LEAST_SHARE = 1 / 8
O_COLUMNS = 32
"""Columns of O in registers at a time while it is rescaled."""
SMEM_FRAME_BYTES = 3072
"""Barriers and row statistics."""


@dataclass(frozen=True, slots=True)
class AttnFwd:
    """Parameters of the forward loop; ``None`` means the machine's usual choice for the head dim.

    Attributes
    ----------
    head_dim, head_dim_v : columns of Q and K, of V and O.
    tile : query rows by keys handled by one block in one iteration.
    subtiles : parts of the query tile that are scheduled on their own (one consumer warpgroup each on Hopper).
    chunks : how P is cut along the keys, a count or widths; PV may start on the first chunk.
    rescale : ``always`` multiplies O in every iteration; ``conditional`` (by default) only where the
        maximum grew enough, with probability ``rescale_rate``; ``old_max`` takes exponents against the previous maximum, so that exp2
        need not wait for the row maximum. With accumulators in registers that is then the largest exponential, and K stays until it is
        known, for scores to be made again where it is too large; O is rescaled as with ``conditional``.
    poly_share : part of the exponentials computed by a polynomial on the FMA pipe.
    ctas : blocks that share one MMA (2 halves each block's K and V tile).
    """

    head_dim: int = 128
    head_dim_v: int | None = None
    tile: Tile | None = None
    subtiles: int | None = None
    chunks: str | None = None
    dtype: str = "bf16"
    rescale: Rescale | None = None
    rescale_rate: float = 0.1
    poly_share: float | None = None
    ctas: int = 1


@dataclass(frozen=True, slots=True)
class _Shape:
    d: int
    dv: int
    rows: int
    n: int
    subtiles: int
    chunks: tuple[int, ...]
    element: int
    poly: float
    warps: int


def _default_tile(machine: Machine, d: int, dv: int) -> tuple[Tile, int]:
    if machine.accumulator == "tmem":
        subtiles = 1 if dv > 128 else 2
        return Tile(128 * subtiles, 128), subtiles
    return _register_tile(machine, -(-d // MMA_DEPTH) * MMA_DEPTH, -(-dv // MMA_DEPTH) * MMA_DEPTH)


def _register_tile(machine: Machine, d: int, dv: int) -> tuple[Tile, int]:
    """Three warpgroups of 64 rows where the register file then has room for 64 keys or more, else two; as many keys as fit.

    A thread holds n / 2 scores, n / 4 registers of P and dv / 2 of O of its warpgroup's tile. Measured on an H200: with three, one
    warpgroup's softmax leaves the tensor core to two others; 192x80 beats 128x128 at d 128 by 5 to 10 %.
    """
    room = machine.memories["smem"].capacity.value - SMEM_FRAME_BYTES
    for subtiles, registers in ((3, 160), (2, 240)):
        rows = subtiles * int(machine.cost("mma_tile_m"))
        for n in range(128, 15, -16):
            held = n // 2 + n // 4 + dv // 2 + OTHER_REGISTERS
            smem = DTYPE_BYTES["bf16"] * (rows * d + 2 * n * (d + dv))
            if held <= registers and smem <= room and (n >= 64 or subtiles == 2):
                return Tile(rows, n), subtiles
    return Tile(128, 16), 2


def _balanced_share(machine: Machine, d: int, dv: int) -> float:
    """Part of the exponentials that are polynomials where the caller does not say: the least that keeps the busiest unit least busy.

    Per score of an iteration, in cycles of an SM: the exponential unit takes ``(1 - share) / mufu_lanes``, the matrix instructions take
    ``2 (d + dv) / mma_flops_per_cycle``, and `SCORE_INSTRUCTIONS` and those of the polynomials share the issue slots. At least an eighth
    where the unit is slow: that shortens the way from scores to P.
    """
    if machine.accumulator != "tmem" or machine.cost("mufu_lanes") >= 32:
        return 0.0
    slots, units = machine.cost("issue_lanes"), machine.cost("mufu_lanes")
    more = machine.cost("poly_instructions") - 1
    matrix = 2 * (d + dv) / machine.cost("mma_flops_per_cycle")
    steps = round(1 / SHARE_STEP)
    shares = [k / steps for k in range(round(LEAST_SHARE * steps), steps)]
    return min(shares, key=lambda share: (max(matrix, (1 - share) / units, (SCORE_INSTRUCTIONS + share * more) / slots), share))


def _shape(p: AttnFwd, machine: Machine) -> tuple[AttnFwd, _Shape]:
    check_head_dim("head dim", p.head_dim)
    dv = p.head_dim if p.head_dim_v is None else p.head_dim_v
    check_head_dim("head dim of V", dv)
    if p.dtype not in DTYPE_BYTES:
        raise ParameterError(f"dtype {p.dtype!r} is unknown", f"use one of {', '.join(DTYPE_BYTES)}")
    p = replace(p, rescale=p.rescale or "conditional")
    if p.rescale not in ("always", "conditional", "old_max"):
        raise ParameterError(f"rescale {p.rescale!r} is unknown", "use always, conditional or old_max")
    if not 0 <= p.rescale_rate <= 1:
        raise ParameterError(f"rescale_rate {p.rescale_rate} is not a probability", "use a number from 0 to 1")
    if not 1 <= p.ctas <= machine.max_ctas:
        raise ParameterError(f"{p.ctas} CTAs cannot share an MMA on {machine.name}", f"use 1 to {machine.max_ctas}")
    usual, usual_subtiles = _default_tile(machine, p.head_dim, dv)
    tile = p.tile or usual
    height = int(machine.cost("mma_tile_m"))
    subtiles = p.subtiles
    if subtiles is None:
        subtiles = usual_subtiles if p.tile is None else max(1, tile.m // height)
    if not 1 <= subtiles <= len(LETTERS) or tile.m % subtiles or (tile.m // subtiles) % height:
        raise ParameterError(
            f"{subtiles} sub-tiles of a tile of {tile.m} rows are not multiples of {height} rows",
            f"use --tile {height * subtiles}x{tile.n} or other --subtiles",
        )
    chunks = p.chunks or ("96+32" if machine.accumulator == "tmem" and tile.n == 128 else "1")
    poly = p.poly_share
    if poly is None:
        poly = _balanced_share(machine, *(-(-x // MMA_DEPTH) * MMA_DEPTH for x in (p.head_dim, dv)))
    if not 0 <= poly < 1:
        raise ParameterError(f"poly_share {poly} is not in [0, 1)", "use 0.125, say")
    rows = tile.m // subtiles
    warps = 4 * max(1, rows // 128) if machine.accumulator == "tmem" else 4
    d_columns, dv_columns = (-(-x // MMA_DEPTH) * MMA_DEPTH for x in (p.head_dim, dv))
    shape = _Shape(d_columns, dv_columns, rows, tile.n, subtiles, parse_chunks(chunks, tile.n), DTYPE_BYTES[p.dtype], poly, warps)
    return replace(p, head_dim_v=dv, tile=tile, subtiles=subtiles, chunks=chunks, poly_share=poly), shape


def attn_fwd(machine: Machine, parameters: AttnFwd | None = None) -> LoopGraph:
    """Build the forward loop for a machine.

    Raises
    ------
    ParameterError : a head dim, tile, dtype or policy that the machine's matrix instructions cannot take.
    """
    p, s = _shape(parameters or AttnFwd(), machine)
    recorded = {k: v for k, v in asdict(p).items() if k != "tile"} | {"tile": str(p.tile)}
    b = GraphBuilder("attn_fwd", machine, recorded)
    k_bytes = s.n * s.d * s.element // p.ctas
    v_bytes = s.n * s.dv * s.element // p.ctas
    b.load("LK", "K", k_bytes, ctas=p.ctas)
    b.load("LV", "V", v_bytes, ctas=p.ctas)
    q_bytes, o_bytes = (s.subtiles * s.rows * width * s.element for width in (s.d, s.dv))
    b.buffer("Q", "smem", q_bytes, persistent=True)
    reserved = 1024 + 2 * STATISTIC_BYTES * s.subtiles * s.rows
    stages, room = (1, 200 * 1024) if machine.accumulator == "tmem" else (3, machine.memories["smem"].capacity.value - reserved)
    if q_bytes + o_bytes + stages * (k_bytes + v_bytes) <= room:
        b.buffer("O_staging", "smem", o_bytes, persistent=True)
    elif machine.accumulator == "tmem":
        b.note("O is staged in the SMEM of Q once the loop is over")
    else:
        b.note("there is no SMEM to stage O in: it is stored straight from registers")
    b.reserve("smem", reserved)
    names = []
    for i in range(s.subtiles):
        if machine.accumulator == "tmem":
            names.append(_tmem_subtile(b, machine, p, s, i))
        else:
            names.append(_register_subtile(b, machine, p, s, i))
    for first, second in itertools.pairwise(names):
        b.symmetric(first, second)
    return b.finish()


def _exp_work(s: _Shape, machine: Machine, width: int) -> tuple[Work, ...]:
    """Scale and exp2 of ``rows x width`` scores; the polynomial share goes to the FMA pipe."""
    elements = s.rows * width
    poly = elements * s.poly
    return (
        Work("fma", elements + poly * machine.cost("poly_instructions")),
        Work("mufu", elements - poly),
    )


def _expected(p: AttnFwd, full_cycles: float, vote_cycles: float) -> float:
    """Expected cycles of the rescale step under the policy."""
    return full_cycles if p.rescale == "always" else vote_cycles + p.rescale_rate * full_cycles


def _link_statistics(b: GraphBuilder, p: AttnFwd, s: _Shape, x: str, exps: list[str], first_pv: str, last_pv: str, o_kind: str) -> None:
    """Edges of row maximum, rescale factor and accumulator that both forms share."""
    rows_bytes = s.rows * STATISTIC_BYTES
    b.edge(f"MAX_{x}", f"MAX_{x}", "registers", value=f"m_{x}", distance=1, size_bytes=rows_bytes)
    b.edge(f"SUM_{x}", f"SUM_{x}", "registers", value=f"l_{x}", distance=1, size_bytes=rows_bytes)
    b.edge(f"MAX_{x}", f"RESC_{x}", "registers", value=f"factor_{x}", size_bytes=rows_bytes)
    b.edge(f"MAX_{x}", f"SUM_{x}", "registers", value=f"factor_{x}", size_bytes=rows_bytes)
    if p.rescale == "old_max":
        for exp in exps:
            b.edge(f"MAX_{x}", exp, "registers", value=f"m_{x}", distance=1, size_bytes=rows_bytes)
    kind = "tmem" if o_kind == "tmem" else "registers"
    size = 0 if o_kind == "tmem" else s.rows * s.dv * 4
    b.edge(last_pv, f"RESC_{x}", kind, value=f"O_{x}", distance=1, size_bytes=size)  # type: ignore[arg-type]
    b.edge(f"RESC_{x}", first_pv, kind, value=f"O_{x}", size_bytes=size)  # type: ignore[arg-type]


def _register_subtile(b: GraphBuilder, machine: Machine, p: AttnFwd, s: _Shape, i: int) -> tuple[str, ...]:
    """S, P and O in registers; one warpgroup of 128 threads a sub-tile."""
    x, threads = LETTERS[i], 128
    tile = s.rows * s.n
    if len(s.chunks) > 1:
        raise ParameterError("P in registers is converted as a whole", "use chunks=1 on this machine")
    qk, mx, ex, sm, cv, rs, pv = (f"{op}_{x}" for op in ("QK", "MAX", "EXP", "SUM", "CVT", "RESC", "PV"))
    b.mma(qk, "mma_qk", s.rows, s.n, s.d, smem_operands="ab", subtile=i)
    b.compute(mx, "row_max", work=(Work("alu", tile), Work("shfl", threads * 2 * 2)), subtile=i)
    b.compute(ex, "exp2", work=_exp_work(s, machine, s.n), unit="mufu", subtile=i)
    b.compute(sm, "row_sum", work=(Work("fma", tile),), unit="fma", subtile=i)
    b.compute(cv, "convert", work=(Work("alu", tile / 2),), subtile=i)
    full = s.rows * s.dv
    vote = threads * 2
    share = 1.0 if p.rescale == "always" else p.rescale_rate
    work = (Work("fma", full * share),) if p.rescale == "always" else (Work("fma", full * share), Work("alu", vote * 2))
    b.compute(rs, "rescale", work=work, unit="fma", subtile=i)
    b.mma(pv, "mma_pv", s.rows, s.dv, s.n, smem_operands="b", subtile=i)

    ahead = p.rescale == "old_max"
    if ahead:
        # K stays until the maximum is known: where it turns out far too large, scores are made again
        b.edge("LK", qk, "smem", value="K")
        b.release("K", mx, hold_cycles=b.latency_cycles(mx))
    else:
        b.read("LK", qk, "K", hold_cycles=b.latency_cycles(qk))
    b.value(f"S_{x}", qk, tile // threads)
    if not ahead:
        b.use(f"S_{x}", mx, size_bytes=tile * 4)
    b.use(f"S_{x}", ex, hold_cycles=0, size_bytes=tile * 4)
    if not ahead:
        b.edge(mx, ex, "registers", value=f"m_{x}", size_bytes=s.rows * STATISTIC_BYTES)
    b.value(f"E_{x}", ex, tile // threads)
    if ahead:
        b.use(f"E_{x}", mx, size_bytes=tile * 4)
        b.edge(mx, cv, "registers", value=f"E_{x}", size_bytes=tile * 4)
    b.use(f"E_{x}", sm, size_bytes=tile * 4)
    b.use(f"E_{x}", cv, size_bytes=tile * 4)
    b.value(f"P_{x}", cv, tile // threads // 2)
    b.use(f"P_{x}", pv, hold_cycles=b.latency_cycles(pv), size_bytes=tile * 2)
    b.read("LV", pv, "V", hold_cycles=b.latency_cycles(pv))
    b.value(f"O_{x}", pv, s.rows * s.dv // threads, persistent=True)
    b.hold(f"O_{x}", rs, distance=1)
    _link_statistics(b, p, s, x, [ex], pv, pv, "registers")
    return (qk, mx, ex, sm, cv, rs, pv)


def _tmem_subtile(b: GraphBuilder, machine: Machine, p: AttnFwd, s: _Shape, i: int) -> tuple[str, ...]:
    """S, P and O in tensor memory; P overwrites S column by column."""
    x = LETTERS[i]
    threads = 32 * s.warps
    tile = s.rows * s.n
    lanes = s.rows // 128 if s.rows >= 128 else 1
    qk, mx, sm, rs = (f"{op}_{x}" for op in ("QK", "MAX", "SUM", "RESC"))
    exps = [f"EXP_{x}" + (str(c) if len(s.chunks) > 1 else "") for c in range(len(s.chunks))]
    pvs = [f"PV_{x}" + (str(c) if len(s.chunks) > 1 else "") for c in range(len(s.chunks))]
    port = tile * 4 / machine.cost("tmem_load_bytes")
    maxima = 0.0 if machine.cost("tmem_row_max") else tile / machine.cost("max_inputs")
    alu_rate = machine.cost("alu_lanes")
    last = 0.25 * maxima / alu_rate

    b.mma(qk, "mma_qk", s.rows, s.n, s.d, smem_operands="ab", ctas=p.ctas, subtile=i)
    b.compute(mx, "row_max", work=(Work("alu", maxima),), unit="tmem", warps=s.warps, subtile=i,
              floor_cycles=machine.cost("tmem_load_fixed") + port, extra_cycles=last,
              ports={"tmem": 100 * port})  # fmt: skip
    for c, width in enumerate(s.chunks):
        elements = s.rows * width
        store_port = elements * 2 / machine.cost("tmem_store_bytes")
        tail = min(32, width) * s.rows / 2 / alu_rate + machine.cost("tmem_store_fixed") + store_port
        b.compute(exps[c], "exp2", work=(*_exp_work(s, machine, width), Work("alu", elements / 2)), unit="mufu", warps=s.warps,
                  extra_cycles=tail, ports={"tmem": 100 * store_port}, subtile=i, chunk=c)  # fmt: skip
        b.mma(pvs[c], "mma_pv", s.rows, s.dv, width, smem_operands="b", ctas=p.ctas, subtile=i, chunk=c)
    b.compute(sm, "row_sum", work=(Work("fma", tile),), unit="fma", warps=s.warps, subtile=i)
    o_bytes = s.rows * s.dv * 4
    o_port = o_bytes / machine.cost("tmem_load_bytes") + o_bytes / machine.cost("tmem_store_bytes")
    fixed = machine.cost("tmem_load_fixed") + machine.cost("tmem_store_fixed")
    full = fixed + o_port + s.rows * s.dv / machine.cost("fma_lanes") / 4
    vote = machine.cost("handover_named_barrier")
    cycles = round(_expected(p, full, vote))
    b.compute(rs, "rescale", work=(Work("fma", _expected(p, s.rows * s.dv, 0.0)),), unit="tmem", warps=s.warps, floor_cycles=cycles,
              ports={"tmem": 100 * _expected(p, o_port, 0.0)}, subtile=i)  # fmt: skip

    score = f"SP_{x}"
    cluster = int(machine.cost("handover_cluster") - machine.cost("handover_mbarrier")) if p.ctas > 1 else 0
    b.buffer(score, "tmem", s.n * lanes, writers=(qk,))
    b.buffer(f"O_{x}", "tmem", s.dv * lanes, persistent=True)
    b.read("LK", qk, "K", hold_cycles=b.latency_cycles(qk) + cluster)
    b.read(qk, mx, score, hold_cycles=b.issue_cycles(mx), kind="tmem")
    for c, width in enumerate(s.chunks):
        exp, pv, last_chunk = exps[c], pvs[c], c == len(s.chunks) - 1
        registers, fp32_bytes = s.rows * width // threads, s.rows * width * 4
        b.value(f"S_{exp}", mx, registers)
        b.use(f"S_{exp}", exp, hold_cycles=0, size_bytes=fp32_bytes)
        b.value(f"E_{exp}", exp, registers)
        b.use(f"E_{exp}", sm, size_bytes=fp32_bytes)
        b.edge(exp, pv, "tmem", value=f"P_{x}", latency_cycles=b.latency_cycles(exp) + cluster)
        b.release(score, pv, hold_cycles=b.occupancy_cycles(pv))
        b.edge("LV", pv, "smem", value="V")
        if last_chunk:
            b.release("V", pv, hold_cycles=b.latency_cycles(pv) + cluster)
        else:
            b.order(exp, exps[c + 1], latency_cycles=b.latency_cycles(exp))
            b.order(pv, pvs[c + 1], latency_cycles=b.issue_cycles(pv))
    b.value(f"T_{x}", rs, O_COLUMNS)
    _link_statistics(b, p, s, x, exps, pvs[0], pvs[-1], "tmem")
    return (qk, mx, *exps, sm, rs, *pvs)
