"""Clusters of blocks. PTX ISA 9.7.13.5 (barrier.cluster), 9.7.9.22 (mapa), 9.7.9.23 (getctarank)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twill.emulate.isa.emitter import Emitter
from twill.emulate.isa.registry import rule, runtime
from twill.emulate.machine.block import WINDOW
from twill.emulate.ptx.syntax import Instruction

if TYPE_CHECKING:
    from twill.emulate.machine.warp import Warp

__all__: list[str] = []


@rule(r"mapa(\.shared::cluster)?\.u(32|64)")
def _map(e: Emitter, x: Instruction) -> None:
    """The same place in the shared memory of another block."""
    wide = "u64" if x.parts[-1] == "u64" else "u32"
    a, rank = e.get(x.operands[1], wide), e.get(x.operands[2], "u32")
    within = (1 << WINDOW) - 1
    uniform = a.uniform and rank.uniform
    e.put(x.operands[0], f"({a} & {within}) | ({rank} << {WINDOW})", wide, uniform)


@rule(r"barrier\.cluster\.arrive(\.(relaxed|release))?(\.aligned)?")
def _arrive(e: Emitter, x: Instruction) -> None:
    e.line(f"cluster_arrive(w, {x.line}, {'relaxed' in x.parts})")


@rule(r"barrier\.cluster\.wait(\.acquire)?(\.aligned)?", waits=True)
def _wait(e: Emitter, x: Instruction) -> None:
    e.line(f"if not cluster_wait(w, {x.line}): return -2")


@runtime
def cluster_arrive(w: Warp, line: int, relaxed: bool) -> None:
    """Arrive; a relaxed arrival orders nothing but the barrier itself, as ``fence.mbarrier_init`` before it makes good."""
    cluster = w.block.cluster
    barrier = cluster.barrier
    if w.cluster_generation is not None:
        w.find("barrier", line, "arrives at the cluster's barrier twice without a wait", key="twice")
    w.cluster_generation = barrier.generation
    trouble = barrier.arrive(32, 32 * len(cluster.warps), w.release(), w.name)
    if trouble is not None:
        w.find("barrier", line, f"barrier of the cluster: {trouble}", key=trouble[:12])


@runtime
def cluster_wait(w: Warp, line: int) -> bool:
    """Wait for the phase that this warp has arrived at."""
    barrier = w.block.cluster.barrier
    if w.cluster_generation is None:
        w.find("barrier", line, "waits at the cluster's barrier without having arrived", key="no arrival")
        return True
    if barrier.generation == w.cluster_generation:
        w.wait(barrier, f"PTX line {line}: waits at the barrier of the cluster: {barrier}")
        return False
    w.cluster_generation = None
    w.acquire(barrier.done, line)
    return True
