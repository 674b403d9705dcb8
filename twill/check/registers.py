"""Rules register-limit and register-file: what lives in the registers of each group."""

from __future__ import annotations

from collections.abc import Iterator

from twill.check.facts import Facts, ceil_div, round_up
from twill.check.periodic import Peak, Span, peak
from twill.check.report import Finding, finding
from twill.check.warps import WARPGROUP, group_warps, sharing_warps
from twill.model.schedule import Schedule

__all__ = ["pressure", "register_file", "register_limit", "registers_per_thread", "request_fields"]

LANES = 32


def _spans(facts: Facts) -> dict[str, list[Span]]:
    """Copies of register values, by group: the producer's own and what readers elsewhere hold while they issue."""
    spans: dict[str, list[Span]] = {group: [] for group in facts.members}
    for value in facts.graph.values:
        producer = facts.ops[value.producer]
        home = facts.group[value.producer]
        start = facts.start[value.producer]
        end = start + producer.latency_cycles
        for r in value.readers:
            at = facts.start[r.op]
            if facts.group[r.op] == home:
                end = max(end, at + r.distance * facts.ii + r.hold_cycles)
            else:
                copy = Span(value.name, at, facts.ops[r.op].issue_cycles, value.registers)
                spans[facts.group[r.op]].append(copy)
        if value.persistent:
            spans[home].append(Span(value.name, 0, facts.ii, value.registers))
        else:
            spans[home].append(Span(value.name, start, end - start, value.registers))
    return spans


def pressure(facts: Facts) -> dict[str, Peak]:
    """pressure(g), with the cycle of the period that has it and the values that live then."""
    return {group: peak(spans, facts.ii) for group, spans in _spans(facts).items()}


def _needed(facts: Facts, amount: int) -> tuple[int, str]:
    registers = facts.machine.registers
    if amount == 0:
        need, why = int(registers.issuer_per_thread.value), "holds no value and needs what an issuer does"
    else:
        overhead = int(registers.overhead_per_thread.value)
        need, why = amount + overhead, f"holds {amount} and {overhead} beside"
    return max(int(registers.per_thread_min.value), round_up(need, int(registers.granularity.value))), why


def registers_per_thread(facts: Facts) -> dict[str, int]:
    """R(g) as the rule computes it."""
    return {group: _needed(facts, top.amount)[0] for group, top in pressure(facts).items()}


def register_limit(facts: Facts) -> Iterator[Finding]:
    """No group needs more registers per thread than the machine or the options allow."""
    limits = [("the machine allows", int(facts.machine.registers.per_thread_max.value))]
    if facts.options.registers is not None:
        limits.append(("the option allows", facts.options.registers))
    for group, top in pressure(facts).items():
        need, why = _needed(facts, top.amount)
        for who, limit in limits:
            if need > limit:
                values = f" ({', '.join(top.owners)})" if top.owners else ""
                text = f"of the period the group {why}{values}: {need} registers per thread; {who} {limit}"
                yield finding("register-limit", group, top.cycle, text)


def register_file(facts: Facts) -> Iterator[Finding]:
    """The requests of all warps fit in the register file, groups of odd size sharing warpgroups."""
    warps, requests = group_warps(facts), registers_per_thread(facts)
    shared = sharing_warps(facts)
    largest = max((requests[g] for g, w in warps.items() if w % WARPGROUP), default=0)
    own = sum(LANES * w * requests[g] for g, w in warps.items() if w % WARPGROUP == 0)
    total = own + LANES * WARPGROUP * ceil_div(shared, WARPGROUP) * largest
    have = int(facts.machine.registers.file.value)
    if total > have:
        parts = ", ".join(f"{g} {w} warps of {requests[g]}" for g, w in warps.items())
        yield finding("register-file", "groups", None, f"{total} registers needed ({parts}); the file has {have}")


def request_fields(facts: Facts, schedule: Schedule) -> Iterator[Finding]:
    """``registers_per_thread`` of every group is R(g)."""
    tops = pressure(facts)
    rule = "register-limit" if facts.on("register-limit") else "derived-fields"
    for group in schedule.groups:
        top = tops[group.name]
        need, why = _needed(facts, top.amount)
        if group.registers_per_thread != need:
            values = f" ({', '.join(top.owners)})" if top.owners else ""
            text = f"of the period the group {why}{values}: registers_per_thread is {need}, the file says {group.registers_per_thread}"
            yield finding(rule, group.name, top.cycle, text)
