"""The attention backward loop where MMAs leave their result in tensor memory.

One MMA a product for the whole tile; the element-wise work on S^T and dP^T is cut by query columns into sub-tiles, and dQ
leaves in parts through SMEM. With two blocks a pair (``ctas`` 2) each block owns its own keys; B operands are halved,
so the MMAs of dV and dK need other halves of dO and Q (loaded as ``dOt``, ``Qt``) than those of dP and S; dQ of the
pair is cut by query rows, so that each block sends the half of its dS that belongs to the peer's rows.

Tensor memory (512 columns) decides the variants, after FlashAttention-4:

* up to head dim 64 P and dS have columns of their own, and S may be overwritten as soon as it has been read;
* beyond, P overwrites S and dS overwrites dP; dQ has no columns of its own at 96 and 128: it must share those of dP or
  S in time, which is left to the solver's placement;
* with one compute group (``subtiles`` 1) in a pair, S is two buffers, the half that P overwrites and the half that is free
  once S has been read; that is where dQ finds room beside dP at 128, and dP itself at 192/128;
* with 64 keys (256) scores are folded into half the columns, and P and dS go through SMEM.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from twill.errors import ParameterError
from twill.model.builder import GraphBuilder
from twill.model.costs import Work, smem_store_cycles, tma_load_cycles
from twill.model.graphs.bwd_shape import BwdShape
from twill.model.machine import Machine

__all__ = ["tmem_form"]

LANES = 128
"""Rows of tensor memory; a tile of fewer rows is folded into fewer columns."""

THREAD_COLUMNS = 64
"""fp32 scores that one thread holds at most; more columns mean more warps."""

LOAD_COLUMNS = 32
"""fp32 values that one TMEM load brings to a thread where they are used up at once."""

OWN_COLUMNS_HEAD_DIM = 64
"""Up to this head dim P and dS need not overwrite S and dP."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where things lie: chosen so that one stage of everything fits the SMEM, in FlashAttention-4's order of preference.

    ``refill``: Q and dO are loaded twice into the same buffer; ``aliased``: the dS half for the peer waits in the dQ
    staging; ``parts`` of dQ go through ``staging`` buffers in turn; ``stages`` of Q were given room.
    """

    refill: bool
    aliased: bool
    parts: int
    staging: int
    stages: int


def _score_bytes(s: BwdShape) -> int:
    return s.n * s.m * s.element


def _dq_rows(s: BwdShape) -> int:
    return s.m // s.ctas


def _smem_bytes(s: BwdShape, plan: _Plan) -> int:
    """SMEM of one block with a single stage of everything but Q."""
    halves = s.ctas if not plan.refill else 1
    queries = s.m // s.ctas
    total = plan.stages * queries * s.d * s.element + queries * s.dv * s.element
    if s.ctas > 1:
        total += (halves - 1) * queries * (s.d + s.dv) * s.element
        total += s.n * s.d * s.element
    total += s.n * (s.d + s.dv) * s.element + _score_bytes(s)
    if _scores_in_smem(s):
        total += 2 * _score_bytes(s)
    part = _dq_rows(s) * s.d * 4 // plan.parts
    exchange = _score_bytes(s) // 2 if s.ctas > 1 else 0
    total += (max(part, exchange) if plan.aliased else part + exchange) + (plan.staging - 1) * part
    return total


def _plan(s: BwdShape, capacity: int) -> _Plan:
    if s.ctas > 1:
        layouts = [(False, False, 2), (False, False, 1), (False, True, 1), (True, False, 1), (True, True, 1)]
    else:
        layouts = [(False, False, 2), (False, False, 1)]
    cuts = [(2, 2), (4, 2), (2, 1), (4, 1)] if s.dq_parts is None else [(s.dq_parts, k) for k in (4, 2, 1) if s.dq_parts % k == 0]
    plans = [_Plan(refill, aliased, parts, staging, stages) for refill, aliased, stages in layouts for parts, staging in cuts]
    return next((plan for plan in plans if _smem_bytes(s, plan) <= capacity), plans[-1])


def _folded(s: BwdShape) -> bool:
    return s.n < LANES


def _scores_in_smem(s: BwdShape) -> bool:
    """Operands of folded layout cannot be read from TMEM."""
    return _folded(s)


def _columns(rows: int, width: int) -> int:
    """TMEM columns of an fp32 tile."""
    return rows * width // LANES


def _check(s: BwdShape) -> None:
    allowed = (LANES, LANES // 2) if s.ctas > 1 else (LANES,)
    if s.n not in allowed:
        raise ParameterError(
            f"{s.n} keys are not the rows of one MMA ({' or '.join(map(str, allowed))} with {s.ctas} CTAs)", f"use --tile {s.m}x{LANES}"
        )
    if s.m != LANES:
        raise ParameterError(f"{s.m} queries are not the rows of one MMA of dQ", f"use --tile {LANES}x{s.n}")
    if (s.m // s.subtiles) % 16 or s.m % s.subtiles:
        raise ParameterError(f"{s.m} queries cannot be cut into {s.subtiles} sub-tiles of multiples of 16", "use --subtiles 1, 2 or 4")
    if s.dq_parts and _columns(_dq_rows(s), s.d) % (8 * s.dq_parts):
        raise ParameterError(f"dQ cannot be cut into {s.dq_parts} parts of multiples of 8 columns", "use dq_parts=2")


def tmem_form(b: GraphBuilder, machine: Machine, s: BwdShape) -> int:
    """Add the loop to the builder; returns the number of parts of dQ.

    Raises
    ------
    ParameterError : a tile that the matrix instructions cannot take.
    """
    _check(s)
    reserved = 1024 + 4 * s.statistic_bytes
    plan = _plan(s, machine.memory_size("smem") - reserved)
    b.reserve("smem", reserved)
    cluster = int(machine.cost("handover_cluster") - machine.cost("handover_mbarrier")) if s.ctas > 1 else 0
    _mmas(b, s)
    _loads(b, s, plan, cluster)
    exps = [_exp(b, machine, s, x, cluster) for x in range(s.subtiles)]
    dss = [_dscore(b, machine, s, x) for x in range(s.subtiles)]
    _storage(b, machine, s, exps, dss, cluster)
    _dscore_to_mma(b, machine, s, plan, dss, cluster)
    _dq_reduction(b, machine, s, plan, dss, cluster)
    for first, second in itertools.pairwise(zip(exps, dss, strict=True)):
        b.symmetric(first, second)
    return plan.parts


def _mmas(b: GraphBuilder, s: BwdShape) -> None:
    """The five MMAs, in the order of one iteration."""
    both = "ab" if _scores_in_smem(s) else "b"
    b.mma("QK", "mma_qk", s.n, s.m, s.d, smem_operands="ab", ctas=s.ctas)
    b.mma("DP", "mma_dp", s.n, s.m, s.dv, smem_operands="ab", ctas=s.ctas)
    b.mma("DV", "mma_dv", s.n, s.dv, s.m, smem_operands=both, ctas=s.ctas)
    b.mma("DK", "mma_dk", s.n, s.d, s.m, smem_operands=both, ctas=s.ctas)
    b.mma("DQ", "mma_dq", _dq_rows(s), s.d, s.n * s.ctas, smem_operands="ab", ctas=s.ctas)
    for name in ("DV", "DK"):
        b.order(name, name, latency_cycles=b.occupancy_cycles(name), distance=1)


def _loads(b: GraphBuilder, s: BwdShape, plan: _Plan, cluster: int) -> None:
    queries = s.m // s.ctas
    q_bytes, do_bytes, rows = queries * s.d * s.element, queries * s.dv * s.element, s.statistic_bytes

    def read(load: str, mma: str, buffer: str) -> None:
        b.read(load, mma, buffer, hold_cycles=b.latency_cycles(mma) + cluster)

    b.load("LQ", "Q", q_bytes, row_bytes=rows, ctas=s.ctas)
    b.load("LDO", "dO", do_bytes, row_bytes=rows, ctas=s.ctas)
    read("LQ", "QK", "Q")
    read("LDO", "DP", "dO")
    if s.ctas == 1:
        read("LQ", "DK", "Q")
        read("LDO", "DV", "dO")
    else:
        qt, dot = ("Q", "dO") if plan.refill else ("Qt", "dOt")
        b.load("LQT", qt, q_bytes, ctas=s.ctas)
        b.load("LDOT", dot, do_bytes, ctas=s.ctas)
        read("LQT", "DK", qt)
        read("LDOT", "DV", dot)
        if plan.refill:
            b.order("QK", "LQT", latency_cycles=b.latency_cycles("QK") + cluster)
            b.order("DP", "LDOT", latency_cycles=b.latency_cycles("DP") + cluster)
            b.note("Q and dO are loaded a second time into the same buffers, as the halves that dK and dV need")
        b.buffer("Kt", "smem", s.n * s.d * s.element, persistent=True)
    b.buffer("K", "smem", s.n * s.d * s.element, persistent=True)
    b.buffer("V", "smem", s.n * s.dv * s.element, persistent=True)


def _suffix(s: BwdShape, i: int) -> str:
    return f"_{s.letters[i]}" if s.subtiles > 1 else ""


def _warps(elements: int) -> int:
    return 4 * max(1, math.ceil(elements / (LANES * THREAD_COLUMNS)))


def _elements(s: BwdShape) -> int:
    """Scores of one sub-tile."""
    return s.n * s.m // s.subtiles


def _load_port(machine: Machine, elements: int) -> float:
    return elements * 4 / machine.cost("tmem_load_bytes")


def _store_port(machine: Machine, elements: int, element_bytes: int) -> float:
    return elements * element_bytes / machine.cost("tmem_store_bytes")


def _exp(b: GraphBuilder, machine: Machine, s: BwdShape, i: int, cluster: int) -> str:
    """P = exp2(S - LSE) of one sub-tile: TMEM load, exponentials, convert, store; P stays in registers for dS."""
    e, name = _elements(s), f"EXP{_suffix(s, i)}"
    warps = _warps(e)
    load, store = _load_port(machine, e), _store_port(machine, e, s.element)
    tail = machine.cost("tmem_store_fixed") + store
    ports = {"tmem": 100 * (load + store)}
    if _scores_in_smem(s):
        tail = smem_store_cycles(machine, e * s.element) + machine.cost("handover_named_barrier")
        ports = {"tmem": 100 * load, "smem": float(e * s.element)}
    b.compute(name, "exp2", work=(Work("fma", e), Work("mufu", e), Work("alu", e / 2)), unit="mufu", warps=warps,
              extra_cycles=machine.cost("tmem_load_fixed") + tail, ports=ports, subtile=i)  # fmt: skip
    b.edge("QK", name, "tmem", value="S")
    kind = "smem" if _scores_in_smem(s) else "tmem"
    b.edge(name, "DV", kind, value="P", latency_cycles=b.latency_cycles(name) + cluster)  # type: ignore[arg-type]
    b.value(f"P{_suffix(s, i)}", name, e // (32 * warps))
    return name


def _dscore_smem_cycles(machine: Machine, s: BwdShape) -> tuple[float, float]:
    """SMEM bytes that one sub-tile of dS takes in all copies, and the time to store those that dQ waits for."""
    size = _elements(s) * s.element
    copies = 2 if _scores_in_smem(s) else 1
    return copies * size, smem_store_cycles(machine, size) + machine.cost("handover_named_barrier")


def _dscore(b: GraphBuilder, machine: Machine, s: BwdShape, i: int) -> str:
    """dS = P (dP - dPsum) of one sub-tile: TMEM load, arithmetic, convert, store for dK, then store for dQ."""
    e, name = _elements(s), f"DS{_suffix(s, i)}"
    size, last = _dscore_smem_cycles(machine, s)
    load, store = _load_port(machine, e), _store_port(machine, e, s.element)
    if _scores_in_smem(s):
        first, ports = smem_store_cycles(machine, e * s.element), {"tmem": 100 * load, "smem": size}
    else:
        first, ports = machine.cost("tmem_store_fixed") + store, {"tmem": 100 * (load + store), "smem": size}
    b.compute(name, "dscore", work=(Work("fma", 2 * e), Work("alu", e / 2)), unit="fma", warps=_warps(e), floor_cycles=load,
              extra_cycles=machine.cost("tmem_load_fixed") + first + last, ports=ports, subtile=i)  # fmt: skip
    b.edge("DP", name, "tmem", value="dP")
    b.use(f"P{_suffix(s, i)}", name, size_bytes=e * 4)
    b.value(f"dP{_suffix(s, i)}", name, min(LOAD_COLUMNS, e // (32 * _warps(e))))
    return name


def _storage(b: GraphBuilder, machine: Machine, s: BwdShape, exps: list[str], dss: list[str], cluster: int) -> None:
    """The TMEM buffers of S, P, dP, dS and the accumulators."""
    columns = _columns(s.n, s.m)
    packed = columns * s.element // 4
    read_all = math.ceil(machine.cost("tmem_load_fixed") + _load_port(machine, _elements(s)))

    def reads(buffer: str, ops: list[str], hold: int | None) -> None:
        for op in ops:
            b.release(buffer, op, hold_cycles=(b.issue_cycles(op) if hold is None else hold) + cluster)

    b.buffer("dV", "tmem", _columns(s.n, s.dv), persistent=True)
    b.buffer("dK", "tmem", _columns(s.n, s.d), persistent=True)
    own = max(s.d, s.dv) <= OWN_COLUMNS_HEAD_DIM
    if _scores_in_smem(s) or own:
        b.buffer("S", "tmem", columns, writers=("QK",))
        reads("S", exps, read_all)
        b.buffer("dP", "tmem", columns, writers=("DP",))
        reads("dP", dss, read_all)
        memory, p_size, ds_size = ("smem", _score_bytes(s), _score_bytes(s)) if _scores_in_smem(s) else ("tmem", packed, packed)
        b.buffer("P", memory, p_size, writers=tuple(exps))
        b.buffer("dS_k", memory, ds_size, writers=tuple(dss))
        hold_p, hold_ds = ("P", "dS_k")
    else:
        split = s.ctas > 1 and s.subtiles == 1
        b.buffer("SP", "tmem", columns // 2 if split else columns, writers=("QK",))
        reads("SP", exps, None)
        if split:
            b.buffer("S_hi", "tmem", columns - columns // 2, writers=("QK",))
            reads("S_hi", exps, read_all)
        b.buffer("dPdS", "tmem", columns, writers=("DP",))
        reads("dPdS", dss, None)
        hold_p, hold_ds = ("SP", "dPdS")
    for buffer, mma in ((hold_p, "DV"), (hold_ds, "DK")):
        in_smem = _scores_in_smem(s)
        b.release(buffer, mma, hold_cycles=b.latency_cycles(mma) + cluster if in_smem else b.occupancy_cycles(mma))


def _dscore_to_mma(b: GraphBuilder, machine: Machine, s: BwdShape, plan: _Plan, dss: list[str], cluster: int) -> None:
    """dS to dK at once, to dQ through SMEM, and half of it to the peer."""
    _, last = _dscore_smem_cycles(machine, s)
    writers = list(dss)
    for ds in dss:
        kind = "smem" if _scores_in_smem(s) else "tmem"
        first = b.latency_cycles(ds) - (0 if _scores_in_smem(s) else math.floor(last))
        b.edge(ds, "DK", kind, value="dS", latency_cycles=first + cluster)  # type: ignore[arg-type]
        b.edge(ds, "DQ", "smem", value="dS", latency_cycles=b.latency_cycles(ds) + cluster)
    if s.ctas > 1:
        size = _score_bytes(s) // 2
        latency = tma_load_cycles(machine, size)
        b.bulk("XCH", "exchange", size, latency_cycles=latency, port_bytes=2 * size)
        exchange = _staging_name(plan, 0) if plan.aliased else "xchg"
        if not plan.aliased:
            b.buffer(exchange, "smem", size, writers=tuple(dss))
            for ds in dss:
                b.edge(ds, "XCH", "smem", value=exchange)
            b.release(exchange, "XCH", hold_cycles=latency)
        else:
            for ds in dss:
                b.edge(ds, "XCH", "smem", value=exchange)
        b.edge("XCH", "DQ", "smem", value="dS", latency_cycles=latency + int(machine.cost("handover_cluster")))
        b.note("half of dS goes to the peer by a bulk copy, taken to be as fast as a TMA load and a cluster hand-over; not measured")
        writers.append("XCH")
    b.buffer("dS", "smem", _score_bytes(s), writers=tuple(writers))
    b.release("dS", "DQ", hold_cycles=b.latency_cycles("DQ") + cluster)


def _staging_name(plan: _Plan, i: int) -> str:
    return f"dQst{i}" if plan.staging > 1 else "dQst"


def _dq_reduction(b: GraphBuilder, machine: Machine, s: BwdShape, plan: _Plan, dss: list[str], cluster: int) -> None:
    """dQ out of TMEM, through SMEM part by part, added to global memory.

    With a part a sub-tile, one op loads and stages it. With more parts, each sub-tile of dQ is loaded to registers at
    once, so that its columns are free before the parts have taken turns in the staging.
    """
    elements = _dq_rows(s) * s.d // plan.parts
    size, columns = elements * 4, _columns(_dq_rows(s), s.d) // plan.parts
    loads = s.subtiles if plan.parts % s.subtiles == 0 else 1
    per_load = plan.parts // loads
    port, fixed = _load_port(machine, elements), machine.cost("tmem_load_fixed")
    store, barrier = smem_store_cycles(machine, size), machine.cost("handover_named_barrier")
    stages = [f"DQST{p}" for p in range(plan.parts)]
    reds = [f"RED{p}" for p in range(plan.parts)]
    b.buffer("dQ", "tmem", columns * plan.parts, writers=("DQ",))
    for x in range(loads) if per_load > 1 else ():
        load = f"DQLD{x}" if loads > 1 else "DQLD"
        b.compute(load, "load_dq", work=(), unit="tmem", floor_cycles=fixed + per_load * port, ports={"tmem": 100 * per_load * port})
        b.read("DQ", load, "dQ", hold_cycles=b.issue_cycles(load) + cluster, kind="tmem")
    for p, (stage, red) in enumerate(zip(stages, reds, strict=True)):
        if per_load > 1:
            load = f"DQLD{p // per_load}" if loads > 1 else "DQLD"
            b.compute(stage, "stage_dq", work=(), unit="smem", floor_cycles=store + barrier, ports={"smem": size})
            b.value(f"dQ{p}", load, columns)
            b.use(f"dQ{p}", stage, size_bytes=size)
        else:
            b.compute(stage, "stage_dq", work=(), unit="tmem", floor_cycles=fixed + max(port, store), extra_cycles=barrier,
                      ports={"tmem": 100 * port, "smem": size})  # fmt: skip
            b.read("DQ", stage, "dQ", hold_cycles=math.ceil(fixed + port) + cluster, kind="tmem")
            b.value(f"dQ{p}", stage, columns)
        b.bulk(red, "reduce_add", size)
        b.edge(stage, red, "smem", value="dQ")
    for i in range(plan.staging):
        mine = range(i, plan.parts, plan.staging)
        shared = plan.aliased and i == 0
        exchange = _score_bytes(s) // 2 if shared else 0
        writers = (*(dss if shared else ()), *(stages[p] for p in mine))
        b.buffer(_staging_name(plan, i), "smem", max(size, exchange), writers=writers)
        if shared:
            b.release(_staging_name(plan, i), "XCH", hold_cycles=b.latency_cycles("XCH"))
        for p in mine:
            b.release(_staging_name(plan, i), reds[p], hold_cycles=b.latency_cycles(reds[p]))
        for p, q in itertools.pairwise(mine):
            b.order(reds[p], stages[q], latency_cycles=b.latency_cycles(reds[p]))
    if plan.staging > 1 and not plan.aliased and (per_load == 1 or per_load % plan.staging == 0):
        chains = [tuple(name for p in range(i, plan.parts, plan.staging) for name in (stages[p], reds[p])) for i in range(plan.staging)]
        for first, second in itertools.pairwise(chains):
            b.symmetric(first, second)
