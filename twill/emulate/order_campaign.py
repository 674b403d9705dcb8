"""A campaign of changed orders against a shipped schedule: ``python -m twill.emulate.order_campaign SCHEDULE``.

The schedule is lowered, its program changed in one place (`twill.emulate.orders`), and each changed program goes three ways: to the
protocol check, which judges all interleavings and trip counts; to the emitter, which may refuse it; and as a kernel to the emulator, under
every scheduler until one shows something. What the check lets through and the emulator faults would be a hole of the check: exit code 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from twill.check import CheckedSchedule, checked
from twill.check.protocol import check_protocol
from twill.emit.emitter import emit
from twill.emit.errors import EmitError
from twill.emulate.errors import EmulationError
from twill.emulate.kernel import AttentionKernel
from twill.emulate.machine.schedulers import SCHEDULERS
from twill.emulate.numbers import Shape
from twill.emulate.orders import OrderMutant, order_mutants
from twill.lower import WarpProgram, lower

__all__ = ["Judged", "judge", "main", "sample", "verdict"]

COMMAND = "a changed order of the schedule"


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a mutant.

    ``rules`` are those of the protocol check that refused it; ``refusal`` is what the emitter said; ``ran`` says whether it ran, ``kinds``
    what the emulator found then, and ``scheduler`` under which one. ``same`` says that its kernel is the schedule's, letter by letter.
    """

    mutant: OrderMutant
    rules: tuple[str, ...]
    refusal: str = ""
    ran: bool = False
    kinds: tuple[str, ...] = ()
    scheduler: str = ""
    same: bool = False


def verdict(one: Judged) -> str:
    """One word for the table: refused, by the check or the emitter; caught; legal; a hole."""
    if one.rules:
        return "refused by the check"
    if one.refusal:
        return "refused by the emitter"
    return "HOLE" if one.kinds else "legal"


def sample(mutants: Sequence[OrderMutant], count: int) -> Sequence[OrderMutant]:
    """``count`` of them, evenly spread."""
    return [mutants[k * len(mutants) // count] for k in range(count)] if count < len(mutants) else mutants


def judge(
    found: CheckedSchedule, program: WarpProgram, mutants: Iterable[OrderMutant], shape: Shape, *, run_refused: bool
) -> Iterator[Judged]:
    """Judge mutants of the program of a schedule; ``shape`` should make every ring wrap and give a block more than one work tile."""
    right = emit(found, program, COMMAND)
    for mutant in mutants:
        rules = tuple(sorted({f.rule for f in check_protocol(mutant.program, found.schedule.graph).findings}))
        try:
            text = emit(found, mutant.program, COMMAND)
        except EmitError as error:
            yield Judged(mutant, rules, error.problem)
            continue
        if rules and not run_refused:
            yield Judged(mutant, rules)
            continue
        kinds, scheduler = _run(text, shape)
        yield Judged(mutant, rules, "", True, kinds, scheduler, text == right)


def _run(text: str, shape: Shape) -> tuple[tuple[str, ...], str]:
    from twill.build.compiler import compiled
    from twill.build.kernelfile import ARCHITECTURES, Variant, read

    with tempfile.TemporaryDirectory(prefix="twill-order-") as folder:
        path = Path(folder) / "changed.py"
        path.write_text(text, encoding="utf-8")
        file = read(path)
        made = compiled(file, Variant(shape.dtype, shape.causal, True), ARCHITECTURES[file.tiles][0], cache="off")
        kernel = AttentionKernel(file.path, made.ptx.read_text(encoding="utf-8"), made.folder / "kernel.o", file.host, file.parameters)
    for scheduler in SCHEDULERS:
        try:
            errors = kernel.run(shape, scheduler, 0, 1).findings.errors
        except EmulationError as error:
            return (f"stopped: {error.problem[:60]}",), scheduler
        if errors:
            return tuple(sorted({f.kind for f in errors})), scheduler
    return (), ""


def _table(judged: Sequence[Judged]) -> Iterator[str]:
    yield "| change | mutants | refused by the check | by the emitter | legal | refused and run: caught | shown as |"
    yield "|---|---|---|---|---|---|---|"
    families = [*sorted({x.mutant.family for x in judged}), ""]
    for family in families:
        these = [x for x in judged if family in ("", x.mutant.family)]
        verdicts = Counter(map(verdict, these))
        run = [x for x in these if x.rules and x.ran]
        ways = Counter(kind for x in run for kind in x.kinds)
        shown = ", ".join(f"{kind} {n}" for kind, n in ways.most_common()) if family else ""
        counts = " | ".join(str(verdicts[v]) for v in ("refused by the check", "refused by the emitter", "legal"))
        yield f"| {family or 'all'} | {len(these)} | {counts} | {sum(bool(x.kinds) for x in run)} of {len(run)} | {shown} |"


def _listed(judged: Iterable[Judged]) -> Iterator[str]:
    for one in judged:
        what = f"{one.mutant.role}: {one.mutant.family}: {one.mutant.text}"
        if verdict(one) == "legal":
            yield f"legal: {what}" + (", the same kernel" if one.same else "")
        elif verdict(one) == "HOLE":
            yield f"HOLE: {what}: the check lets it pass, {one.scheduler} shows {', '.join(one.kinds)}"
        elif one.rules and one.ran and not one.kinds:
            yield f"refused ({', '.join(one.rules)}), but right under every scheduler: {what}"


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    from twill import schedules
    from twill.model.machine import load_machine

    parser = argparse.ArgumentParser(prog="python -m twill.emulate.order_campaign", description=__doc__)
    parser.add_argument("schedule", help="a shipped schedule of a forward loop")
    parser.add_argument("--count", type=int, default=60, help="mutants, evenly spread over all there are")
    parser.add_argument("--seqlen-q", type=int, default=520)
    parser.add_argument("--seqlen-k", type=int, default=600)
    parser.add_argument("--accepted-only", action="store_true", help="run only what the protocol check accepts")
    given = parser.parse_args(arguments)
    schedule = schedules.load(given.schedule)
    found = checked(schedule, load_machine(schedule.machine.name))
    program = lower(found)
    d, dv = (int(str(schedule.graph.parameters[name])) for name in ("head_dim", "head_dim_v"))
    shape = Shape(1, given.seqlen_q, given.seqlen_k, 1, 1, d, dv, False, "bf16")
    every = list(order_mutants(program))
    chosen = sample(every, given.count)
    begin = time.perf_counter()
    judged: list[Judged] = []
    for one in judge(found, program, chosen, shape, run_refused=not given.accepted_only):
        judged.append(one)
        sys.stderr.write(f"{len(judged)} of {len(chosen)}: {verdict(one)}, {one.mutant.role}: {one.mutant.text}: {', '.join(one.kinds)}\n")
    sys.stdout.write(f"{given.schedule}: {len(chosen)} of {len(every)} mutants, {time.perf_counter() - begin:.0f} s\n\n")
    for line in (*_table(judged), "", *_listed(judged)):
        sys.stdout.write(line + "\n")
    return 1 if any(verdict(x) == "HOLE" for x in judged) else 0


if __name__ == "__main__":
    sys.exit(main())
