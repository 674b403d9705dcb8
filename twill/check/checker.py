"""Verify a schedule against ``docs/formulation.md``, from its graph and machine alone.

The checker shares no code with the solver and believes no number of the file: it recomputes every one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass

from twill.check import bounds, derived, proof, queues, registers, storage, structure, timing, units, warps
from twill.check.facts import Facts, facts_of
from twill.check.report import CheckReport, Finding
from twill.errors import CheckFailed
from twill.model.machine import Machine
from twill.model.schedule import Schedule

__all__ = ["CheckedSchedule", "check_schedule", "checked"]

Rule = Callable[[Facts], Iterator[Finding]]

RULES: tuple[tuple[str, Rule], ...] = (
    ("completion", timing.completion),
    ("dependence", timing.dependence),
    ("queueing", queues.queueing),
    ("capacity", units.capacity),
    ("memory", storage.memory),
    ("placement", storage.placement),
    ("variable-latency", warps.variable_latency),
    ("exposed-wait", warps.exposed_wait),
    ("blocking", warps.blocking),
    ("concurrency", warps.concurrency),
    ("register-limit", registers.register_limit),
    ("register-file", registers.register_file),
    ("register-tiles", warps.register_tiles),
    ("warp-budget", warps.warp_budget),
    ("local-registers", warps.local_registers),
)
"""The rules of section 2 by name; ``timing.dependence`` covers ``hand-over``, the uniqueness rule is in `structure`."""

SHOWN = 5
"""Findings that `CheckFailed` spells out."""

_SEAL = object()


@dataclass(frozen=True, slots=True)
class CheckedSchedule:
    """A schedule that passed `check_schedule` on this machine; only `checked` makes one.

    Raises
    ------
    TypeError : made by hand.
    """

    schedule: Schedule
    machine: Machine
    seal: InitVar[object] = None

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("only twill.check.checked() makes a CheckedSchedule")


def check_schedule(schedule: Schedule, machine: Machine) -> CheckReport:
    """Every way in which a schedule breaks a rule in force or misstates what follows from it.

    A file that does not match its graph op for op, or a graph that makes no sense on the machine, is reported alone: no other
    rule means anything then. The content hash of the file is `parse_schedule`'s to verify.
    """
    schedule, found = structure.schema(schedule)
    if found:
        return CheckReport(found)
    about = (*structure.machine_reference(schedule, machine), *structure.options(schedule))
    fatal = (*structure.graph(schedule, machine), *structure.fatal_structure(schedule))
    if fatal:
        return CheckReport((*about, *fatal))
    facts = facts_of(schedule, machine)
    in_force = [rule for name, rule in RULES if facts.on(name)]
    return CheckReport(
        (
            *about,
            *structure.group_lists(facts, schedule),
            *timing.time_options(facts),
            *(f for rule in in_force for f in rule(facts)),
            *registers.request_fields(facts, schedule),
            *derived.file_order(facts, schedule),
            *derived.op_fields(facts, schedule),
            *derived.buffer_fields(facts, schedule),
            *derived.group_fields(facts, schedule),
            *derived.handover_fields(facts, schedule),
            *derived.utilization_fields(facts, schedule),
            *bounds.bound_fields(facts, schedule.lower_bounds_cycles),
            *queues.margin_field(facts, schedule),
            *derived.rank_fields(facts, schedule),
            *proof.ii_step(facts, schedule, in_force),
            *proof.margin_step(facts, schedule),
            *proof.length_step(facts, schedule),
            *proof.status(facts, schedule),
            *proof.model_hash(facts, schedule),
        )
    )


def checked(schedule: Schedule, machine: Machine) -> CheckedSchedule:
    """The schedule as what later stages take.

    Raises
    ------
    CheckFailed : it is not legal, or something that it says of itself is not so.
    """
    report = check_schedule(schedule, machine)
    if not report.ok:
        count = len(report.findings)
        lines = [f"schedule of {schedule.graph.name} is refused, {count} finding{'s' if count > 1 else ''}:"]
        lines += [f"  {f.message}" for f in report.findings[:SHOWN]]
        if count > SHOWN:
            lines.append(f"  and {count - SHOWN} more")
        raise CheckFailed("\n".join(lines), "solve it again, or see docs/formulation.md for the rules named here")
    return CheckedSchedule(schedule, machine, _SEAL)
