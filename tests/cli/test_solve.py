"""``twill solve``: what it prints, writes and returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from twill import check as check_package
from twill.check import CheckReport, Finding
from twill.errors import SolverError
from twill.model import machines as machines_package
from twill.model.schedule import parse_schedule
from twill.solver import crosscheck as crosscheck_package
from twill.solver import solve as solve_module
from twill.solver.crosscheck import CrosscheckReport
from twill.solver.solve import Outcome

from .conftest import Spawn, Twill

SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"
FWD = ("solve", "--arch", "sm100", "attn_fwd", "--head-dim", "128")


def test_summary(twill: Twill) -> None:
    result = twill(*FWD)
    assert result.code == 0
    assert result.err == ""
    schedule = parse_schedule(twill(*FWD, "--json").out, "stdout")
    ii, length = schedule.ii_cycles, schedule.length_cycles
    assert f"I = {ii} cycles, proved: {ii - 1} is impossible" in result.out
    assert f"L = {length} cycles, proved: {length - 1} is impossible" in result.out
    assert "exact to the cycle" in result.out
    assert "proved best" in result.out
    for group in schedule.groups:
        assert any(line.split()[:3] == [group.name, str(group.warps), str(group.registers_per_thread)] for line in result.out.splitlines())
    for buffer in schedule.buffers:
        assert any(line.split()[:2] == [buffer.memory, buffer.name] for line in result.out.splitlines())
    assert max(map(len, result.out.splitlines())) <= 100
    assert "\x1b" not in result.out


def test_resource_bound_in_words(twill: Twill) -> None:
    result = twill("solve", "toy")
    assert "I = 2 cycles, proved: equals the resource bound (tensor)" in result.out
    assert "L = 4 cycles, proved: 3 is impossible; 2 iterations in flight" in result.out


def test_json_follows_the_schema(twill: Twill) -> None:
    result = twill(*FWD, "--json")
    assert (result.code, result.err) == (0, "")
    data = json.loads(result.out)
    jsonschema.validate(data, json.loads((SCHEMAS / "schedule.json").read_text()))
    assert data["provenance"]["command"] == "twill solve --arch sm100 attn_fwd --head-dim 128"


def test_same_bytes_again(spawn: Spawn, tmp_path: Path) -> None:
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    runs = [
        spawn("solve", "attn_fwd", "--head-dim", "128", "--without", "placement", "--without", "blocking", "--machine", "b200", "-o", first,
              PYTHONHASHSEED="1"),
        spawn("solve", "--without", "blocking", "--without", "placement", "--arch", "sm100", "--timeout", "99", "attn_fwd", "--head-dim",
              "128", "-o", second, PYTHONHASHSEED="2"),
    ]  # fmt: skip
    for process in runs:
        assert process.wait(timeout=60) == 0
    assert first.read_bytes() == second.read_bytes()
    command = parse_schedule(first.read_text(), "1.json").provenance.command
    assert command == "twill solve --arch sm100 attn_fwd --head-dim 128 --without blocking --without placement"


def test_recorded_command_makes_the_same_file(twill: Twill, tmp_path: Path) -> None:
    arguments = ("gemm", "--machine", "h100", "--set", "k=64", "--tile", "128x128", "--seed", "7", "--max-copies", "4", "--groups", "4")
    first = twill("solve", *arguments, "--json")
    command = json.loads(first.out)["provenance"]["command"]
    assert command == "twill solve --machine h100 gemm --tile 128x128 --set k=64 --groups 4 --max-copies 4 --seed 7"
    assert twill(*command.split()[1:], "--json").out == first.out


def test_graph_from_a_file(twill: Twill, tmp_path: Path, toy_graph: dict[str, Any]) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(toy_graph))
    result = twill("solve", path, "--json")
    assert result.code == 0
    data = json.loads(result.out)
    assert (data["ii_cycles"], data["length_cycles"]) == (2, 4)
    assert data["provenance"]["command"] == f"twill solve {path}"


def test_machine_from_a_file(twill: Twill, tmp_path: Path) -> None:
    text = (Path(str(machines_package.__file__)).parent / "h200.toml").read_text().replace('name = "h200"', 'name = "h200_mine"')
    path = tmp_path / "mine.toml"
    path.write_text(text)
    out = tmp_path / "out.json"
    assert twill("solve", "gemm", "--machine", path, "-o", out).code == 0
    refused = twill("check", out)
    assert refused.code == 2
    assert "'h200_mine', which does not ship" in refused.err
    assert twill("check", out, "--machine", path).code == 0


def test_output_file(twill: Twill, tmp_path: Path) -> None:
    path = tmp_path / "toy.json"
    path.write_text("old")
    result = twill("solve", "toy", "-o", path)
    assert result.code == 0
    assert f"written to {path}" in result.out
    assert parse_schedule(path.read_text(), "toy.json").ii_cycles == 2
    assert list(tmp_path.iterdir()) == [path]


def test_fewer_schedules_than_asked_for(twill: Twill) -> None:
    result = twill("solve", "gemm", "--arch", "sm90", "--top", "100")
    assert result.code == 0
    count = result.out.count(", by rank")
    assert 1 <= count < 100
    assert f"schedule {count} of {count}, by rank" in result.out
    assert "there are no more schedules of this I and L: 100 were asked for" in result.out


def test_several_schedules(twill: Twill, tmp_path: Path) -> None:
    result = twill("solve", "linear_attn", "--arch", "sm90", "--top", "3", "-o", tmp_path / "best.json")
    assert result.code == 0
    files = sorted(p.name for p in tmp_path.iterdir())
    assert files == ["best.2.json", "best.3.json", "best.json"]
    found = [parse_schedule((tmp_path / name).read_text(), name) for name in ("best.json", "best.2.json", "best.3.json")]
    assert len({s.hash for s in found}) == 3
    assert len({(s.ii_cycles, s.length_cycles) for s in found}) == 1
    assert "schedule 3 of 3" in result.out
    as_json = twill("solve", "linear_attn", "--arch", "sm90", "--top", "3", "--json")
    assert [s["hash"] for s in json.loads(as_json.out)] == [s.hash for s in found]


def test_a_failed_write_leaves_the_old_file(twill: Twill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "toy.json"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    result = twill("solve", "toy", "-o", path)
    assert result.code == 2
    assert "No space left on device" in result.err
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_registers_too_few(twill: Twill, tmp_path: Path) -> None:
    arguments = ("solve", "--arch", "sm100", "attn_fwd", "--registers", "64", "-o", tmp_path / "out.json")
    result = twill(*arguments)
    assert result.code == 1
    assert "infeasible" in result.out
    assert "register-limit: " in result.out
    assert "next step: raise --registers" in result.out
    assert list(tmp_path.iterdir()) == []
    data = json.loads(twill(*arguments, "--json").out)
    assert data["status"] == "infeasible"
    assert data["core"]["rules"] == ["register-limit"]
    assert data["reason"][0].startswith("register-limit: ")
    assert set(data["lower_bounds_cycles"]) == {"resource", "recurrence", "memory", "issue"}


def test_tile_that_cannot_fit(twill: Twill, tmp_path: Path) -> None:
    result = twill("solve", "--arch", "sm100", "attn_fwd", "--tile", "512x512", "-o", tmp_path / "out.json")
    assert result.code == 1
    assert "infeasible" in result.out
    assert any(rule in result.out for rule in ("memory: ", "register-file: ", "register-limit: "))
    assert "next step: " in result.out
    assert list(tmp_path.iterdir()) == []


def test_interval_limit(twill: Twill) -> None:
    result = twill("solve", "toy", "--max-ii", "1")
    assert result.code == 1
    assert "There is no schedule with I up to 1 cycles." in result.out
    assert "tensor" in result.out
    assert "next step: raise --max-ii 1" in result.out


def test_no_time(twill: Twill, tmp_path: Path) -> None:
    result = twill("solve", "--arch", "sm90", "attn_bwd", "--timeout", "0.05", "-o", tmp_path / "out.json")
    assert result.code in (0, 3)
    assert "infeasible" not in result.out
    if result.code == 3:
        assert "not known" in result.out
        assert "I >= " in result.out
        assert "--timeout" in result.out
        assert list(tmp_path.iterdir()) == []


def test_not_known(twill: Twill, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Outcome("unknown", (), {"resource": 2}, {}, 2, 0.0, 1)
    monkeypatch.setattr(solve_module, "solve", lambda *_, **__: outcome)
    result = twill("solve", "toy")
    assert result.code == 3
    assert "neither a schedule nor a proof" in result.out
    assert "I >= 2 is proved" in result.out
    data = json.loads(twill("solve", "toy", "--json").out)
    assert (data["status"], data["core"], data["ii_floor_cycles"]) == ("unknown", None, 2)


def test_infeasible_without_time_for_reasons(twill: Twill, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Outcome("infeasible", (), {"resource": 2}, {}, 2, 0.0, 1, core=None)
    monkeypatch.setattr(solve_module, "solve", lambda *_, **__: outcome)
    result = twill("solve", "toy")
    assert result.code == 1
    assert "longer --timeout" in result.out


def test_solver_died(twill: Twill, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: object, **__: object) -> None:
        raise SolverError("the solver process ended unexpectedly", "run the command again")

    monkeypatch.setattr(solve_module, "solve", dies)
    result = twill("solve", "toy")
    assert (result.code, result.out) == (3, "")
    assert "ended unexpectedly" in result.err


def test_interrupted(twill: Twill, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(solve_module, "solve", interrupted)
    result = twill("solve", "toy", "-o", tmp_path / "out.json")
    assert (result.code, result.out) == (130, "")
    assert "interrupted; nothing was written" in result.err
    assert list(tmp_path.iterdir()) == []


def test_the_checker_has_the_last_word(twill: Twill, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = CheckReport((Finding("capacity", "S", 0, "capacity: S at cycle 0: too much"),))
    monkeypatch.setattr(check_package, "check_schedule", lambda *_: report)
    result = twill("solve", "toy", "-o", tmp_path / "out.json")
    assert (result.code, result.out) == (1, "")
    assert "internal error" in result.err
    assert "capacity: S at cycle 0: too much" in result.err
    assert "twill solve toy" in result.err
    assert list(tmp_path.iterdir()) == []


def test_crosscheck(twill: Twill) -> None:
    pytest.importorskip("ortools")
    result = twill("solve", "toy", "--crosscheck", "--json")
    assert result.code == 0
    assert json.loads(result.out)["ii_cycles"] == 2
    assert "crosscheck: CP-SAT accepts the schedule" in result.err
    assert "I = 1: impossible" in result.err
    assert "L = 3 at I = 2: impossible" in result.err
    assert "confirmed" in result.err


def test_crosscheck_contradicts(twill: Twill, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ortools")
    report = CrosscheckReport(accepted=True, ii_feasible=True, smaller_ii="found", length=None, seconds=0.1)
    monkeypatch.setattr(crosscheck_package, "crosscheck", lambda *_, **__: report)
    result = twill("solve", "toy", "--crosscheck")
    assert result.code == 1
    assert "I = 1: FOUND a schedule" in result.err
    assert "CONTRADICTED" in result.err
