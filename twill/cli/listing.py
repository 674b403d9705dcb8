"""``twill list``: what ships with twill."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from twill.errors import EXIT_DONE, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["list_command"]


def _graphs() -> RenderableType:
    from twill.model.registry import GRAPHS
    from twill.view.catalogue import graphs

    return graphs(GRAPHS)


def _machines() -> RenderableType:
    from twill.model.machine import ARCH_DEFAULT_MACHINE, load_machine, machine_names
    from twill.view.catalogue import machines

    arch_of = {machine: arch for arch, machine in ARCH_DEFAULT_MACHINE.items()}
    return machines((load_machine(name), arch_of.get(name, "")) for name in machine_names())


def _rules() -> RenderableType:
    from twill.solver.problem import RULES
    from twill.view.catalogue import rules

    return rules((rule.name, rule.words, rule.default) for rule in RULES.values())


def _schedules() -> RenderableType:
    from twill.schedules import load, names
    from twill.view.catalogue import schedules

    shipped = names()
    return schedules((name, load(name)) for name in shipped) if shipped else "no schedules ship with this twill"


LISTS: dict[str, Callable[[], RenderableType]] = {"graphs": _graphs, "machines": _machines, "rules": _rules, "schedules": _schedules}


def list_command(what: str | None) -> int:
    """Print one list, or all of them.

    Raises
    ------
    UsageError : there is no such list.
    """
    if what is not None and what not in LISTS:
        raise UsageError(f"there is no list of {what!r}", f"use one of {', '.join(LISTS)}, or nothing for all of them")
    from twill.view.console import show

    for number, name in enumerate([what] if what else LISTS):
        if number:
            sys.stdout.write("\n")
        show(LISTS[name](), sys.stdout)
    return EXIT_DONE
