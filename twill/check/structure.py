"""Whether a file is about this machine and a sensible graph, and lists every op, group and buffer once.

Each function yields findings; those of `fatal_structure` leave nothing that further rules could be checked on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from pydantic import ValidationError

from twill.check.facts import DEFINITIONS, LEGALITY_RULES, Facts
from twill.check.report import Finding, finding
from twill.errors import GraphError
from twill.model.graph import canonical_hash
from twill.model.machine import Machine
from twill.model.schedule import Schedule
from twill.model.validate import validate_graph

__all__ = ["fatal_structure", "graph", "group_lists", "machine_reference", "options", "schema"]


def schema(schedule: Schedule) -> tuple[Schedule, tuple[Finding, ...]]:
    """The schedule read anew from its data: copies made in memory may have skipped the field checks."""
    try:
        return Schedule.model_validate(schedule.model_dump(mode="python", warnings=False)), ()
    except ValidationError as error:
        found = []
        for item in error.errors():
            where = ".".join(str(part) for part in item["loc"]) or "top level"
            found.append(finding("schema", where, None, f"{item['msg']}, found {item['input']!r}"))
        return schedule, tuple(found)


def machine_reference(schedule: Schedule, machine: Machine) -> Iterator[Finding]:
    """``machine`` names this machine in all its fields, and the graph was costed for it."""
    ref = schedule.machine
    needed = {"name": machine.name, "arch": machine.arch, "target": machine.target, "hash": canonical_hash(machine.model_dump(mode="json"))}
    for field, need in needed.items():
        given = getattr(ref, field)
        if given != need:
            yield finding("machine", f"machine.{field}", None, f"the file says {given!r}, machine {machine.name} has {need!r}")
    if schedule.graph.machine != machine.name:
        yield finding("machine", "graph.machine", None, f"the graph was costed for {schedule.graph.machine!r}, not for {machine.name!r}")


def graph(schedule: Schedule, machine: Machine) -> Iterator[Finding]:
    """The graph makes sense on the machine (`validate_graph`); reserved memory is not negative."""
    g = schedule.graph
    known = {op.name for op in g.ops}
    for pair in g.symmetries:
        for name in (*pair[0], *pair[1]):
            if name not in known:
                yield finding("graph", name, None, f"a symmetry of {g.name} names this op, which does not exist")
                return
    for memory, size in g.reserved.items():
        if size < 0:
            yield finding("graph", memory, None, f"{g.name} reserves {size} of it; at least 0 needed")
    try:
        validate_graph(g, machine)
    except GraphError as error:
        yield finding("graph", g.name, None, error.problem)


def options(schedule: Schedule) -> Iterator[Finding]:
    """The options name rules that exist and may be switched."""
    o = schedule.options
    for field, names in (("without", o.without), ("with_rules", o.with_rules)):
        for name in names:
            if name not in LEGALITY_RULES:
                yield finding("options", f"options.{field}", None, f"there is no rule {name!r}; the rules are {', '.join(LEGALITY_RULES)}")
    for name in o.without:
        if name in DEFINITIONS:
            yield finding("options", "options.without", None, f"{name!r} says what a schedule is and cannot be switched off")
        if name in o.with_rules:
            yield finding("options", "options.with_rules", None, f"{name!r} is asked for and switched off at once")


def fatal_structure(schedule: Schedule) -> Iterator[Finding]:
    """Every op of the graph is scheduled once, in a group that exists once; every buffer is placed once."""
    yield from _one_to_one("uniqueness", "op", [op.name for op in schedule.graph.ops], [op.name for op in schedule.ops])
    yield from _one_to_one("placement", "buffer", [b.name for b in schedule.graph.buffers], [b.name for b in schedule.buffers])
    groups = [g.name for g in schedule.groups]
    for name, count in Counter(groups).items():
        if count > 1:
            yield finding("uniqueness", name, None, f"{count} groups have this name; 1 needed")
    for op in schedule.ops:
        if op.group not in groups:
            yield finding("uniqueness", op.name, op.start_cycle, f"runs in group {op.group!r}, which the file does not list")


def _one_to_one(rule: str, what: str, needed: Iterable[str], given: Iterable[str]) -> Iterator[Finding]:
    have, want = Counter(given), set(needed)
    for name, count in have.items():
        if name not in want:
            yield finding(rule, name, None, f"the graph has no {what} of this name")
        elif count > 1:
            yield finding(rule, name, None, f"{what} listed {count} times; exactly 1 needed")
    for name in sorted(want - set(have)):
        yield finding(rule, name, None, f"{what} of the graph that the file does not list; exactly 1 needed")


def group_lists(facts: Facts, schedule: Schedule) -> Iterator[Finding]:
    """Every op stands in the list of its own group, once, and in no other; no group is empty."""
    for group in schedule.groups:
        if not facts.members[group.name]:
            yield finding("uniqueness", group.name, None, "no op runs in this group; at least 1 needed")
        for name, count in Counter(group.ops).items():
            if name not in facts.group:
                yield finding("uniqueness", name, None, f"group {group.name} lists it, but the graph has no such op")
            elif facts.group[name] != group.name:
                start = facts.start[name]
                yield finding("uniqueness", name, start, f"group {group.name} lists it, but it runs in group {facts.group[name]}")
            elif count > 1:
                yield finding("uniqueness", name, facts.start[name], f"group {group.name} lists it {count} times; exactly 1 needed")
        for name in facts.members[group.name]:
            if name not in group.ops:
                yield finding("uniqueness", name, facts.start[name], f"runs in group {group.name}, which does not list it")
