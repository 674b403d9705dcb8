"""What tile operations cost on a machine, in cycles.

All costs are those of an operation *as it runs inside a loop that keeps the tensor core busy*: pipe rates carry
the machine's contention factors (``contention_*``). Stand-alone rates are too optimistic by up to 20 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from twill.errors import ParameterError
from twill.model.graph import Reservation
from twill.model.machine import Machine

__all__ = [
    "ComputeCost",
    "MmaCost",
    "Work",
    "compute_cost",
    "mma_cost",
    "register_handover",
    "smem_store_cycles",
    "tma_load_cycles",
    "tma_store_cycles",
]

FULL = 100
"""All of a pipe, in percent."""


@dataclass(frozen=True, slots=True)
class Work:
    """``lanes`` lane-operations on one pipe: ``mufu``, ``fma``, ``alu`` or ``shfl``."""

    pipe: str
    lanes: float


@dataclass(frozen=True, slots=True)
class MmaCost:
    """Cost of one tile MMA: pipe occupancy, issue-to-result latency, issue time, SMEM port use."""

    occupancy_cycles: int
    latency_cycles: int
    issue_cycles: int
    smem_bytes_per_cycle: int


@dataclass(frozen=True, slots=True)
class ComputeCost:
    """Cost of a synchronous operation of one warpgroup: duration, and what it holds of each pipe meanwhile."""

    cycles: int
    reservations: tuple[Reservation, ...]
    fma_cycles: float


def mma_cost(machine: Machine, m: int, n: int, k: int, *, smem_operands: str, element_bytes: int = 2, ctas: int = 1) -> MmaCost:
    """Cost of an m x n x k tile MMA on one SM.

    Parameters
    ----------
    m, n, k : tile of one SM in elements; m is a multiple of the machine's instruction height, or half of it when
        two blocks share the instruction.
    smem_operands : which operands stream from SMEM: ``"ab"`` or ``"b"``.
    ctas : blocks that share the B operand; each reads ``1/ctas`` of it.

    An MMA whose operands come slower through the SMEM port than the tensor core eats them (narrow n) lasts as long
    as the port needs.

    Raises
    ------
    ParameterError : m is not a multiple of the instruction height, or k not of 16.
    """
    height = int(machine.cost("mma_tile_m"))
    half = ctas > 1 and 2 * m == height
    if m <= 0 or (m % height and not half):
        raise ParameterError(f"{m} rows do not fill matrix instructions of {height} rows on {machine.name}", f"use a multiple of {height}")
    if k <= 0 or n <= 0 or k % 8 or n % 8:
        raise ParameterError(f"an MMA of n={n}, k={k} is not a multiple of 8", "use a head dim and a tile that are multiples of 8")
    padded_k = math.ceil(k / 16) * 16
    a_bytes = m * padded_k * element_bytes if "a" in smem_operands else 0
    b_bytes = max(1, m // height) * n * padded_k * element_bytes // ctas
    port = machine.capacity("smem")
    occupancy = math.ceil(max(2 * m * n * padded_k / machine.cost("mma_flops_per_cycle"), (a_bytes + b_bytes) / port))
    latency = math.ceil(occupancy * machine.cost("mma_latency_per_occupancy") + machine.cost("mma_latency_fixed"))
    rate = math.ceil((a_bytes + b_bytes) / occupancy)
    return MmaCost(occupancy, latency, int(machine.cost("mma_issue")), rate)


def compute_cost(machine: Machine, work: tuple[Work, ...], *, floor_cycles: float = 0.0) -> ComputeCost:
    """Cost of element-wise work done by one warpgroup between two synchronization points.

    The slowest pipe sets the pace; of the rest the machine's ``hidden_share`` runs beside it. ``floor_cycles`` is
    a latency that the work cannot beat (a TMEM load that feeds it, say).
    """
    busy: dict[str, float] = {}
    for item in work:
        rate = machine.cost(f"{item.pipe}_lanes") / machine.cost(f"contention_{item.pipe}")
        busy[item.pipe] = busy.get(item.pipe, 0.0) + item.lanes / rate
    longest = max(busy.values(), default=0.0)
    cycles = max(floor_cycles, longest + (1.0 - machine.cost("hidden_share")) * (sum(busy.values()) - longest))
    total = max(1, math.ceil(cycles))
    reservations = []
    for pipe, amount in sorted(busy.items()):
        if pipe in machine.units:
            share = min(FULL, max(1, round(FULL * amount / total)))
            reservations.append(Reservation(unit=pipe, cycles=total, amount=share))
    return ComputeCost(total, tuple(reservations), busy.get("fma", 0.0))


def tma_load_cycles(machine: Machine, size_bytes: int) -> int:
    """Latency of a TMA load whose inner box is one 128-byte swizzle atom."""
    return math.ceil(machine.cost("tma_load_fixed") + machine.cost("tma_load_per_kb") * size_bytes / 1024)


def tma_store_cycles(machine: Machine, size_bytes: int) -> int:
    """Latency of a TMA store or bulk reduction until its SMEM source may be written again."""
    return math.ceil(machine.cost("tma_store_fixed") + machine.cost("tma_store_per_kb") * size_bytes / 1024)


def smem_store_cycles(machine: Machine, size_bytes: float) -> float:
    """Time that one warpgroup needs to store ``size_bytes`` from registers to SMEM beside busy MMAs."""
    return size_bytes / machine.cost("smem_store_bytes")


def register_handover(machine: Machine, size_bytes: float) -> int:
    """Registers of one group through SMEM into registers of another, synchronization included."""
    return math.ceil(machine.cost("handover_registers_fixed") + machine.cost("handover_registers_per_kb") * size_bytes / 1024)
