"""The proof record and the bounds of a schedule in plain words. Imports nothing but the model."""

from __future__ import annotations

from collections.abc import Mapping

from twill.model.graph import LoopGraph
from twill.model.machine import Machine
from twill.model.schedule import ProofStep, Schedule
from twill.model.throughput import throughput

__all__ = [
    "bottleneck",
    "bounds_in_words",
    "busiest_unit",
    "counted",
    "ii_in_words",
    "length_in_words",
    "margin_in_words",
    "rounding_in_words",
    "throughput_in_words",
]


def counted(number: int, noun: str) -> str:
    """``1 group``, ``2 groups``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def busiest_unit(schedule: Schedule) -> tuple[str, float]:
    """The unit with the highest use over one period, and that use."""
    return max(schedule.utilization.items(), key=lambda item: item[1], default=("none", 0.0))


def _bound_name(schedule: Schedule, bound: str) -> str:
    if bound == "resource":
        return f"resource bound ({busiest_unit(schedule)[0]})"
    if bound == "issue":
        longest = max(schedule.graph.ops, key=lambda op: op.issue_cycles)
        return f"issue bound ({longest.name})"
    if bound == "critical-path":
        return "critical path"
    return f"{bound} bound"


def _step_in_words(schedule: Schedule, step: ProofStep) -> str:
    if step.by == "lower-bound":
        return f"proved: equals the {_bound_name(schedule, step.bound or '')}"
    if step.by == "refutation":
        return f"proved: {step.refuted_cycles} is impossible"
    return f"not proved: {step.value_cycles - step.gap_cycles} is not ruled out, a gap of {step.gap_cycles} cycles"


def ii_in_words(schedule: Schedule) -> str:
    """``I = 2839 cycles, proved: 2838 is impossible``."""
    return f"I = {counted(schedule.ii_cycles, 'cycle')}, {_step_in_words(schedule, schedule.proof.ii)}"


def margin_in_words(schedule: Schedule) -> str:
    """``320 cycles for late results of the tensor core, proved: 384 is impossible``."""
    step = schedule.proof.margin
    if step.by == "lower-bound":
        why = "proved: no more counts"
    elif step.by == "refutation":
        why = f"proved: {step.refuted_cycles} is impossible"
    else:
        why = f"not proved: {step.value_cycles + step.gap_cycles} is not ruled out"
    return f"{counted(schedule.margin_cycles, 'cycle')} for late results of queued units, {why}"


def length_in_words(schedule: Schedule) -> str:
    """``L = 5046 cycles, proved: 5045 is impossible; 2 iterations in flight``."""
    flying = -(-schedule.length_cycles // schedule.ii_cycles)
    text = f"L = {counted(schedule.length_cycles, 'cycle')}, {_step_in_words(schedule, schedule.proof.length)}"
    return f"{text}; {counted(flying, 'iteration')} in flight"


def bounds_in_words(bounds_cycles: Mapping[str, int], reasons: Mapping[str, str] | None = None) -> list[str]:
    """The lower bounds on I, largest first, those that say nothing left out; with ``reasons`` each says where it comes from."""
    lines = []
    for name, value in sorted(bounds_cycles.items(), key=lambda item: -item[1]):
        why = (reasons or {}).get(name, "")
        if value:
            lines.append(f"{name} {value}" + (f": {why}" if why else ""))
    return lines


def rounding_in_words(schedule: Schedule) -> str:
    """What the time unit does to the costs."""
    unit = schedule.options.time_unit_cycles
    if unit == 1:
        return "exact to the cycle"
    costs = [c for op in schedule.graph.ops for c in (op.latency_cycles, op.issue_cycles, *(r.cycles for r in op.reservations))]
    costs += [e.latency_cycles + c for e in schedule.graph.edges for c in (e.same_group_cycles, e.cross_group_cycles)]
    worst = max((-(-c // unit) * unit / c - 1.0 for c in costs if c), default=0.0)
    return f"rounded up to multiples of {unit} cycles, the worst by {worst:.1%}"


def bottleneck(schedule: Schedule) -> str:
    """What limits I: a bound that it equals, or else how near the largest bounds and the busiest unit come."""
    step, (unit, use) = schedule.proof.ii, busiest_unit(schedule)
    if step.by == "lower-bound" and step.bound == "resource":
        return f"{unit}, busy {use:.1%} of the time"
    if step.by == "lower-bound":
        return f"the {_bound_name(schedule, step.bound or '')}; the busiest unit is {unit} at {use:.1%}"
    name, value = max(schedule.lower_bounds_cycles.items(), key=lambda item: item[1], default=("", 0))
    share = value / schedule.ii_cycles
    return f"no unit alone: the largest single bound is {name} with {value} ({share:.1%} of I); the busiest unit is {unit} at {use:.1%}"


def throughput_in_words(graph: LoopGraph, machine: Machine, ii_cycles: float) -> str | None:
    """``1622 TFLOP/s, 72.1% of the matrix peak``, None for loops and machines of which that cannot be said."""
    found = throughput(graph, machine, ii_cycles)
    return None if found is None else f"{found.tflops:.0f} TFLOP/s, {found.share:.1%} of the matrix peak"
