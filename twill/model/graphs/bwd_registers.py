"""The attention backward loop where MMAs leave their result in the registers of the warpgroup that issued them.

The keys are cut among the consumers. Up to head dim 128 each consumer has 64 rows of S^T, and P^T and dS^T go from
its registers into the MMAs of dV and dK ("keys" cut). Beyond, dK and dV of 128 keys do not fit the registers: the tile is
narrower, S is made with queries as rows and a slice of keys a consumer, and P and dS reach the MMAs of dV and dK
through SMEM ("columns" cut). dQ needs dS of all consumers, so dS always goes through SMEM for it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from twill.errors import ParameterError
from twill.model.builder import GraphBuilder
from twill.model.costs import Work, mma_cost, smem_store_cycles
from twill.model.graphs.bwd_shape import LETTERS, WIDE_HEAD_DIM, BwdShape, padded
from twill.model.machine import Machine

__all__ = ["dq_cut", "keys_are_rows", "register_form"]

THREADS = 128
"""Threads of the warpgroup that runs one sub-tile."""


BARRIER_BYTES = 1024
"""SMEM for barriers, and for aligning what lies behind the tiles."""


@dataclass(frozen=True, slots=True)
class _Mma:
    """Shape of one MMA, of which consumers it needs P or dS, and, of dQ, what its parts divide."""

    m: int
    n: int
    k: int
    needs_all: bool = True
    divides: str = ""

    @property
    def registers(self) -> int:
        return self.m * self.n // THREADS


@dataclass(frozen=True, slots=True)
class _Cut:
    """How the MMAs are cut among the consumers; ``operands`` of dV and dK come from SMEM: ``b``, or ``ab``."""

    qk: _Mma
    dp: _Mma
    dv: _Mma
    dk: _Mma
    operands: str

    @property
    def through_smem(self) -> bool:
        return self.operands == "ab"


def _cut(s: BwdShape, height: int) -> _Cut:
    if keys_are_rows(s):
        if s.n % (height * s.subtiles):
            raise ParameterError(
                f"{s.n} keys do not give {s.subtiles} sub-tiles of multiples of {height} rows",
                f"use --tile {s.m}x{height * s.subtiles}, or other --subtiles",
            )
        rows = s.n // s.subtiles
        keys = (_Mma(rows, s.m, s.d), _Mma(rows, s.m, s.dv), _Mma(rows, s.dv, s.m, False), _Mma(rows, s.d, s.m, False))
        return _Cut(*keys, operands="b")
    if s.n % (8 * s.subtiles) or s.m % height:
        raise ParameterError(
            f"head dims over {WIDE_HEAD_DIM} need a multiple of {height} queries and of {8 * s.subtiles} keys, not {s.m}x{s.n}",
            f"use --tile {height}x{padded(48, 8 * s.subtiles)}",
        )
    width = s.n // s.subtiles
    return _Cut(_Mma(s.m, width, s.d), _Mma(s.m, width, s.dv), _accumulator(s, s.dv, height), _accumulator(s, s.d, height), operands="ab")


def _accumulator(s: BwdShape, d: int, height: int) -> _Mma:
    """dV^T or dK^T: head dim as rows, cut by keys where a slice fills an MMA, else by head dim."""
    width = s.n // s.subtiles
    if width % 16 == 0 or d % (height * s.subtiles):
        return _Mma(padded(d, height), width, s.m, needs_all=False)
    return _Mma(d // s.subtiles, s.n, s.m, needs_all=True)


def _dq_parts(machine: Machine, s: BwdShape, height: int) -> tuple[int, _Mma]:
    """Parts of dQ and the MMA of each: one a consumer, or a single one where parts starve on operands.

    Each part is cut the cheapest way: by query rows, by head dim as rows (dQ^T), or by head dim as columns.
    """

    def cost(c: _Mma) -> tuple[int, int]:
        mma = mma_cost(machine, c.m, c.n, c.k, smem_operands="ab", element_bytes=s.element)
        return mma.occupancy_cycles, mma.smem_bytes_per_cycle

    best: dict[int, tuple[int, _Mma]] = {}
    for parts in (s.dq_parts,) if s.dq_parts else (s.subtiles, 1):
        choices = []
        if s.m % (height * parts) == 0:
            choices.append(_Mma(s.m // parts, s.d, s.n, divides="queries"))
        if s.d % (height * parts) == 0:
            choices.append(_Mma(s.d // parts, s.m, s.n, divides="rows of dQ^T"))
        if s.m % height == 0 and s.d % (8 * parts) == 0:
            choices.append(_Mma(s.m, s.d // parts, s.n, divides="columns"))
        if choices:
            choice = min(choices, key=cost)
            best[parts] = (parts * cost(choice)[0], choice)
    if not best:
        raise ParameterError(
            f"dQ of {s.m} queries and head dim {s.d} cannot be cut into {s.dq_parts or s.subtiles} parts of multiples of {height} rows",
            f"use --tile {padded(s.m, height)}x{s.n}, or dq_parts=1",
        )
    parts = min(best, key=lambda p: best[p][0])
    return parts, best[parts][1]


def dq_cut(machine: Machine, s: BwdShape) -> tuple[int, str]:
    """How many MMAs make dQ, and what these divide: its ``queries``, its ``columns``, or the head dim as ``rows of dQ^T``."""
    parts, shape = _dq_parts(machine, s, int(machine.cost("mma_tile_m")))
    return parts, shape.divides


def keys_are_rows(s: BwdShape) -> bool:
    """Whether a consumer has whole rows of S^T, and P^T and dS^T stay in registers; else it has columns of S, and both go through SMEM."""
    return max(s.d, s.dv) <= WIDE_HEAD_DIM


def register_form(b: GraphBuilder, machine: Machine, s: BwdShape) -> int:
    """Add the loop to the builder; returns the number of parts of dQ.

    Raises
    ------
    ParameterError : a tile that the matrix instructions cannot take.
    """
    height = int(machine.cost("mma_tile_m"))
    cut = _cut(s, height)
    parts, dq = _dq_parts(machine, s, height)
    rows = s.statistic_bytes
    b.load("LQ", "Q", s.m * s.d * s.element, row_bytes=rows)
    b.load("LDO", "dO", s.m * s.dv * s.element, row_bytes=rows)
    b.buffer("K", "smem", s.n * s.d * s.element, persistent=True)
    b.buffer("V", "smem", s.n * s.dv * s.element, persistent=True)
    b.reserve("smem", BARRIER_BYTES + _most_slots(machine, s, cut) * rows)
    consumers = [_consumer(b, machine, s, cut, i) for i in range(s.subtiles)]
    for x in s.letters:
        for y in s.letters:
            if cut.through_smem and (cut.dv.needs_all or x == y):
                b.read(f"CVT_{y}", f"DV_{x}", f"P_{y}", hold_cycles=b.latency_cycles(f"DV_{x}"))
            if cut.through_smem and (cut.dk.needs_all or x == y):
                b.read(f"DSST_{y}", f"DK_{x}", f"dS_{y}", hold_cycles=b.latency_cycles(f"DK_{x}"))
    makers = [_dq_part(b, machine, s, dq, p if parts > 1 else None) for p in range(parts)]
    for group in (consumers, makers):
        for first, second in itertools.pairwise(group):
            b.symmetric(first, second)
    return parts


def _most_slots(machine: Machine, s: BwdShape, cut: _Cut) -> int:
    """Most tiles of Q and dO that SMEM holds beside what stays and one slot of the rest: each has its row of LSE or dPsum."""
    stays = s.n * (s.d + s.dv) * s.element
    scores = s.m * s.n * s.element * (2 if cut.through_smem else 1)
    free = machine.memory_size("smem") - BARRIER_BYTES - stays - scores - s.m * s.d * 4
    return max(4, free // (s.m * min(s.d, s.dv) * s.element))


def _consumer(b: GraphBuilder, machine: Machine, s: BwdShape, cut: _Cut, i: int) -> tuple[str, ...]:
    """Scores to dS for one slice of keys, and the MMAs of dV and dK."""
    x = LETTERS[i]
    qk, dp, ex, cv, ds, st, dv, dk = (f"{op}_{x}" for op in ("QK", "DP", "EXP", "CVT", "DS", "DSST", "DV", "DK"))
    tile = cut.qk.m * cut.qk.n
    score, half = tile // THREADS, tile // THREADS // 2
    barrier = machine.cost("handover_named_barrier")
    small = tile * s.element
    store = smem_store_cycles(machine, small)
    b.mma(qk, "mma_qk", cut.qk.m, cut.qk.n, cut.qk.k, smem_operands="ab", subtile=i)
    b.mma(dp, "mma_dp", cut.dp.m, cut.dp.n, cut.dp.k, smem_operands="ab", subtile=i)
    b.compute(ex, "exp2", work=(Work("fma", tile), Work("mufu", tile)), unit="mufu", subtile=i)
    extra, port = (store + barrier, small) if cut.through_smem else (0.0, 0)
    b.compute(cv, "convert", work=(Work("alu", tile / 2),), extra_cycles=extra, ports={"smem": port}, subtile=i)
    b.compute(ds, "dscore", work=(Work("fma", 2 * tile), Work("alu", tile / 2)), unit="fma", subtile=i)
    b.compute(st, "store_ds", work=(), unit="smem", floor_cycles=store + barrier, ports={"smem": small}, subtile=i)
    b.mma(dv, "mma_dv", cut.dv.m, cut.dv.n, cut.dv.k, smem_operands=cut.operands, subtile=i)
    b.mma(dk, "mma_dk", cut.dk.m, cut.dk.n, cut.dk.k, smem_operands=cut.operands, subtile=i)

    b.read("LQ", qk, "Q", hold_cycles=b.latency_cycles(qk))
    b.read("LQ", dk, "Q", hold_cycles=b.latency_cycles(dk))
    b.read("LDO", dp, "dO", hold_cycles=b.latency_cycles(dp))
    b.read("LDO", dv, "dO", hold_cycles=b.latency_cycles(dv))
    b.value(f"S_{x}", qk, score)
    b.use(f"S_{x}", ex, hold_cycles=0, size_bytes=tile * 4)
    b.value(f"E_{x}", ex, score)
    b.use(f"E_{x}", cv, hold_cycles=0, size_bytes=tile * 4)
    b.value(f"P_{x}", cv, half)
    b.value(f"dP_{x}", dp, score)
    b.use(f"dP_{x}", ds, hold_cycles=0, size_bytes=tile * 4)
    if s.ds_from_bf16:
        b.use(f"P_{x}", ds, size_bytes=small)
    else:
        b.use(f"E_{x}", ds, size_bytes=tile * 4)
    b.value(f"dS_{x}", ds, half)
    b.use(f"dS_{x}", st, size_bytes=small)
    b.buffer(f"dS_{x}", "smem", small, writers=(st,))
    if cut.through_smem:
        b.buffer(f"P_{x}", "smem", small, writers=(cv,))
    else:
        b.use(f"P_{x}", dv, hold_cycles=b.latency_cycles(dv), size_bytes=small)
        b.use(f"dS_{x}", dk, hold_cycles=b.latency_cycles(dk), size_bytes=small)
        # the assembler gives new scores no registers while MMAs run that read P or dS out of theirs, and serialises all of them
        b.order(dv, qk, latency_cycles=b.latency_cycles(dv), distance=1)
        b.order(dk, qk, latency_cycles=b.latency_cycles(dk), distance=1)
        b.order(dp, dv, latency_cycles=b.latency_cycles(dp))
    b.value(f"dV_{x}", dv, cut.dv.registers, persistent=True)
    b.value(f"dK_{x}", dk, cut.dk.registers, persistent=True)
    b.order(dv, dv, latency_cycles=b.occupancy_cycles(dv), distance=1)
    b.order(dk, dk, latency_cycles=b.occupancy_cycles(dk), distance=1)
    return (qk, dp, ex, cv, ds, st, dv, dk)


def _dq_part(b: GraphBuilder, machine: Machine, s: BwdShape, shape: _Mma, part: int | None) -> tuple[str, ...]:
    """dQ = dS K, staged in SMEM and added to global memory."""
    suffix = "" if part is None else f"_{LETTERS[part]}"
    dq, st, red = (f"{op}{suffix}" for op in ("DQ", "DQST", "RED"))
    size = shape.m * shape.n * 4
    staging = f"dQ{suffix}"
    b.mma(dq, "mma_dq", shape.m, shape.n, shape.k, smem_operands="ab", subtile=part)
    cycles = smem_store_cycles(machine, size) + machine.cost("handover_named_barrier")
    b.compute(st, "stage_dq", work=(), unit="smem", floor_cycles=cycles, ports={"smem": size}, subtile=part)
    b.bulk(red, "reduce_add", size)
    for x in s.letters:
        b.read(f"DSST_{x}", dq, f"dS_{x}", hold_cycles=b.latency_cycles(dq))
    b.value(staging, dq, shape.registers)
    b.use(staging, st, size_bytes=size)
    b.buffer(staging, "smem", size, writers=(st,))
    b.read(st, red, staging, hold_cycles=b.latency_cycles(red))
    return (dq, st, red)
