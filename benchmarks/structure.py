"""What is different between two schedules of one graph, in words: who shares a group with whom, registers, iterations in flight."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from twill.model.schedule import Schedule
from twill.view.words import counted

__all__ = ["changes", "copies", "equally_good", "groups_in_words"]


def copies(schedule: Schedule) -> int:
    """Iterations in flight."""
    return -(-schedule.length_cycles // schedule.ii_cycles)


def groups_in_words(schedule: Schedule) -> str:
    """``load (LK LV); mma (PV_a0 ...)``, ops in the order of one period, with registers per thread."""
    return "; ".join(f"{g.name} ({g.registers_per_thread} registers: {' '.join(g.ops)})" for g in schedule.groups)


def equally_good(first: Schedule, second: Schedule) -> bool:
    """Whether I, margin, L and all that the ranking counts agree: which of the two one gets is then without meaning."""
    counted_by_rank = ("groups", "held_up", "handovers", "waits", "register_peak")
    objectives = ("ii_cycles", "margin_cycles", "length_cycles")
    return all(getattr(first, name) == getattr(second, name) for name in objectives) and all(
        getattr(first.rank, name) == getattr(second.rank, name) for name in counted_by_rank
    )


def _renamings(schedule: Schedule) -> Iterator[Mapping[str, str]]:
    """Every renaming of ops that leaves the graph as it is: products of its symmetries, the identity first."""
    names = [op.name for op in schedule.graph.ops]
    seen = set()
    symmetries = schedule.graph.symmetries
    for length in range(len(symmetries) + 1):
        for chosen in itertools.permutations(symmetries, length):
            renamed = {name: name for name in names}
            for first, second in chosen:
                swap = {**dict(zip(first, second, strict=True)), **dict(zip(second, first, strict=True))}
                renamed = {name: swap.get(to, to) for name, to in renamed.items()}
            key = tuple(renamed.values())
            if key not in seen:
                seen.add(key)
                yield renamed


def _matched(base: Schedule, other: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """For groups of ``other`` the group of ``base`` that it has most ops of; each is taken once."""
    overlaps = sorted(
        ((len(members & frozenset(g.ops)), name, g.name) for name, members in other.items() for g in base.groups),
        key=lambda item: (-item[0], item[1], item[2]),
    )
    result: dict[str, str] = {}
    for size, name, of_base in overlaps:
        if size and name not in result and of_base not in result.values():
            result[name] = of_base
    return result


def _moves(base: Schedule, other: Mapping[str, frozenset[str]]) -> list[tuple[str, str]]:
    """(op, where it is now) for every op that changed its group; bulk copies, which anybody may issue, are left out."""
    matched = _matched(base, other)
    bulk = {op.name for op in base.graph.ops if op.asynchronous and op.unit == "tma" and not op.variable_latency}
    home = {op: g.name for g in base.groups for op in g.ops}
    moved = []
    for op in (op.name for op in base.graph.ops if op.name not in bulk):
        name = next(n for n, members in other.items() if op in members)
        now = matched.get(name, "")
        if now != home[op]:
            moved.append((op, f"with {now}" if now else "in a group of their own"))
    return moved


def changes(base: Schedule, other: Schedule) -> list[str]:
    """What ``other`` does differently, up to renaming of equal sub-tiles; nothing where the two are equally good."""
    if equally_good(base, other):
        return []
    best: tuple[list[tuple[str, str]], Mapping[str, frozenset[str]]] | None = None
    for renamed in _renamings(other):
        groups = {g.name: frozenset(renamed[op] for op in g.ops) for g in other.groups}
        moved = _moves(base, groups)
        if best is None or len(moved) < len(best[0]):
            best = moved, groups
    assert best is not None
    moved, in_base_names = best
    result = []
    for where in dict.fromkeys(where for _, where in moved):
        ops = [op for op, to in moved if to == where]
        own = "in a group of its own" if len(ops) == 1 else where
        result.append(f"{' '.join(ops)} {own if where.startswith('in a') else where}")
    kept = set(_matched(base, in_base_names).values())
    result += [f"no group {g.name}" for g in base.groups if g.name not in kept]
    if copies(base) != copies(other):
        result.append(f"{counted(copies(other), 'iteration')} in flight instead of {copies(base)}")
    most = [max(g.registers_per_thread for g in s.groups) for s in (base, other)]
    if most[0] != most[1]:
        result.append(f"at most {most[1]} registers a thread instead of {most[0]}")
    return result
