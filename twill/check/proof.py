"""The proof record: whether its arithmetic adds up, and whether the schedule itself refutes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from twill.check.bounds import critical_path, lower_bounds
from twill.check.facts import Facts, ceil_div, round_up
from twill.check.queues import most_margin, step_cycles
from twill.check.report import Finding, finding
from twill.model.graph import canonical_hash
from twill.model.schedule import ProofStep, Schedule

__all__ = ["ii_step", "length_step", "margin_step", "model_hash", "status"]


def status(facts: Facts, schedule: Schedule) -> Iterator[Finding]:
    """``optimal`` exactly if no step is by ``none``."""
    proof = schedule.proof
    open_steps = [name for name, step in (("ii", proof.ii), ("margin", proof.margin), ("length", proof.length)) if step.by == "none"]
    right = "feasible" if open_steps else "optimal"
    if schedule.status != right:
        why = f"proof.{' and proof.'.join(open_steps)} by none" if open_steps else "all proof steps closed"
        yield finding("proof", "status", None, f"with {why} it is {right!r}, the file says {schedule.status!r}")


def model_hash(facts: Facts, schedule: Schedule) -> Iterator[Finding]:
    """The proof is about this graph, machine and options."""
    model = [m.model_dump(mode="json") for m in (facts.graph, facts.machine, facts.options)]
    right = canonical_hash(model)
    if schedule.proof.model_hash != right:
        text = f"graph, machine and options have {right}, the proof is about {schedule.proof.model_hash}"
        yield finding("proof", "model_hash", None, text)


def ii_step(facts: Facts, schedule: Schedule, legality: Iterable[Callable[[Facts], Iterator[Finding]]]) -> Iterator[Finding]:
    """``proof.ii``: by an equal bound or by refuting one time unit less, which these very starts must not refute back."""
    step, bounds = schedule.proof.ii, lower_bounds(facts)
    yield from _arithmetic(facts, "proof.ii", step, facts.ii, bounds)
    shorter = facts.ii - facts.options.time_unit_cycles
    if step.by == "refutation" and step.refuted_cycles == shorter > 0 and ceil_div(facts.length, shorter) <= facts.options.max_copies:
        at_shorter = facts.with_ii(shorter)
        if not any(True for rule in legality for _ in rule(at_shorter)):
            yield finding("proof", "proof.ii", None, f"{shorter} was not refuted: these starts, groups and stages are legal there")


def margin_step(facts: Facts, schedule: Schedule) -> Iterator[Finding]:
    """``proof.margin``: by the bound ``queue``, by refuting one step more, or open by what is left up to the bound."""
    step, most, grain = schedule.proof.margin, most_margin(facts), step_cycles(facts)
    value = schedule.margin_cycles
    right = {
        "lower-bound": ProofStep(value_cycles=value, by="lower-bound", bound="queue"),
        "refutation": ProofStep(value_cycles=value, by="refutation", refuted_cycles=value + grain),
        "none": ProofStep(value_cycles=value, by="none", gap_cycles=step.gap_cycles),
    }[step.by]
    for field in ProofStep.model_fields:
        need, have = getattr(right, field), getattr(step, field)
        if need != have:
            yield finding(
                "proof", f"proof.margin.{field}", None, f"{need} needed for a margin of {value} by {step.by}, the file says {have}"
            )
    if step.by == "lower-bound" and value != most:
        yield finding("proof", "proof.margin.bound", None, f"the bound queue is {most}, which does not prove {value}; they must be equal")
    if step.by == "refutation" and value >= most:
        yield finding("proof", "proof.margin.by", None, f"{value} is all that counts; nothing larger can be refuted")
    if step.by == "none" and not 0 < step.gap_cycles <= most - value:
        text = f"must be from 1 to {most - value} = {most} - {value}, the file says {step.gap_cycles}"
        yield finding("proof", "proof.margin.gap_cycles", None, text)


def length_step(facts: Facts, schedule: Schedule) -> Iterator[Finding]:
    """``proof.length``: likewise, with the critical path as its bound."""
    step, shortest = schedule.proof.length, critical_path(facts)
    yield from _arithmetic(facts, "proof.length", step, facts.length, {} if shortest is None else {"critical-path": shortest})
    end = max(start + facts.ops[name].span_cycles for name, start in facts.start.items())
    if step.by == "refutation" and step.refuted_cycles is not None and end <= step.refuted_cycles:
        text = f"{step.refuted_cycles} was not refuted: all ops of this schedule end by {end}"
        yield finding("proof", "proof.length", None, text)


def _arithmetic(facts: Facts, name: str, step: ProofStep, value: int, bounds: dict[str, int]) -> Iterator[Finding]:
    def wrong(field: str, text: str) -> Finding:
        return finding("proof", f"{name}.{field}", None, text)

    unit = facts.options.time_unit_cycles
    if step.value_cycles != value:
        yield wrong("value_cycles", f"the schedule has {value}, the proof is about {step.value_cycles}")
    if step.by != "none" and step.gap_cycles:
        yield wrong("gap_cycles", f"{step.gap_cycles} cycles are open though the value is proved by {step.by}; 0 needed")
    if step.by != "lower-bound" and step.bound is not None:
        yield wrong("bound", f"names {step.bound!r} though the value is by {step.by}; none needed")
    if step.by != "refutation" and step.refuted_cycles is not None:
        yield wrong("refuted_cycles", f"{step.refuted_cycles} though the value is by {step.by}; none needed")
    if step.by == "lower-bound":
        if step.bound is None or step.bound not in bounds:
            yield wrong("bound", f"{step.bound!r} is no bound on it; the bounds are {', '.join(bounds)}")
        elif round_up(bounds[step.bound], unit) != value:
            yield wrong("bound", f"{step.bound} is {bounds[step.bound]}, which does not prove {value}; they must be equal")
    elif step.by == "refutation" and step.refuted_cycles != value - unit:
        yield wrong("refuted_cycles", f"{value - unit} = {value} - time unit {unit} must be refuted, the file says {step.refuted_cycles}")
    elif step.by == "none":
        best = round_up(max(bounds.values(), default=0), unit)
        if not 0 < step.gap_cycles <= value - best:
            yield wrong("gap_cycles", f"must be from 1 to {value - best} = {value} - best bound {best}, the file says {step.gap_cycles}")
