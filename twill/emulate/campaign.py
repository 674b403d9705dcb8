"""A campaign of planted faults against a kernel without findings: ``python -m twill.emulate.campaign KERNEL``.

Every mutant runs under one scheduler after the other until something is found, be it a warning. A survivor may behave like the kernel, for
one of the reasons below, each of which is checked on runs. Whatever else survives was missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from twill.emulate.errors import EmulationError
from twill.emulate.findings import Enough, Findings
from twill.emulate.kernel import AttentionKernel, Result
from twill.emulate.machine.schedulers import SCHEDULERS
from twill.emulate.mutants import Mutant, mutants
from twill.emulate.numbers import Shape

__all__ = ["FIRST", "HELD", "Verdict", "judge", "lines_run", "main", "reachable", "table"]

FIRST = ("late", "eager", "newest", "random")
"""The scheduler that shows most faults comes first."""
HELD = 16
"""What survives runs with so many lines held back, one after the other: those of loads, then others."""
WAITS = ("wait dropped", "bulk wait dropped", "wgmma wait dropped", "wgmma wait weakened", "tcgen05 wait dropped", "barrier dropped")
VALUES = ("multiplication dropped", "operands swapped", "column shifted", "load to another place")
COMMITS = ("wgmma commit dropped", "bulk commit dropped")
IMPLIED = "implied: in no run of the kernel itself does this wait tell its warp what it does not know already"
SAME = "same values: what it changes is zero here; all outputs are equal to the bit"
JOINED = "joined: the operations are committed with the next group, and every wait that has to see them sees that one"
UNWAITED = "not waited for: in no run of the kernel itself does anybody wait at the barrier that this arrival goes to"
UNNEEDED = "not needed: without this barrier every access is still ordered, and all outputs are equal to the bit"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant: the kind of its first finding and the scheduler that showed it, or why it behaves like the kernel.

    All three are empty if it was missed.
    """

    mutant: Mutant
    kinds: tuple[str, ...]
    scheduler: str
    reason: str = ""


@dataclass
class _Clean:
    """Runs of the kernel itself, each made when first asked for."""

    kernel: AttentionKernel
    shape: Shape
    results: dict[tuple[str, int], Result] = field(default_factory=dict)

    def run(self, scheduler: str, seed: int) -> Result:
        if (scheduler, seed) not in self.results:
            self.results[scheduler, seed] = self.kernel.run(self.shape, scheduler, seed, 1)
        return self.results[scheduler, seed]


def judge(
    kernel: AttentionKernel, shape: Shape, chosen: Iterable[Mutant], schedulers: Sequence[str] = FIRST, seed: int = 0
) -> Iterator[Verdict]:
    """Run mutants; ``shape`` should make every ring wrap and give a block more than one work tile."""
    clean = _Clean(kernel, shape)
    run = lines_run(kernel, clean.run(schedulers[0], seed))
    held = _held(kernel, run)
    for mutant in chosen:
        yield (
            _judge(clean, mutant, schedulers, seed) or _found(clean, mutant, [("held", i) for i in held])
            or Verdict(mutant, (), "", UNNEEDED if mutant.family == "barrier dropped" and _same(clean, mutant, schedulers, seed) else "")
        )  # fmt: skip


def _held(kernel: AttentionKernel, run: set[int]) -> list[int]:
    """Which of the lines that put something in flight are held back, as seeds of ``held``: those that run, loads first."""
    loads = {x.line for x in kernel.code.kernel.instructions if x.opcode.startswith("cp.async.bulk") and "mbarrier" in x.opcode}
    lines = [(line not in loads, i) for i, line in enumerate(kernel.code.launching) if line in run]
    return [i for _, i in sorted(lines)][:HELD]


def _found(clean: _Clean, mutant: Mutant, turns: Iterable[tuple[str, int]]) -> Verdict | None:
    """What the first of these runs that finds something finds."""
    changed = clean.kernel.changed(mutant.kernel)
    for scheduler, seed in turns:
        findings = Findings(first_only=True)
        try:
            changed.run(clean.shape, scheduler, seed, 1, findings=findings)
        except Enough:
            return Verdict(mutant, (findings.items[0].kind,), scheduler)
        except EmulationError as error:
            return Verdict(mutant, (f"refused: {error.problem[:40]}",), scheduler)
    return None


def _judge(clean: _Clean, mutant: Mutant, schedulers: Iterable[str], seed: int) -> Verdict | None:
    """Found, or shown to behave like the kernel."""
    found = _found(clean, mutant, [(s, seed) for s in schedulers])
    if found is not None:
        return found
    runs = [clean.run(s, seed).coverage for s in schedulers]
    if mutant.family in WAITS and mutant.line not in set().union(*(c.taught for c in runs)):
        return Verdict(mutant, (), "", IMPLIED)
    if mutant.family == "arrival dropped" and not any(c.arrived.get(mutant.line, set()) & c.waited for c in runs):
        return Verdict(mutant, (), "", UNWAITED)
    if mutant.family in (*VALUES, *COMMITS) and _same(clean, mutant, schedulers, seed):
        return Verdict(mutant, (), "", SAME if mutant.family in VALUES else JOINED)
    return None


def _same(clean: _Clean, mutant: Mutant, schedulers: Iterable[str], seed: int) -> bool:
    """Whether it leaves the same bits in memory."""
    changed = clean.kernel.changed(mutant.kernel)
    return all(changed.run(clean.shape, s, seed, 1).outputs == clean.run(s, seed).outputs for s in schedulers)


def reachable(kernel: AttentionKernel, shape: Shape) -> list[Mutant]:
    """The mutants whose line runs.

    Raises
    ------
    EmulationError : the kernel itself has findings.
    """
    clean = kernel.run(shape, FIRST[0], 0, 1)
    if clean.findings.items:
        raise EmulationError("the kernel itself has findings", "see `twill emulate`")
    run = lines_run(kernel, clean)
    return [m for m in mutants(kernel.code.kernel) if m.line in run]


def lines_run(kernel: AttentionKernel, clean: Result) -> set[int]:
    """Lines of the PTX that a run went through: a fault on any other cannot show."""
    segments = [kernel.code.flow.segments[i] for i in clean.coverage.seen]
    return {x.line for s in segments for x in kernel.code.kernel.instructions[s.begin : s.end]}


def table(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """What was planted and found, by family."""
    counts: dict[str, Counter[str]] = {}
    for v in verdicts:
        row = counts.setdefault(v.mutant.family, Counter())
        row["all"] += 1
        row["caught"] += bool(v.kinds)
        row["alike"] += bool(v.reason)
        for kind in v.kinds:
            row[kind] += 1
    yield "| fault | planted | behave like the kernel | caught | missed | first shown as |"
    yield "|---|---|---|---|---|---|"
    total: Counter[str] = Counter()
    for family, row in sorted(counts.items()):
        total += row
        ways = ", ".join(f"{kind} {n}" for kind, n in row.most_common() if kind not in ("all", "caught", "alike"))
        yield _row(family, row, ways)
    yield _row("all", total, "")


def _row(family: str, row: Counter[str], ways: str) -> str:
    missed = row["all"] - row["caught"] - row["alike"]
    return f"| {family} | {row['all']} | {row['alike']} | {row['caught']} | {missed} | {ways} |"


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    from twill.emulate.ready import ready, shape_of

    parser = argparse.ArgumentParser(prog="python -m twill.emulate.campaign", description=__doc__)
    parser.add_argument("kernel")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--seqlen-q", type=int, default=520)
    parser.add_argument("--seqlen-k", type=int, default=1100)
    parser.add_argument("--schedulers", default=",".join(FIRST), help=f"some of {', '.join(SCHEDULERS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="take every n-th mutant")
    given = parser.parse_args(arguments)
    kernel = ready(given.kernel, causal=given.causal)
    shape = shape_of(kernel, given.seqlen_q, given.seqlen_k, causal=given.causal)
    begin = time.perf_counter()
    verdicts: list[Verdict] = []
    chosen = reachable(kernel, shape)[:: given.every]
    for verdict in judge(kernel, shape, chosen, given.schedulers.split(","), given.seed):
        verdicts.append(verdict)
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{len(verdicts)} of {len(chosen)} ")
    for line in table(verdicts):
        sys.stdout.write(line + "\n")
    sys.stdout.write("\nsurvived:\n")
    for v in verdicts:
        if not v.kinds:
            sys.stdout.write(f"  {v.reason or 'MISSED'}: {v.mutant.family}, {kernel.code.place(v.mutant.line)}: {v.mutant.text}\n")
    sys.stdout.write(f"{time.perf_counter() - begin:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
