"""Fields of the schedule file that follow from others (``docs/formulation.md`` section 6) and the rank (section 3)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from twill.check.facts import Facts
from twill.check.queues import held_up
from twill.check.registers import pressure
from twill.check.report import Finding, finding
from twill.check.storage import lifetime, stored_size, stride
from twill.check.warps import group_warps
from twill.model.graph import Buffer
from twill.model.schedule import Handover, Rank, Schedule

__all__ = ["buffer_fields", "file_order", "group_fields", "handover_fields", "op_fields", "rank_fields", "utilization_fields"]

UTILIZATION_DIGITS = 4

DEEPEST_RING = 16
"""Stages up to which spare memory is given to a prefetch ring (docs/formulation.md, rank)."""


def file_order(facts: Facts, schedule: Schedule) -> Iterator[Finding]:
    """Ops and buffers stand in the order of the graph."""
    for what, needed, given in (
        ("ops", [op.name for op in facts.graph.ops], [op.name for op in schedule.ops]),
        ("buffers", [b.name for b in facts.graph.buffers], [b.name for b in schedule.buffers]),
    ):
        for place, (need, have) in enumerate(zip(needed, given, strict=True)):
            if need != have:
                yield finding("derived-fields", have, None, f"stands at place {place} of {what}, where the graph has {need}")
                break


def op_fields(facts: Facts, schedule: Schedule) -> Iterator[Finding]:
    """``stage`` is floor(M / I), ``unit`` that of the graph."""
    for op in schedule.ops:
        stage = op.start_cycle // facts.ii
        if op.stage != stage:
            text = f"stage is {stage} = {op.start_cycle} / {facts.ii} rounded down, the file says {op.stage}"
            yield finding("derived-fields", op.name, op.start_cycle, text)
        unit = facts.ops[op.name].unit
        if op.unit != unit:
            yield finding("derived-fields", op.name, op.start_cycle, f"unit is {unit!r} in the graph, the file says {op.unit!r}")


def buffer_fields(facts: Facts, schedule: Schedule) -> Iterator[Finding]:
    """``memory`` and ``size`` are those of the graph."""
    of_graph = {b.name: b for b in facts.graph.buffers}
    for placed in schedule.buffers:
        buffer = of_graph[placed.name]
        if placed.size != buffer.size:
            yield finding("derived-fields", placed.name, None, f"size is {buffer.size} in the graph, the file says {placed.size}")
        if placed.memory != buffer.memory:
            yield finding("derived-fields", placed.name, None, f"memory is {buffer.memory!r} in the graph, the file says {placed.memory!r}")


def group_fields(facts: Facts, schedule: Schedule) -> Iterator[Finding]:
    """``warps`` is the largest of the ops; ``ops`` is in issue order: by M(v) modulo I, ties by graph order."""
    warps = group_warps(facts)
    for group in schedule.groups:
        members = facts.members[group.name]
        if members and group.warps != warps[group.name]:
            widest = max(members, key=lambda v: facts.ops[v].warps)
            text = f"warps is {warps[group.name]}, which {widest} needs, the file says {group.warps}"
            yield finding("derived-fields", group.name, None, text)
        if sorted(members) != sorted(group.ops):
            continue
        in_order = sorted(members, key=lambda v: facts.start[v] % facts.ii)
        for place, (need, have) in enumerate(zip(in_order, group.ops, strict=True)):
            if need != have:
                at = facts.start[have] % facts.ii
                text = f"of the period is at place {place} of group {group.name}, where {need} issues ({facts.start[need] % facts.ii})"
                yield finding("derived-fields", have, at, text)
                break


def handover_fields(facts: Facts, schedule: Schedule) -> Iterator[Finding]:
    """``handovers`` lists the edges between different groups in the order of the graph, with their cost."""
    needed = [
        Handover(edge=e.label, kind=e.kind, cost_cycles=facts.handover_cycles(e))
        for e in facts.graph.edges
        if not facts.same(e.src, e.dst)
    ]  # fmt: skip
    given = list(schedule.handovers)
    if needed == given:
        return
    rest = list(given)
    missing = []
    for handover in needed:
        if handover in rest:
            rest.remove(handover)
        else:
            missing.append(handover)
    for handover in missing:
        text = f"handovers needs this edge ({handover.kind}, {handover.cost_cycles} cycles), which the file does not list so"
        yield finding("derived-fields", handover.edge, None, text)
    for handover in rest:
        text = f"handovers lists ({handover.kind}, {handover.cost_cycles} cycles), but no edge between groups is like that"
        yield finding("derived-fields", handover.edge, None, text)
    if not missing and not rest:
        first = next(have for need, have in zip(needed, given, strict=True) if need != have)
        yield finding("derived-fields", first.edge, None, "stands in handovers out of the order of the graph")


def utilization_fields(facts: Facts, schedule: Schedule) -> Iterator[Finding]:
    """``utilization`` lists every unit of the machine: work / (capacity * I), rounded to 4 digits."""
    given = schedule.utilization
    for unit in sorted(set(given) - set(facts.machine.units)):
        yield finding("derived-fields", f"utilization.{unit}", None, f"{facts.machine.name} has no such unit")
    half_digit = Fraction(1, 2 * 10**UTILIZATION_DIGITS) + Fraction(1, 10**9)
    for unit in facts.machine.units:
        work = sum(r.amount * r.cycles for op in facts.graph.ops for r in op.reservations if r.unit == unit)
        whole = facts.machine.capacity(unit) * facts.ii
        share = Fraction(work, whole) if whole else Fraction(0)
        text = f"{float(share):.6f} = {work} / {whole}, to {UTILIZATION_DIGITS} digits"
        if unit not in given:
            yield finding("derived-fields", f"utilization.{unit}", None, f"is {text}; the file does not list it")
            continue
        have = given[unit]
        if not (abs(have) < float("inf") and abs(Fraction(have) - share) <= half_digit and have == round(have, UTILIZATION_DIGITS)):
            yield finding("derived-fields", f"utilization.{unit}", None, f"is {text}; the file says {have}")


def _slack(facts: Facts, buffer: Buffer) -> int:
    start, end = lifetime(facts, buffer)
    return facts.placed[buffer.name].stages * facts.ii - (end - start)


def _rings(facts: Facts) -> list[Buffer]:
    return [b for b in facts.graph.buffers if b.prefetch and not b.persistent]


def _rank(facts: Facts) -> Rank:
    crossing = [e for e in facts.graph.edges if not facts.same(e.src, e.dst)]
    return Rank(
        groups=len(facts.members),
        held_up=held_up(facts),
        handovers=len({(e.src, e.dst, e.distance) for e in crossing}),
        waits=len({(e.src, facts.group[e.dst]) for e in crossing}),
        register_peak=max(top.amount for top in pressure(facts).values()),
        slack_cycles=min((_slack(facts, b) for b in _rings(facts)), default=0),
    )


def rank_fields(facts: Facts, schedule: Schedule) -> Iterator[Finding]:
    """``rank`` counts what the schedule has; with ``rank_proved``, no free memory is left that would raise the slack."""
    right, given = _rank(facts), schedule.rank
    for field in Rank.model_fields:
        need, have = getattr(right, field), getattr(given, field)
        if need != have:
            yield finding("rank", field, None, f"the schedule has {need}, the file says {have}")
    if schedule.proof.rank_proved and facts.on("memory") and facts.on("placement"):
        yield from _room_for_slack(facts, right.slack_cycles)


def _room_for_slack(facts: Facts, slack: int) -> Iterator[Finding]:
    """Whether every ring of the smallest slack could have one stage more."""
    tight = [b for b in _rings(facts) if _slack(facts, b) == slack]
    if not tight or any(facts.machine.memories[b.memory].overlay or facts.placed[b.name].stages >= DEEPEST_RING for b in tight):
        return
    for memory in sorted({b.memory for b in tight}):
        total = sum(stored_size(facts, b) for b in facts.graph.buffers if b.memory == memory)
        total += sum(stride(facts, b) for b in tight if b.memory == memory)
        if total > facts.capacity_of(memory):
            return
    stages = ", ".join(f"{b.name} {facts.placed[b.name].stages + 1} stages" for b in tight)
    yield finding("rank", "slack_cycles", None, f"{slack} is not the most: there is room for {stages}, though rank_proved is true")
