"""``twill explain``."""

from __future__ import annotations

import json
from pathlib import Path

from .conftest import Twill


def test_lower_bound(twill: Twill, toy_file: Path) -> None:
    words = "I = 2 equals the resource bound: tensor is busy that long in every iteration\n"
    for target in ("toy", toy_file):
        result = twill("explain", target)
        assert (result.code, result.out, result.err) == (0, words, "")


def test_refutation_names_a_minimal_core(twill: Twill, tmp_path: Path) -> None:
    path = tmp_path / "fwd.json"
    assert twill("solve", "--arch", "sm100", "attn_fwd", "--head-dim", "128", "-o", path).code == 0
    schedule = json.loads(path.read_text())
    assert schedule["proof"]["ii"]["by"] == "refutation"
    from_file = twill("explain", path)
    assert from_file.code == 0
    assert f"no schedule with I = {schedule['ii_cycles'] - 1} exists" in from_file.out
    assert "memory: live buffers fit their memory" in from_file.out
    assert from_file.out.startswith("I = 2839 cycles. Bottleneck: no unit alone")
    assert "Predicted: 1623 TFLOP/s, 72.1% of the matrix peak" in from_file.out
    again = twill("explain", "--arch", "sm100", "attn_fwd", "--head-dim", "128")
    assert again.out == from_file.out


def test_another_interval(twill: Twill, toy_file: Path) -> None:
    assert "no schedule with I = 1 exists" in twill("explain", toy_file, "--ii", "1").out
    assert "a schedule with I = 3 exists" in twill("explain", "toy", "--ii", "3").out


def test_infeasible(twill: Twill) -> None:
    result = twill("explain", "--arch", "sm100", "attn_fwd", "--registers", "64")
    assert result.code == 1
    assert "register-limit: " in result.out


def test_illegal_schedule_is_not_explained(twill: Twill, toy_file: Path) -> None:
    data = json.loads(toy_file.read_text())
    data["machine"]["hash"] = "0" * 64
    data.pop("hash")
    from twill.model.schedule import Schedule, with_hash

    toy_file.write_text(with_hash(Schedule.model_validate(data)).to_json())
    result = twill("explain", toy_file)
    assert (result.code, result.out) == (1, "")
    assert "machine.hash" in result.err
