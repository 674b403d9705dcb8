"""No field of a schedule file is believed: change any one, and the file is refused unless the change is another legal schedule."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from twill.check import check_schedule
from twill.model.schedule import Schedule

from .samples import LEGAL

Path = tuple[str | int, ...]

UNCHECKED = re.compile(
    r"provenance\..*|hash|schema_version|proof\.(solver|solver_version|seed|queries|rank_proved)"  # says who made it, not what it is
    r"|proof\.(ii|length)\.gap_cycles"  # a gap may be any that the bounds allow
    r"|groups\.\d+\.name|ops\.\d+\.group"  # names agree with each other or are refused; renaming both is legal
)
ANOTHER_LEGAL = re.compile(r"ops\.\d+\.start_cycle|buffers\.\d+\.(offset|stages)|length_cycles|ii_cycles")
"""What the solver decides: a neighbour may be as legal."""


def leaves(data: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from leaves(value, (*path, key))
    else:
        yield path


def changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value + 0.01
    return 1 if value is None else f"{value}x"


@pytest.mark.parametrize("sample", LEGAL)
def test_no_field_is_believed(sample: str) -> None:
    schedule, machine = LEGAL[sample]()
    data = schedule.model_dump(mode="json")
    accepted = []
    for path in leaves(data):
        name = ".".join(map(str, path))
        if UNCHECKED.fullmatch(name):
            continue
        bad = copy.deepcopy(data)
        parent = bad
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = changed(parent[path[-1]])
        try:
            report = check_schedule(Schedule.model_validate(bad), machine)
        except ValidationError:
            continue
        if report.ok:
            accepted.append(name)
    assert not [name for name in accepted if not ANOTHER_LEGAL.fullmatch(name)]
