"""The commands and their options. A command here only parses: it returns the work to do, which `run` does outside of typer.

What the commands do is in the modules that they import when called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from twill.errors import EXIT_INTERRUPTED, EXIT_USAGE, TwillError

__all__ = ["app", "run"]

EXIT_BROKEN_PIPE = 141
DEFAULT_TIMEOUT_S = 300.0
Work = Callable[[], int]
BadCommandLine: type[Exception] = typer.BadParameter.__mro__[1]
"""Click's ``UsageError``, from whichever click this typer uses."""

app = typer.Typer(
    name="twill", add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="Optimal software pipelines and warp specialization for GPU loops, by constraint solving.",
    epilog="Exit codes: 0 done, 1 refused (infeasible, illegal), 2 bad input, 3 not known (out of time, solver died).",
)  # fmt: skip

Target = Annotated[str, typer.Argument(metavar="GRAPH|FILE.json", help="a shipped graph (see `twill list graphs`) or a graph's JSON file")]
Arch = Annotated[str | None, typer.Option(metavar="sm90|sm100|sm103", help="architecture; stands for its usual machine")]
MachineOption = Annotated[str | None, typer.Option(metavar="NAME|FILE", help="machine by name, or its TOML file")]
HeadDim = Annotated[int | None, typer.Option(help="head dimension of Q and K")]
HeadDimV = Annotated[int | None, typer.Option(help="head dimension of V")]
Tile = Annotated[str | None, typer.Option(metavar="MxN", help="tile of one sub-tile: rows x columns")]
Subtiles = Annotated[int | None, typer.Option(help="tiles that a block works on side by side")]
Dtype = Annotated[str | None, typer.Option(help="element type of the inputs")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="a setting of the graph; may be repeated")]
Registers = Annotated[int | None, typer.Option(help="limit of registers per thread in every group")]
Groups = Annotated[int | None, typer.Option(help="most warp groups allowed")]
MaxCopies = Annotated[int | None, typer.Option(help="most iterations in flight")]
MaxII = Annotated[int | None, typer.Option("--max-ii", help="only schedules with I up to this many cycles")]
TimeUnit = Annotated[int, typer.Option(help="start cycles, I and L are multiples of this")]
Without = Annotated[list[str] | None, typer.Option(metavar="RULE", help="switch a rule off; may be repeated")]
With = Annotated[list[str] | None, typer.Option("--with", metavar="RULE", help="switch a rule on; may be repeated")]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", help="wall time for everything")]
Seed = Annotated[int, typer.Option(help="seed of the solver")]
AsJson = Annotated[bool, typer.Option("--json", help="only JSON on the standard output")]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="write the best schedule here, with --top also the next")
]
ScheduleFile = Annotated[str, typer.Argument(metavar="FILE", help="a schedule file, or the name of a shipped one")]


@app.command()
def solve(
    graph: Target, arch: Arch = None, machine: MachineOption = None, head_dim: HeadDim = None, head_dim_v: HeadDimV = None,
    tile: Tile = None, subtiles: Subtiles = None, dtype: Dtype = None, settings: Settings = None, registers: Registers = None,
    groups: Groups = None, max_copies: MaxCopies = None, max_ii: MaxII = None, time_unit: TimeUnit = 1, without: Without = None,
    with_rules: With = None, top: Annotated[int, typer.Option(help="how many of the best schedules to list, by rank")] = 1,
    timeout: Timeout = DEFAULT_TIMEOUT_S, seed: Seed = 0,
    crosscheck: Annotated[bool, typer.Option("--crosscheck", help="ask a second solver (CP-SAT) as well; needs ortools")] = False,
    output: Output = None, as_json: AsJson = False,
) -> Work:  # fmt: skip
    """Find the best schedule of a loop, with proof, check it independently, and say what it is."""
    from twill.cli.request import SolveArguments
    from twill.cli.solve import solve_command

    arguments = SolveArguments(
        graph, arch, machine, head_dim, head_dim_v, tile, subtiles, dtype, tuple(settings or ()), registers, groups, max_copies, max_ii,
        time_unit, tuple(without or ()), tuple(with_rules or ()), top, seed,
    )  # fmt: skip
    return partial(solve_command, arguments, timeout_s=timeout, with_crosscheck=crosscheck, output=output, as_json=as_json)


@app.command()
def explain(
    target: Annotated[str, typer.Argument(metavar="FILE|GRAPH", help="a schedule file, or what `twill solve` takes")],
    ii: Annotated[int | None, typer.Option("--ii", metavar="N", help="ask about this I; default: the next smaller one")] = None,
    arch: Arch = None, machine: MachineOption = None, head_dim: HeadDim = None, head_dim_v: HeadDimV = None,
    tile: Tile = None, subtiles: Subtiles = None, dtype: Dtype = None, settings: Settings = None, registers: Registers = None,
    groups: Groups = None, max_copies: MaxCopies = None, max_ii: MaxII = None, time_unit: TimeUnit = 1, without: Without = None,
    with_rules: With = None, timeout: Timeout = DEFAULT_TIMEOUT_S, seed: Seed = 0,
) -> Work:  # fmt: skip
    """Why the initiation interval cannot be smaller, or why there is no schedule at all."""
    from twill.cli.explain import explain_command
    from twill.cli.request import SolveArguments

    arguments = SolveArguments(
        target, arch, machine, head_dim, head_dim_v, tile, subtiles, dtype, tuple(settings or ()), registers, groups, max_copies, max_ii,
        time_unit, tuple(without or ()), tuple(with_rules or ()), 1, seed,
    )  # fmt: skip
    return partial(explain_command, arguments, ii_cycles=ii, timeout_s=timeout)


@app.command()
def check(
    file: ScheduleFile, machine: MachineOption = None,
    ignore_hash: Annotated[bool, typer.Option("--ignore-hash", help="check a file that was edited")] = False, as_json: AsJson = False,
) -> Work:  # fmt: skip
    """Check a schedule file against every rule, without the solver."""
    from twill.cli.check import check_command

    return partial(check_command, file, machine=machine, ignore_hash=ignore_hash, as_json=as_json)


@app.command()
def cost(file: Annotated[str, typer.Argument(metavar="ORDER.json", help="an order of operations per role, written by hand, or a schedule")],
         as_json: AsJson = False) -> Work:  # fmt: skip
    """How long one period of a hand-written order takes, contention included."""
    from twill.cli.cost import cost_command

    return partial(cost_command, file, as_json=as_json)


@app.command()
def show(
    file: ScheduleFile, rows: Annotated[int, typer.Option(help="about how many rows to show one period in")] = 40,
) -> Work:  # fmt: skip
    """Show one steady-state period of a schedule as a table: cycles down, warp groups and units across."""
    from twill.cli.show import show_command

    return partial(show_command, file, rows=rows)


@app.command()
def lower(file: ScheduleFile, machine: MachineOption = None, as_json: AsJson = False) -> Work:
    """Show the program of every warp role that carries out a schedule: order, barriers, who waits and who arrives."""
    from twill.cli.lower import lower_command

    return partial(lower_command, file, machine=machine, as_json=as_json)


@app.command()
def emit(
    target: Annotated[
        str, typer.Argument(metavar="SCHEDULE|GRAPH", help="a schedule file, the name of a shipped one or, with --arch, a graph")
    ],
    arch: Arch = None, machine: MachineOption = None, head_dim: HeadDim = None, head_dim_v: HeadDimV = None, tile: Tile = None,
    subtiles: Subtiles = None, dtype: Dtype = None, settings: Settings = None, registers: Registers = None, groups: Groups = None,
    max_copies: MaxCopies = None, without: Without = None, with_rules: With = None, timeout: Timeout = DEFAULT_TIMEOUT_S, seed: Seed = 0,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="write the kernel here")] = None,
) -> Work:  # fmt: skip
    """Print the kernel of a schedule, or of the best schedule of a graph, as a CuTe DSL file."""
    from twill.cli.emit import emit_command
    from twill.cli.request import SolveArguments

    arguments = SolveArguments(
        target, arch, machine, head_dim, head_dim_v, tile, subtiles, dtype, tuple(settings or ()), registers, groups, max_copies,
        without=tuple(without or ()), with_rules=tuple(with_rules or ()), seed=seed,
    )  # fmt: skip
    return partial(emit_command, arguments, timeout_s=timeout, output=output)


@app.command()
def build(
    kernel: Annotated[str | None, typer.Argument(metavar="KERNEL.py|NAME|FILE.cubin", help="a cubin is only counted")] = None,
    everything: Annotated[bool, typer.Option("--all", help="every shipped kernel, in all variants that no option fixes")] = False,
    arch: Annotated[str, typer.Option(metavar="sm_90a", help="target")] = "sm_90a",
    dtype: Annotated[str | None, typer.Option(metavar="bf16|fp16", help="element type of the tensors")] = None,
    causal: Annotated[bool | None, typer.Option("--causal/--no-causal", help="with a causal mask")] = None,
    lse: Annotated[bool | None, typer.Option("--lse/--no-lse", help="also write the log-sum-exp")] = None,
    deterministic: Annotated[
        bool | None, typer.Option("--deterministic/--no-deterministic", help="gradients that are the same to the bit in every run")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help="keep PTX, cubin and library here")] = None,
    schedule: Annotated[str | None, typer.Option(metavar="FILE", help="the schedule that the kernel was emitted from")] = None,
    cache: Annotated[str | None, typer.Option(metavar="DIR|off", help="where to cache; otherwise as TWILL_CACHE says")] = None,
    report: Annotated[bool, typer.Option("--report", help="show the order of the machine code beside the schedule's")] = False,
    as_json: AsJson = False,
) -> Work:  # fmt: skip
    """Compile an emitted kernel, on a machine with or without a GPU, and judge its machine code."""
    from twill.cli.build import BuildArguments, build_command

    arguments = BuildArguments(kernel, everything, arch, dtype, causal, lse, deterministic, schedule, cache)
    return partial(build_command, arguments, output=output, report=report, as_json=as_json)


@app.command()
def emulate(
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="a shipped kernel by name, or the .py file of an emitted one")],
    seqlen_q: Annotated[int, typer.Option(help="rows of Q")] = 200, seqlen_k: Annotated[int, typer.Option(help="rows of K and V")] = 333,
    heads: Annotated[int, typer.Option(help="heads of Q")] = 1,
    kv_heads: Annotated[int | None, typer.Option(help="heads of K and V")] = None,
    batch: Annotated[int, typer.Option(help="batch size")] = 1,
    causal: Annotated[bool, typer.Option("--causal", help="with the causal mask")] = False, dtype: Dtype = "bf16",
    deterministic: Annotated[bool, typer.Option("--deterministic", help="gradients with their additions in order")] = False,
    schedulers: Annotated[str, typer.Option(metavar="all|NAME,...", help="eager, late, newest, random: who goes next")] = "all",
    seed: Annotated[int, typer.Option(help="seed of the inputs and of the random scheduler")] = 0,
    sm_count: Annotated[int, typer.Option(help="what a persistent kernel is told; few, so that its loop turns")] = 2,
) -> Work:  # fmt: skip
    """Run an emitted kernel on the CPU from its PTX: wrong values, races, deadlocks, without a GPU."""
    from twill.cli.emulate import EmulateArguments, emulate_command

    given = EmulateArguments(batch, seqlen_q, seqlen_k, heads, kv_heads, causal, dtype or "bf16", deterministic)
    return partial(emulate_command, kernel, given, schedulers=schedulers, seed=seed, sm_count=sm_count)


@app.command(name="list")
def list_(
    what: Annotated[str | None, typer.Argument(metavar="[graphs|machines|rules|schedules]", help="default: all of them")] = None,
) -> Work:
    """List what ships with twill."""
    from twill.cli.listing import list_command

    return partial(list_command, what)


@app.command()
def schema(what: Annotated[str, typer.Argument(metavar="[schedule|graph|machine]")] = "schedule") -> Work:
    """Print the JSON Schema of a file format."""
    from twill.cli.schema import schema_command

    return partial(schema_command, what)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; whatever the user can cause ends as a message, not as a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        work = app(list(arguments) or ["--help"], prog_name="twill", standalone_mode=False)
        # a number is the exit code of --help
        code: int = work() if callable(work) else work
        sys.stdout.flush()
    except TwillError as error:
        return _complain(str(error), error.exit_code)
    except BadCommandLine as error:
        return _bad_command_line(error)
    except KeyboardInterrupt:
        return _complain("interrupted; nothing was written", EXIT_INTERRUPTED, kind="")
    except BrokenPipeError:
        # the reader has gone, as in `twill show FILE | head`: nobody to tell, and nothing to flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except OSError as error:
        return _complain(f"{error}\n  next step: see that the file or device named here can be used", EXIT_USAGE)
    return code


def _complain(message: str, code: int, *, kind: str = "error: ") -> int:
    sys.stderr.write(f"twill: {kind}{message}\n")
    return code


def _bad_command_line(error: Exception) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "twill"
    message: str = error.format_message() if hasattr(error, "format_message") else str(error)
    return _complain(f"{message}\n  next step: see `{command} --help`", EXIT_USAGE)
