"""What a kernel of the forward loop is run on before it counts as right, and how far a run went: ``python -m twill.emulate.shapes``.

Every shape runs under every scheduler. The table says the largest error of all runs, how often the rings of K and V were gone round at
least, and how much of the code that rescales O ran; a finding, a wrong value or an output that was never written ends in exit code 1.
"""

from __future__ import annotations

import argparse
import ast
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from twill.emulate.kernel import AttentionKernel, Result, head_dims
from twill.emulate.machine.schedulers import SCHEDULERS
from twill.emulate.numbers import Shape

__all__ = ["SHAPES", "Named", "Outcome", "main", "outcome", "prepared"]

RESCALES = ("_scale", "rescale", "rescale_if_grown")
"""Tile operations that multiply O."""


@dataclass(frozen=True, slots=True)
class Named:
    """A shape and what it is for. ``rising`` keys make the row maximum jump from tile to tile, so that O is rescaled in every one."""

    purpose: str
    seqlen_q: int
    seqlen_k: int
    heads: int = 1
    kv_heads: int = 1
    batch: int = 1
    causal: bool = False
    dtype: Literal["bf16", "fp16"] = "bf16"
    sm_count: int = 2
    rising: bool = False

    def of(self, head_dim: int, head_dim_v: int) -> Shape:
        lengths = self.seqlen_q, self.seqlen_k
        return Shape(self.batch, *lengths, self.heads, self.kv_heads, head_dim, head_dim_v, self.causal, self.dtype, self.rising)


SHAPES = (
    Named("one row, one key", 1, 1),
    Named("one row, many keys", 1, 700, causal=True),
    Named("ragged, shared heads", 77, 131, heads=2, batch=2, dtype="fp16"),
    Named("more keys, causal", 200, 333, heads=2, kv_heads=2, causal=True),
    Named("more queries, causal: rows without keys", 700, 130, causal=True, sm_count=1),
    Named("several tiles a block", 520, 400, heads=2, sm_count=1),
    Named("several tiles a block, causal", 600, 600, heads=2, causal=True, sm_count=1, dtype="fp16"),
    Named("rings gone round", 130, 2100),
    Named("rescaled in every tile", 256, 1000, rising=True),
    Named("no keys", 300, 0, sm_count=1),
)
"""At least six of what is asked: 1 row, ragged, lengths that differ, several tiles a block, rings gone round twice, rescaling."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """All runs of a kernel on a shape: texts of findings, largest error, fewest rounds of rings, part of the rescaling that ran."""

    findings: tuple[str, ...]
    largest_error: float
    rounds: int
    rescaled: float


def prepared(name: str, causal: bool, dtype: Literal["bf16", "fp16"]) -> AttentionKernel:
    """A shipped kernel or an emitted file, compiled."""
    from twill.build.compiler import compiled
    from twill.build.kernelfile import ARCHITECTURES, Variant, find, read

    file = read(find(name))
    made = compiled(file, Variant(dtype, causal, True), ARCHITECTURES[file.tiles][0])
    return AttentionKernel(file.path, made.ptx.read_text(encoding="utf-8"), made.folder / "kernel.o", file.host, file.parameters)


def outcome(kernel: AttentionKernel, named: Named, schedulers: Sequence[str] = SCHEDULERS, seed: int = 1) -> Outcome:
    """Run a kernel on a shape under each scheduler."""
    shape = named.of(*head_dims(kernel.source))
    results = [kernel.run(shape, scheduler, seed, named.sm_count) for scheduler in schedulers]
    rounds = min((n for r in results for ring, n in r.coverage.turns.items() if ring.startswith(("K_full", "V_full"))), default=0)
    texts = tuple(f"{r.scheduler}: {f.kind}: {f.text}" for r in results for f in r.findings.items)
    return Outcome(texts, max(r.largest_error for r in results), rounds, _rescaled(kernel, results))


def _rescaled(kernel: AttentionKernel, results: Sequence[Result]) -> float:
    """The part of the instructions of the rescaling operations that some run went through."""
    lines = {x.line for x in kernel.code.kernel.instructions if x.location and _function(x.location.file, x.location.line) in RESCALES}
    segments = [kernel.code.flow.segments[i] for i in set().union(*(r.coverage.seen for r in results))]
    seen = {x.line for s in segments for x in kernel.code.kernel.instructions[s.begin : s.end]}
    return len(lines & seen) / len(lines) if lines else 0.0


def _function(file: str, line: int) -> str:
    path = Path(file)
    return _functions(path).get(line, "") if path.parent.name == "tiles" else ""


@cache
def _functions(file: Path) -> Mapping[int, str]:
    """Which function each line of a Python file is in."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {n: f.name for f in tree.body if isinstance(f, ast.FunctionDef) for n in range(f.lineno, (f.end_lineno or f.lineno) + 1)}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    from twill.build.kernelfile import names

    parser = argparse.ArgumentParser(prog="python -m twill.emulate.shapes", description=__doc__)
    parser.add_argument("kernels", nargs="*", help="shipped kernels by name, or emitted files; without any, all of --arch")
    parser.add_argument("--arch", default="sm100", help="whose shipped kernels")
    parser.add_argument("--schedulers", default=",".join(SCHEDULERS))
    given = parser.parse_args(arguments)
    kernels = given.kernels or [n for n in names() if n.startswith(f"{given.arch}_attn_fwd")]
    wrong = 0
    sys.stdout.write("| kernel | runs | findings | largest error of what rounding allows | rounds of rings | rescaling that ran | s |\n")
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    for name in kernels:
        began = time.perf_counter()
        found = {s: outcome(prepared(name, s.causal, s.dtype), s, given.schedulers.split(",")) for s in SHAPES}
        texts = [f"{s.purpose}: {text}" for s, o in found.items() for text in o.findings]
        wrong += bool(texts) or any(not o.largest_error <= 1 for o in found.values())
        runs = len(found) * len(given.schedulers.split(","))
        worst = max(o.largest_error for o in found.values())
        rounds = max(o.rounds for o in found.values())
        rescaled = max(o.rescaled for o in found.values())
        cells = (Path(name).stem, runs, len(texts), f"{worst:.2f}", rounds, f"{rescaled:.0%}", f"{time.perf_counter() - began:.0f}")
        sys.stdout.write("| " + " | ".join(map(str, cells)) + " |\n")
        sys.stdout.flush()
        for text in texts:
            sys.stderr.write(f"{name}: {text}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
