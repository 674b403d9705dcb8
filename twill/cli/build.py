"""``twill build``: compile emitted kernels, judge their machine code, keep what was asked for."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from twill.build import BuildError, Variant
from twill.build.compiler import Compiled, compiled
from twill.build.kernelfile import ARCHITECTURES, KernelFile, find, names, read
from twill.build.libraries import Entry, entry_of, note
from twill.build.program import program_of, shipped_schedule
from twill.build.report import Report, counts, reported
from twill.errors import EXIT_DONE, EXIT_REFUSED, UsageError

__all__ = ["BuildArguments", "build_command"]

SCHEMA_VERSION = 1
MEMORY_BYTES = 2**30
"""What a compiler takes at most, as measured on the shipped kernels."""


@dataclass(frozen=True, slots=True)
class BuildArguments:
    """What to build. A choice that is None is the first of its kind, or with ``everything`` all of them."""

    kernel: str | None
    everything: bool
    arch: str
    dtype: str | None
    causal: bool | None
    lse: bool | None
    deterministic: bool | None
    schedule: str | None
    cache: str | None


def build_command(arguments: BuildArguments, *, output: Path | None, report: bool, as_json: bool) -> int:
    """Build kernels; 1 if there is something wrong with the machine code of any of them.

    Raises
    ------
    UsageError : not one kernel, or a schedule without a single kernel.
    BuildError : a kernel cannot be built.
    """
    if arguments.kernel is not None and arguments.kernel.endswith(".cubin"):
        return _count(Path(arguments.kernel), as_json)
    kernels = _kernels(arguments)
    if output is not None:
        _make_folder(output)
    jobs = [(kernel, variant) for kernel in kernels for variant in _variants(arguments, kernel)]
    with ThreadPoolExecutor(_workers(len(jobs))) as pool:
        done = list(pool.map(lambda job: _job(arguments, *job), jobs))
    if output is not None:
        note(output, [_keep(found, one, output) for found, one in done])
    if as_json:
        data: Any = [_as_data(one) for _, one in done]
        sys.stdout.write(json.dumps(data if arguments.everything else data[0], indent=1) + "\n")
    else:
        _print([one for _, one in done], report)
    for _, one in done:
        for problem in one.problems:
            sys.stderr.write(f"twill: error: {one.kernel} ({one.variant}): {problem.text}\n  next step: {problem.step}\n")
    return EXIT_REFUSED if any(one.problems for _, one in done) else EXIT_DONE


def _count(cubin: Path, as_json: bool) -> int:
    """Counts of a cubin that need not be ours."""
    if not cubin.is_file():
        raise UsageError(f"there is no file {str(cubin)!r}", "give the path of a cubin")
    found = counts(cubin)
    if as_json:
        sys.stdout.write(json.dumps([{"schema_version": SCHEMA_VERSION, **asdict(x)} for x in found], indent=1) + "\n")
        return EXIT_DONE
    from twill.view.console import show
    from twill.view.machine_code import counted_loops

    for one in found:
        show(counted_loops(one), sys.stdout)
    return EXIT_DONE


def _kernels(arguments: BuildArguments) -> list[KernelFile]:
    if arguments.everything == (arguments.kernel is not None):
        raise UsageError("one kernel or --all is to be built", f"name a kernel: a .py file, or one of {', '.join(names())}")
    if arguments.everything and arguments.schedule:
        raise UsageError("--schedule is of one kernel, not of all", "leave it out: kernels name their schedules")
    if arguments.dtype not in (None, "bf16", "fp16"):
        raise UsageError(f"there is no element type {arguments.dtype}", "use --dtype bf16 or --dtype fp16")
    if not arguments.everything:
        return [read(find(arguments.kernel or ""))]
    return [file for file in map(read, map(find, names())) if arguments.arch in ARCHITECTURES[file.tiles]]


def _variants(arguments: BuildArguments, kernel: KernelFile) -> Iterator[Variant]:
    """Of a forward kernel with and without log-sum-exp, of a backward one with and without an order of its additions."""
    dtypes: tuple[Literal["bf16", "fp16"], ...] = ("bf16", "fp16")
    chosen = tuple(t for t in dtypes if arguments.dtype in (None, t))
    backward = "deterministic" in kernel.parameters
    masks, further = (_choices(arguments, given) for given in (arguments.causal, arguments.deterministic if backward else arguments.lse))
    for dtype, causal, more in itertools.product(chosen if arguments.everything else chosen[:1], masks, further):
        yield Variant(dtype, causal, more and not backward, more and backward)


def _choices(arguments: BuildArguments, given: bool | None) -> tuple[bool, ...]:
    if given is not None:
        return (given,)
    return (False, True) if arguments.everything else (False,)


def _workers(jobs: int) -> int:
    """As many compilers as there are processors, and room for."""
    room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") // MEMORY_BYTES
    return max(1, min(jobs, len(os.sched_getaffinity(0)), room))


def _job(arguments: BuildArguments, kernel: KernelFile, variant: Variant) -> tuple[Compiled, Report]:
    found = compiled(kernel, variant, arguments.arch, cache=arguments.cache)
    if arguments.schedule:
        from twill.cli.files import read_schedule

        schedule = read_schedule(arguments.schedule)
        if schedule.hash != kernel.schedule_hash:
            raise UsageError(
                f"{kernel.path} was emitted from schedule {kernel.schedule_hash[:12]}, {arguments.schedule} is {schedule.hash[:12]}",
                "give the schedule that the head of the file names",
            )
        return found, reported(found, program_of(schedule), f"the program of {arguments.schedule}")
    shipped = shipped_schedule(kernel)
    if shipped is None:
        text = f"the file itself (no shipped schedule has its hash {kernel.schedule_hash[:12]}; give --schedule)"
        return found, reported(found, None, text)
    return found, reported(found, program_of(shipped), f"the program of its schedule, {shipped.hash[:12]}")


def _make_folder(output: Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {str(output)!r}: {error.strerror}", "give -o the name of a folder") from None


def _keep(found: Compiled, report: Report, output: Path) -> Entry:
    name = f"{report.kernel}-{report.variant}"
    for path in (found.ptx, found.cubin, found.library):
        draft = output / f".{name}{path.suffix}.{os.getpid()}.part"
        try:
            shutil.copyfile(path, draft)
            draft.replace(output / f"{name}{path.suffix}")
        except OSError as error:
            raise BuildError(f"cannot write {str(output / name)!r}: {error.strerror}", "give -o a folder that you may write to") from None
        finally:
            draft.unlink(missing_ok=True)
    return entry_of(found.kernel.path, found.variant, found.arch, f"{name}{found.library.suffix}")


def _as_data(report: Report) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, **asdict(report)}


def _print(reports: list[Report], report: bool) -> None:
    from twill.view.console import show
    from twill.view.machine_code import details, summary

    for i, one in enumerate(reports):
        if i:
            sys.stdout.write("\n")
        show(summary(one), sys.stdout)
        if report:
            show(details(one), sys.stdout)
