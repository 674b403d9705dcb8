"""From the options of the command line to a problem: a graph, a machine, options, and the command in canonical form."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from twill.cli.files import read_text
from twill.errors import UsageError
from twill.model.machine import ARCH_DEFAULT_MACHINE, Machine, load_machine, machine_names

if TYPE_CHECKING:
    from twill.model.graph import LoopGraph
    from twill.model.schedule import Options

__all__ = ["MAX_TIMEOUT_S", "Request", "SolveArguments", "machine_of_schedule", "refuse_bad_numbers", "resolve"]

MAX_TIMEOUT_S = 1e6
MAX_SEED = 2**31 - 1
GRAPH_OPTIONS = {"head_dim": "--head-dim", "head_dim_v": "--head-dim-v", "tile": "--tile", "subtiles": "--subtiles", "dtype": "--dtype"}
FLAGS = {
    **GRAPH_OPTIONS, "settings": "--set", "registers": "--registers", "groups": "--groups", "max_copies": "--max-copies",
    "max_ii": "--max-ii", "time_unit": "--time-unit", "without": "--without", "with_rules": "--with",
}  # fmt: skip
"""How the command line spells what decides about graph and problem, in the order of a canonical command."""


@dataclass(frozen=True, slots=True)
class SolveArguments:
    """What the user typed after ``twill solve``, apart from where the result goes and how long it may take."""

    target: str
    arch: str | None = None
    machine: str | None = None
    head_dim: int | None = None
    head_dim_v: int | None = None
    tile: str | None = None
    subtiles: int | None = None
    dtype: str | None = None
    settings: tuple[str, ...] = ()
    registers: int | None = None
    groups: int | None = None
    max_copies: int | None = None
    max_ii: int | None = None
    time_unit: int = 1
    without: tuple[str, ...] = ()
    with_rules: tuple[str, ...] = ()
    top: int = 1
    seed: int = 0

    def given(self) -> tuple[str, ...]:
        """Options about graph and problem that differ from their defaults, as the command line spells them."""
        default = SolveArguments(self.target)
        return tuple(flag for field, flag in FLAGS.items() if getattr(self, field) != getattr(default, field))


@dataclass(frozen=True, slots=True)
class Request:
    """A problem to solve. ``command`` makes the same files again, whoever types it."""

    graph: LoopGraph
    machine: Machine
    options: Options
    command: str


def resolve(arguments: SolveArguments) -> Request:
    """Load the machine, build or read the graph, and set all options.

    Raises
    ------
    UsageError, ParameterError, MachineError, GraphError : something in the arguments that cannot be honoured.
    """
    # the import of the solver starts no z3: that runs in a process of its own, later
    from twill.model.registry import GRAPHS
    from twill.solver.solve import default_options

    _refuse_arch(arguments.arch)
    _refuse_counts(arguments)
    from_file = arguments.target not in GRAPHS and (Path(arguments.target).exists() or arguments.target.endswith(".json"))
    graph, machine = (_read if from_file else _build)(arguments)
    options = default_options(
        graph, machine, registers=arguments.registers, groups=arguments.groups, max_copies=arguments.max_copies,
        without=arguments.without, with_rules=arguments.with_rules, max_ii_cycles=arguments.max_ii, time_unit_cycles=arguments.time_unit,
    )  # fmt: skip
    return Request(graph, machine, options, _command(arguments, machine, implied=_implied_machine(arguments, graph, from_file)))


def _refuse_arch(arch: str | None) -> None:
    if arch is not None and arch not in ARCH_DEFAULT_MACHINE:
        raise UsageError(f"unknown architecture {arch!r}", f"use one of {', '.join(ARCH_DEFAULT_MACHINE)}")


def _refuse_counts(arguments: SolveArguments) -> None:
    if arguments.top < 1:
        raise UsageError(f"--top {arguments.top} is not a positive number", "give 1 or more")
    if not 0 <= arguments.seed <= MAX_SEED:
        raise UsageError(f"--seed {arguments.seed} is not from 0 to {MAX_SEED}", "give a number in this range")


def refuse_bad_numbers(timeout_s: float) -> None:
    """Refuse a time limit that is no sensible number of seconds.

    Raises
    ------
    UsageError : zero, negative, not a number, or more than `MAX_TIMEOUT_S`.
    """
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise UsageError(f"--timeout {timeout_s:g} is not a number of seconds above 0 and up to {MAX_TIMEOUT_S:g}", "give 60, say")


def _agreeing(machine: Machine, arch: str | None) -> Machine:
    if arch is not None and machine.arch != arch:
        text = f"--machine {machine.name} is of architecture {machine.arch}, not {arch}"
        raise UsageError(text, f"leave --arch away, or give --arch {machine.arch}")
    return machine


def _build(arguments: SolveArguments) -> tuple[LoopGraph, Machine]:
    from twill.model.registry import GRAPHS, GraphRequest, build_graph

    spec = GRAPHS.get(arguments.target)
    name = arguments.machine or (ARCH_DEFAULT_MACHINE[arguments.arch] if arguments.arch else spec.machine if spec else None)
    if name is None and spec is not None:
        raise UsageError("no machine is named", f"give --arch {'|'.join(ARCH_DEFAULT_MACHINE)}, or --machine")
    # an unknown graph is reported as such, whatever the machine
    machine = _agreeing(load_machine(name or next(iter(ARCH_DEFAULT_MACHINE.values()))), arguments.arch)
    request = GraphRequest(
        arguments.head_dim, arguments.head_dim_v, arguments.tile, arguments.subtiles, arguments.dtype, _settings(arguments.settings)
    )
    return build_graph(arguments.target, machine, request), machine


def _settings(pairs: tuple[str, ...]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise UsageError(f"--set {pair!r} is not of the form NAME=VALUE", "write, say, --set rescale=always")
        if name in settings:
            raise UsageError(f"--set gives {name!r} twice", "give each setting once")
        settings[name] = value
    return settings


def _read(arguments: SolveArguments) -> tuple[LoopGraph, Machine]:
    from twill.model.graph import parse_graph

    graph = parse_graph(read_text(arguments.target, "a graph's JSON file"), arguments.target)
    for field, flag in {**GRAPH_OPTIONS, "settings": "--set"}.items():
        if getattr(arguments, field) not in (None, ()):
            text = f"{flag} means nothing for a graph from a file, whose costs are fixed"
            raise UsageError(text, f"leave {flag} away, or name a shipped graph")
    if arguments.machine is None and graph.machine not in machine_names():
        text = f"{arguments.target} was costed for machine {graph.machine!r}, which does not ship with twill"
        raise UsageError(text, "give its --machine FILE")
    name = arguments.machine or _machine_for_file(graph, arguments.arch)
    return graph, _agreeing(load_machine(name), arguments.arch)


def _machine_for_file(graph: LoopGraph, arch: str | None) -> str:
    """The machine of the file where the architecture allows it; otherwise that of the architecture, to be refused with both names."""
    if arch is None or load_machine(graph.machine).arch == arch:
        return graph.machine
    return ARCH_DEFAULT_MACHINE[arch]


def _implied_machine(arguments: SolveArguments, graph: LoopGraph, from_file: bool) -> str | None:
    """The machine that need not be named."""
    from twill.model.registry import GRAPHS

    return graph.machine if from_file else GRAPHS[arguments.target].machine


def _command(arguments: SolveArguments, machine: Machine, *, implied: str | None) -> str:
    """The command that makes the same schedule, spelled the same way whatever the order of the options was."""
    words = ["twill", "solve"]
    if machine.name not in machine_names() or (arguments.machine is not None and arguments.machine not in machine_names()):
        words += ["--machine", str(arguments.machine)]
    elif machine.name in ARCH_DEFAULT_MACHINE.values() and machine.name != implied:
        words += ["--arch", machine.arch]
    elif machine.name != implied:
        words += ["--machine", machine.name]
    words.append(arguments.target)
    same = replace(arguments, without=tuple(sorted(set(arguments.without))), with_rules=tuple(sorted(set(arguments.with_rules))))
    default = SolveArguments(arguments.target)
    for field, flag in {**FLAGS, "top": "--top", "seed": "--seed"}.items():
        value = getattr(same, field)
        if isinstance(value, tuple):
            for item in sorted(value):
                words += [flag, item]
        elif value != getattr(default, field):
            words += [flag, str(value)]
    return shlex.join(words)


def machine_of_schedule(name: str, given: str | None) -> Machine:
    """The machine to check a schedule on: the one given, or the shipped one that the file names.

    Raises
    ------
    UsageError : the file names a machine that does not ship with twill, and none is given.
    """
    if given is None and name not in machine_names():
        raise UsageError(f"the schedule is for machine {name!r}, which does not ship with twill", "give its --machine FILE")
    return load_machine(given or name)
