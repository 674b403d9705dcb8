"""``twill lower``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from twill.cli.app import run
from twill.lower import Wait, listing

from .conftest import shipped

NAME = "sm90_attn_fwd_d128"


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lower", NAME]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (listing(shipped(NAME)[1]), "")


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lower", NAME, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schedule_hash"] == shipped(NAME)[0].hash
    load = data["roles"][0]
    assert (load["name"], load["warps"]) == ("load", 1)
    assert load["body"][0] == {"instruction": "Wait", "barrier": "K_empty", "stage": 0, "distance": 3}
    assert data["barriers"][0]["tx_bytes"] == 80 * 128 * 2


def test_program_that_races_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without its first wait for K_full the program is not printed."""
    _, program = shipped(NAME)
    name, role = next((r.name, r) for r in program.roles if r.name.startswith("softmax"))
    wait = next(x for x in role.body if isinstance(x, Wait) and x.barrier == "K_full")
    broken = replace(role, body=tuple(x for x in role.body if x is not wait))
    roles = tuple(broken if r.name == name else r for r in program.roles)
    monkeypatch.setattr("twill.lower.lower", lambda _: replace(program, roles=roles))
    assert run(["lower", NAME]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "is refused" in err
    assert f"role {name}" in err


def test_illegal_schedule_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lower", "no_such"]) == 2
    path = tmp_path / "x.json"
    path.write_text(shipped(NAME)[0].to_json())
    assert run(["lower", str(path), "--machine", "b200"]) == 1
    assert "refused" in capsys.readouterr().err
