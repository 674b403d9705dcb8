"""Make all shipped schedules again: ``python -m twill.regenerate``, or ``--check`` that they are what they should be.

A file is the same, byte for byte, as the command in its provenance writes. Only proved optima with a proved rank are taken: anything
else depends on how fast the machine is.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from importlib import resources
from multiprocessing import get_context
from pathlib import Path

from twill.cli.files import write_atomically
from twill.cli.request import SolveArguments, resolve
from twill.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_REFUSED, TwillError

__all__ = ["CASES", "Case", "differing", "main", "regenerate"]

PROCESSES = 2
DEFAULT_TIMEOUT_S = 1800.0
HEAD_DIMS: tuple[tuple[int, int | None], ...] = ((64, None), (96, None), (128, None), (192, 128), (256, None))
"""Head dimension of Q and K, and that of V where it is another."""


@dataclass(frozen=True, slots=True)
class Case:
    """One shipped schedule: what is solved, and so what the file is called."""

    arch: str
    graph: str
    head_dim: int
    head_dim_v: int | None = None
    registers: int | None = None
    tile: str | None = None
    """Queries by keys, where it is not the tile that the graph takes by itself."""

    @property
    def name(self) -> str:
        """``sm100_attn_bwd_d192_dv128``, the file name without ``.json``; ``_q64`` behind it names the queries of a tile of its own."""
        dims = f"d{self.head_dim}" + (f"_dv{self.head_dim_v}" if self.head_dim_v else "")
        return f"{self.arch}_{self.graph}_{dims}" + (f"_q{self.tile.partition('x')[0]}" if self.tile else "")

    @property
    def arguments(self) -> SolveArguments:
        """What one would type after ``twill solve``."""
        return SolveArguments(
            self.graph, arch=self.arch, head_dim=self.head_dim, head_dim_v=self.head_dim_v, registers=self.registers, tile=self.tile
        )


LOOPS = (("sm90", "attn_fwd"), ("sm90", "attn_bwd"), ("sm100", "attn_fwd"), ("sm100", "attn_bwd"), ("sm103", "attn_fwd"))
FEWER_REGISTERS = {("sm90", "attn_bwd", 64): 192}
"""Limits of registers a thread, by architecture, graph and head dim. At 200 the masked copy of the loop spilled, where LSE is read while
dS waits to be stored; the order that 192 leave compiles clean, and I grows by 3.3 %."""
SHORT = (Case("sm90", "attn_bwd", 128, tile="64x128"),)
"""For short sequences, which smaller tiles cut with less waste (`twill/pytorch/measured.toml`)."""
CASES = (*(Case(arch, graph, d, dv, FEWER_REGISTERS.get((arch, graph, d))) for arch, graph in LOOPS for d, dv in HEAD_DIMS), *SHORT)
"""All shipped schedules."""


def _solve(case: Case, timeout_s: float) -> tuple[str | None, str]:
    """The text of the file, and a line about it; no text where the case was not solved to proof."""
    from twill.check import check_schedule
    from twill.solver.solve import solve

    began = time.monotonic()
    try:
        request = resolve(case.arguments)
        outcome = solve(request.graph, request.machine, request.options, timeout_s=timeout_s, command=request.command)
    except TwillError as error:
        return None, str(error)
    if not outcome.schedules:
        why = "; ".join(outcome.core.words) if outcome.core else f"no schedule in {timeout_s:g} s"
        return None, f"{outcome.status}: {why}"
    schedule = outcome.schedules[0]
    report = check_schedule(schedule, request.machine)
    if not report.ok:
        return None, f"the checker refuses it: {report.findings[0].message}"
    if schedule.status != "optimal" or not schedule.proof.rank_proved:
        return None, f"not solved to proof in {timeout_s:g} s: give a longer --timeout"
    return schedule.to_json(), f"I {schedule.ii_cycles}, L {schedule.length_cycles}, {time.monotonic() - began:.1f} s"


def regenerate(folder: Path, cases: Sequence[Case] = CASES, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> tuple[str, ...]:
    """Solve the cases, `PROCESSES` at a time, and write those that were solved to proof; the names of the others are returned."""
    failed = []
    # fresh interpreters: a solver process that a forked one inherits would outlive its parent
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(_solve, case, timeout_s): case for case in cases}
        try:
            for future in as_completed(running):
                case = running[future]
                text, line = future.result()
                sys.stdout.write(f"{case.name}: {line}\n")
                sys.stdout.flush()
                if text is None:
                    failed.append(case.name)
                else:
                    write_atomically(folder / f"{case.name}.json", text)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return tuple(sorted(failed))


def differing(made: Path, shipped: Path) -> tuple[str, ...]:
    """Names of the files that are in only one of two folders or not the same in both, byte for byte."""
    files = {folder: {p.name: p.read_bytes() for p in folder.glob("*.json")} for folder in (made, shipped)}
    return tuple(sorted(name for name in {*files[made], *files[shipped]} if files[made].get(name) != files[shipped].get(name)))


def main(arguments: Sequence[str] | None = None, *, folder: Path | None = None, cases: Sequence[Case] = CASES) -> int:
    """Regenerate or check ``folder``, by default that of the package; 0 if all is well, 1 if a case fails or a file differs."""
    parser = argparse.ArgumentParser(prog="python -m twill.regenerate", description="make all shipped schedules again")
    parser.add_argument("--check", action="store_true", help="write nothing; compare what would be written with what is there")
    parser.add_argument("--timeout", type=float, default=DEFAULT_TIMEOUT_S, metavar="SECONDS", help="for one case")
    given = parser.parse_args(arguments)
    folder = folder or Path(str(resources.files("twill.schedules")))
    if not given.check:
        failed = regenerate(folder, cases, timeout_s=given.timeout)
        for stale in {p.stem for p in folder.glob("*.json")} - {case.name for case in cases}:
            (folder / f"{stale}.json").unlink()
        if failed:
            sys.stdout.write(f"failed, and left as they were: {', '.join(failed)}\n")
        return EXIT_REFUSED if failed else EXIT_DONE
    with tempfile.TemporaryDirectory() as made:
        failed = regenerate(Path(made), cases, timeout_s=given.timeout)
        different = differing(Path(made), folder)
    for name in different:
        sys.stdout.write(f"differs: {name}\n")
    return EXIT_REFUSED if failed or different else EXIT_DONE


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
