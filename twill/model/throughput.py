"""What an initiation interval means for a whole chip: useful arithmetic a second, in the steady state."""

from __future__ import annotations

from dataclasses import dataclass

from twill.model.graph import LoopGraph
from twill.model.machine import Machine

__all__ = ["Throughput", "throughput"]

GIGA, TERA = 1e9, 1e12


@dataclass(frozen=True, slots=True)
class Throughput:
    """``tflops`` of the chip and the ``share`` of its matrix peak that they are."""

    tflops: float
    share: float


def throughput(graph: LoopGraph, machine: Machine, ii_cycles: float) -> Throughput | None:
    """One iteration of an attention loop every ``ii_cycles`` on all multiprocessors; prologue, epilogue and the last wave not counted.

    Masked scores count in full, head dims as the caller gave them. None for other loops, and on machines whose file names no chip.
    """
    flop = _useful_flop(graph)
    if flop is None or machine.chip is None:
        return None
    a_cycle = flop / ii_cycles
    cycles = machine.chip.multiprocessors.value * machine.chip.clock.value * GIGA
    return Throughput(a_cycle * cycles / TERA, a_cycle / machine.cost("mma_flops_per_cycle"))


def _useful_flop(graph: LoopGraph) -> int | None:
    """Of one block in one iteration: two products forward (Q K and P V), five backward (three over the head dim, two over that of V)."""
    products = {"attn_fwd": (1, 1), "attn_bwd": (3, 2)}.get(graph.name)
    if products is None:
        return None
    given = graph.parameters
    rows, columns = (int(x) for x in str(given["tile"]).split("x"))
    d, dv = int(str(given["head_dim"])), int(str(given["head_dim_v"]))
    return 2 * rows * columns * (products[0] * d + products[1] * dv)
