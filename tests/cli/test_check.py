"""``twill check``."""

from __future__ import annotations

import json
from pathlib import Path

from twill.model.schedule import Schedule, with_hash

from .conftest import Twill


def test_legal(twill: Twill, toy_file: Path) -> None:
    result = twill("check", toy_file)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("legal: toy on toy\n")
    assert "I = 2 cycles" in result.out
    assert json.loads(twill("check", toy_file, "--json").out) == {"legal": True, "hash_verified": True, "findings": []}


def test_every_finding_is_told(twill: Twill, toy_file: Path) -> None:
    data = json.loads(toy_file.read_text())
    data["ops"][2]["start_cycle"] = 2
    toy_file.write_text(json.dumps(data))
    assert twill("check", toy_file).code == 2
    result = twill("check", toy_file, "--ignore-hash")
    assert (result.code, result.err) == (1, "")
    assert "dependence: " in result.out
    assert "capacity: " in result.out
    report = json.loads(twill("check", toy_file, "--ignore-hash", "--json").out)
    assert report["legal"] is False
    assert {"dependence", "capacity"} <= {f["rule"] for f in report["findings"]}
    assert all(f["message"] in result.out for f in report["findings"])


def test_another_machine(twill: Twill, toy_file: Path) -> None:
    result = twill("check", toy_file, "--machine", "h200")
    assert result.code == 1
    assert "costed for 'toy', not for 'h200'" in result.out


def test_unverified_hash_is_said(twill: Twill, toy_file: Path) -> None:
    assert "its hash was not verified" in twill("check", toy_file, "--ignore-hash").out


def test_show_of_a_schedule_that_contradicts_itself(twill: Twill, toy_schedule: Schedule, tmp_path: Path) -> None:
    group = toy_schedule.groups[0]
    path = tmp_path / "odd.json"
    for ops in ((), ("Z",)):
        odd = toy_schedule.model_copy(update={"groups": (group.model_copy(update={"ops": ops}),)})
        path.write_text(with_hash(odd).to_json())
        result = twill("show", path)
        assert (result.code, result.out) == (2, "")
        assert "does not fit its own graph" in result.err
        assert "twill check" in result.err
        assert twill("check", path).code == 1
