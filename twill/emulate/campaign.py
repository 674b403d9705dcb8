"""A campaign of planted faults against a shipped kernel: ``python -m twill.emulate.campaign KERNEL``.

Every mutant runs under one scheduler after the other until something is found. What survives is listed: it either behaves like the kernel
(an arrival that nobody waits for any more) or shows a hole of the emulator.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from twill.emulate.errors import EmulationError
from twill.emulate.kernel import AttentionKernel, Result, head_dims
from twill.emulate.mutants import Mutant, mutants
from twill.emulate.numbers import Shape

__all__ = ["Verdict", "judge", "lines_run", "main"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant: the kinds of its findings, none if it survived, and the scheduler that showed them."""

    mutant: Mutant
    kinds: tuple[str, ...]
    scheduler: str


def judge(kernel: AttentionKernel, shape: Shape, chosen: Iterable[Mutant], schedulers: Iterable[str], seed: int) -> Iterator[Verdict]:
    """Run mutants; ``shape`` should make every ring wrap and give a block more than one work tile."""
    order = tuple(schedulers)
    for mutant in chosen:
        changed = kernel.changed(mutant.kernel)
        verdict = Verdict(mutant, (), "")
        for scheduler in order:
            try:
                found = changed.run(shape, scheduler, seed, 1).findings.errors
            except EmulationError as error:
                verdict = Verdict(mutant, (f"refused: {error.problem[:40]}",), scheduler)
                break
            if found:
                verdict = Verdict(mutant, tuple(sorted({f.kind for f in found})), scheduler)
                break
        yield verdict


def lines_run(kernel: AttentionKernel, clean: Result) -> set[int]:
    """Lines of the PTX that a run went through: a fault on any other cannot show."""
    segments = [kernel.code.flow.segments[i] for i in clean.coverage.seen]
    return {x.line for s in segments for x in kernel.code.kernel.instructions[s.begin : s.end]}


def _table(verdicts: Iterable[Verdict]) -> Iterator[str]:
    counts: dict[str, Counter[str]] = {}
    for v in verdicts:
        row = counts.setdefault(v.mutant.family, Counter())
        row["all"] += 1
        row["caught"] += bool(v.kinds)
        for kind in v.kinds:
            row[kind] += 1
    yield "| fault | planted | caught | shown as |"
    yield "|---|---|---|---|"
    total: Counter[str] = Counter()
    for family, row in sorted(counts.items()):
        total += row
        ways = ", ".join(f"{kind} {n}" for kind, n in row.most_common() if kind not in ("all", "caught"))
        yield f"| {family} | {row['all']} | {row['caught']} | {ways} |"
    yield f"| all | {total['all']} | {total['caught']} | |"


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    from twill.build.compiler import compiled
    from twill.build.kernelfile import Variant, find, read

    parser = argparse.ArgumentParser(prog="python -m twill.emulate.campaign", description=__doc__)
    parser.add_argument("kernel")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--seqlen-q", type=int, default=520)
    parser.add_argument("--seqlen-k", type=int, default=1100)
    parser.add_argument("--schedulers", default="late,eager,random,newest")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="take every n-th mutant")
    given = parser.parse_args(arguments)
    file = read(find(given.kernel))
    made = compiled(file, Variant("bf16", given.causal, True), "sm_90a")
    kernel = AttentionKernel(file.path, made.ptx.read_text(encoding="utf-8"), made.folder / "kernel.o", file.host, file.parameters)
    head_dim, head_dim_v = head_dims(file.path)
    shape = Shape(1, given.seqlen_q, given.seqlen_k, 1, 1, head_dim, head_dim_v, given.causal, "bf16")
    clean = kernel.run(shape, "late", given.seed, 1)
    if clean.findings.errors:
        sys.stderr.write("the kernel itself has findings: see `twill emulate`\n")
        return 1
    run = lines_run(kernel, clean)
    begin = time.perf_counter()
    verdicts: list[Verdict] = []
    planted = list(mutants(kernel.code.kernel))[:: given.every]
    chosen = [m for m in planted if m.line in run]
    if len(chosen) < len(planted):
        sys.stdout.write(f"{len(planted) - len(chosen)} faults are left out: this shape does not run their lines\n\n")
    for verdict in judge(kernel, shape, chosen, given.schedulers.split(","), given.seed):
        verdicts.append(verdict)
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{len(verdicts)} of {len(chosen)} ")
    for line in _table(verdicts):
        sys.stdout.write(line + "\n")
    sys.stdout.write("\nsurvived:\n")
    for v in verdicts:
        if not v.kinds:
            source = kernel.code.source(v.mutant.line)
            sys.stdout.write(f"  {v.mutant.family}, PTX line {v.mutant.line} {source}: {v.mutant.text}\n")
    sys.stdout.write(f"{time.perf_counter() - begin:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
