"""The shipped schedules, and the one command that makes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from twill.schedules import load, names

from twill.check import check_schedule
from twill.errors import UsageError
from twill.model.machine import load_machine
from twill.model.schedule import Schedule
from twill.regenerate import CASES, Case, main

from .conftest import Twill

FEW = (Case("sm100", "attn_fwd", 128), Case("sm100", "attn_fwd", 192, 128))


def test_names_of_the_cases() -> None:
    of = {case.name for case in CASES}
    assert len(of) == len(CASES) == 26
    assert {"sm100_attn_fwd_d128", "sm90_attn_bwd_d192_dv128", "sm103_attn_fwd_d256", "sm90_attn_bwd_d128_q64"} <= of
    assert "sm103_attn_bwd_d128" not in of


@pytest.mark.parametrize("name", names())
def test_shipped_schedules_are_legal(name: str) -> None:
    schedule = load(name)
    assert schedule.status == "optimal"
    assert check_schedule(schedule, load_machine(schedule.machine.name)).ok


def test_no_such_schedule() -> None:
    with pytest.raises(UsageError, match="no shipped schedule 'sm1_nothing'"):
        load("sm1_nothing")


def test_regenerate_and_check(twill: Twill, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "stale.json").write_text("{}")
    assert main([], folder=tmp_path, cases=FEW) == 0
    files = sorted(tmp_path.iterdir())
    assert [p.name for p in files] == ["sm100_attn_fwd_d128.json", "sm100_attn_fwd_d192_dv128.json"]
    for path in files:
        schedule = Schedule.model_validate_json(path.read_text())
        capsys.readouterr()
        # the command in the file makes the file
        assert twill(*schedule.provenance.command.split()[1:], "--json").out == path.read_text()

    files[0].write_text(files[0].read_text() + " ")
    files[1].unlink()
    (tmp_path / "extra.json").write_text("{}")
    capsys.readouterr()
    assert main(["--check"], folder=tmp_path, cases=FEW) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("differs: ")] == [
        "differs: extra.json", "differs: sm100_attn_fwd_d128.json", "differs: sm100_attn_fwd_d192_dv128.json",
    ]  # fmt: skip


def test_a_case_without_proof_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = tmp_path / "sm90_attn_bwd_d64.json"
    old.write_text("old")
    assert main(["--timeout", "0.02"], folder=tmp_path, cases=(Case("sm90", "attn_bwd", 64),)) == 1
    assert "failed, and left as they were: sm90_attn_bwd_d64" in capsys.readouterr().out
    assert old.read_text() == "old"
