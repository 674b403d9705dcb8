"""Change one thing about a legal schedule, and the checker names it."""

from __future__ import annotations

import copy

import pytest

from twill.check import check_schedule
from twill.model.schedule import Schedule

from . import corrupt_claims, corruptions
from .samples import LEGAL

CORRUPTIONS = corruptions.CORRUPTIONS | corrupt_claims.CORRUPTIONS


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corrupted_schedule_is_refused_by_name(name: str) -> None:
    tried = 0
    for sample, make in LEGAL.items():
        schedule, machine = make()
        data = copy.deepcopy(schedule.model_dump(mode="json"))
        expected = CORRUPTIONS[name](data, schedule, machine)
        if expected is None or expected.rule in schedule.options.without:
            continue
        tried += 1
        report = check_schedule(Schedule.model_validate(data), machine)
        of_rule = [f for f in report.findings if f.rule == expected.rule]
        found = [f for f in of_rule if f.op in expected.ops and (expected.cycle is None or f.cycle == expected.cycle)]
        assert found, f"{name} of {sample}: expected {expected}, found\n{report}"
        for f in found:
            assert f.message.startswith(f"{f.rule}: {f.op}")
            assert f.cycle is None or f"at cycle {f.cycle}" in f.message
    assert tried, f"no sample can be corrupted by {name}"


def test_there_are_many_ways_to_be_wrong() -> None:
    assert len(CORRUPTIONS) >= 90
