"""Shared programs: every shipped schedule is checked and lowered once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from twill.schedules import load

from twill.check import checked
from twill.cli.files import read_schedule
from twill.lower import WarpProgram, lower
from twill.model.machine import load_machine
from twill.model.schedule import Schedule


@cache
def shipped(name: str) -> tuple[Schedule, WarpProgram]:
    schedule: Schedule = load(name)
    return schedule, lower(checked(schedule, load_machine(schedule.machine.name)))


@cache
def fa3_order() -> WarpProgram:
    """FA3's order with three warpgroups, written by hand: what the solver prefers does not matter to what is derived from it."""
    schedule = read_schedule(str(Path(__file__).parents[1] / "emit/schedules/d128_fa3_order.json"))
    return lower(checked(schedule, load_machine(schedule.machine.name)))


def mmas(schedule: Schedule) -> set[str]:
    return {op.name for op in schedule.graph.ops if op.asynchronous and op.unit == "tensor"}
