"""Run a launch: cluster after cluster, under one scheduler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from twill.emulate.findings import Findings
from twill.emulate.host.record import Launch
from twill.emulate.machine.block import Cluster
from twill.emulate.machine.code import Code
from twill.emulate.machine.deadlock import deadlock
from twill.emulate.machine.memory import GlobalMemory
from twill.emulate.machine.names import Names
from twill.emulate.machine.schedulers import make

__all__ = ["Coverage", "run"]


@dataclass
class Coverage:
    """What a run went through."""

    blocks: int = 0
    segments: int = 0
    seen: set[int] = field(default_factory=set)
    turns: dict[str, int] = field(default_factory=dict)
    """Most phases that each barrier has completed in one block."""
    arrived: dict[int, set[str]] = field(default_factory=dict)
    """Barriers that arrivals of each PTX line went to."""
    waited: set[str] = field(default_factory=set)
    """Barriers that somebody has waited for."""
    taught: set[int] = field(default_factory=set)
    """PTX lines of waits that have told a warp something it did not know: all other waits are implied by what is around them."""


def run(
    launch: Launch, code: Code, memory: GlobalMemory, names: Names, scheduler: str, seed: int, findings: Findings,
    progress: Callable[[int, int], None] | None = None,
) -> Coverage:  # fmt: skip
    """Run all blocks of a launch. Stops at the first deadlock: what follows would only repeat it."""
    coverage = Coverage()
    code.hits[:] = bytes(len(code.hits))
    gx, gy, gz = launch.grid
    cx, cy, cz = launch.cluster
    firsts = [(x, y, z) for z in range(0, gz, cz) for y in range(0, gy, cy) for x in range(0, gx, cx)]
    with np.errstate(all="ignore"):
        for i, first in enumerate(firsts):
            policy = make(scheduler, seed + i, code.launching)
            cluster = Cluster(launch, code, memory, first, policy, findings, names)
            while policy.step(cluster):
                pass
            coverage.blocks += len(cluster.blocks)
            coverage.segments += sum(w.steps for w in cluster.warps)
            coverage.taught.update(*(w.taught for w in cluster.warps))
            for block in cluster.blocks:
                for address, barrier in block.barriers.items():
                    name = names.barrier(address - 1024)
                    coverage.turns[name] = max(coverage.turns.get(name, 0), barrier.phase)
                    for line in barrier.arrivals:
                        coverage.arrived.setdefault(line, set()).add(name)
                    if barrier.waited:
                        coverage.waited.add(name)
            if progress is not None:
                progress(i + 1, len(firsts))
            if not all(w.done for w in cluster.warps):
                findings.add(deadlock(cluster))
                break
    coverage.seen = {i for i, hit in enumerate(code.hits) if hit}
    return coverage
