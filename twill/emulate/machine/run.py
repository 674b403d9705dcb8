"""Run a launch: cluster after cluster, under one scheduler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from twill.emulate.findings import Finding, Findings
from twill.emulate.host.record import Launch
from twill.emulate.machine.barriers import MBarrier
from twill.emulate.machine.block import Cluster
from twill.emulate.machine.code import Code
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
            if progress is not None:
                progress(i + 1, len(firsts))
            if not all(w.done for w in cluster.warps):
                _deadlock(cluster)
                break
    coverage.seen = {i for i, hit in enumerate(code.hits) if hit}
    return coverage


def _deadlock(cluster: Cluster) -> None:
    """Say where every warp is."""
    lines: list[str] = []
    hints: dict[str, None] = {}
    first = 0
    for w in cluster.warps:
        if w.done:
            lines.append(f"  {w.place}: has ended")
            continue
        reasons = [reason for _, _, reason in w.waits] or [f"is at PTX line {cluster.code.first_line(w.fragments[0][0])}"]
        at = cluster.code.first_line(w.fragments[0][0])
        first = first or at
        known = "; ".join(x for x in (cluster.code.statement(at), cluster.code.source(at)) if x)
        lines.append(f"  {w.place}: {'; '.join(reasons)}" + (f" ({known})" if known else ""))
    for w in cluster.warps:
        for counter, _, _ in w.waits:
            if isinstance(counter, MBarrier) and (counter.pending < counter.expected or counter.bytes):
                name = cluster.names.barrier(counter.address - 1024)
                hints.setdefault(f"  look at {name}, a phase of which has begun and does not end: {counter}")
    lines = [*hints, *lines]
    for block in cluster.blocks:
        for address, barrier in sorted(block.barriers.items()):
            lines.append(f"  {cluster.names.barrier(address - 1024)}: {barrier}")
    lines += [f"  in flight: {o.name} of PTX line {o.line}" for o in cluster.pending]
    cluster.findings.add(Finding("deadlock", "no warp can go on\n" + "\n".join(lines), first, "", f"block {cluster.ranks[0]}"))
