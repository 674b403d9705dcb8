"""Tables of what ships with twill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Group as Stack
from rich.table import Table

from twill.model.machine import Machine
from twill.model.registry import FLAGS, GraphSpec
from twill.model.schedule import Schedule
from twill.view.parts import plain_table

__all__ = ["graphs", "machines", "rules", "schedules"]


def graphs(specs: Mapping[str, GraphSpec]) -> Stack:
    """Graphs with the options and settings that each takes."""
    table = plain_table(("graph", False), ("loop", False), ("options", False))
    settings = plain_table(("graph", False), ("--set", False), ("meaning", False))
    for name, spec in specs.items():
        only = f"only for --machine {spec.machine}" if spec.machine else "none"
        table.add_row(name, spec.description, " ".join(FLAGS[field] for field in spec.takes) or only)
        for setting, about in spec.settings.items():
            settings.add_row(name, setting, about.meaning)
    return Stack(table, "", settings)


def machines(loaded: Iterable[tuple[Machine, str]]) -> Table:
    """Machines, each with the ``--arch`` that stands for it, if any."""
    table = plain_table(("machine", False), ("architecture", False), ("target", False), ("description", False))
    for machine, arch in loaded:
        table.add_row(machine.name, f"{machine.arch} (--arch {arch})" if arch else machine.arch, machine.target, machine.description)
    return table


def rules(entries: Iterable[tuple[str, str, bool]]) -> Table:
    """Rules: name, meaning, whether it is on by default."""
    table = plain_table(("rule", False), ("default", False), ("meaning", False))
    for name, words, default in entries:
        table.add_row(name, "on" if default else "off", words)
    return table


def schedules(loaded: Iterable[tuple[str, Schedule]]) -> Table:
    """Shipped schedules with their I and L."""
    table = plain_table(("schedule", False), ("machine", False), ("I", True), ("L", True), ("status", False))
    for name, schedule in loaded:
        table.add_row(name, schedule.machine.name, str(schedule.ii_cycles), str(schedule.length_cycles), schedule.status)
    return table
