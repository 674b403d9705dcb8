"""``python -m tests.gpu`` with a child of paper: what it asks, prints, records and ends with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import __main__ as entry
from tests.gpu import regenerated, sanitizer
from tests.gpu.cases import HEAD_DIMS, PAIRS
from tests.gpu.gradient_cases import head_dims as gradient_dims
from twill.bench.watchdog import Failed

FAILING = (len(HEAD_DIMS) + len(regenerated.HEAD_DIMS) + len(gradient_dims())) * 2 * 2
REPEATED = (len(HEAD_DIMS) + len(gradient_dims())) * 2


class PaperChild:
    """Fails a case of 65 by 300, and says that d 96 used most of a rule."""

    asked: list[str] = []  # noqa: RUF012
    ended = 0

    def __init__(self, module: str, prefix: Any = (), environment: Any = None) -> None:
        self.output = "ERROR SUMMARY: 0 errors"

    def ask(self, name: str, question: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        self.asked.append(name)
        if (question["seqlen_q"], question["seqlen_k"]) == (65, 300):
            raise Failed(f"{name}: wrong")
        return {"flash": 0.9 if question["head_dim"] == 96 else 0.1, "element": 0.2}

    def close(self) -> int:
        type(self).ended += 1
        return 0


@pytest.fixture(autouse=True)
def _paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "Child", PaperChild)
    monkeypatch.setattr(sanitizer, "Child", PaperChild)
    monkeypatch.setattr(sanitizer.shutil, "which", lambda name: name)
    PaperChild.asked, PaperChild.ended = [], 0


def test_all_cases_and_both_tools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.json"
    assert entry.main(["--json", str(out)]) == 1
    said = capsys.readouterr().out
    failures = [line for line in said.splitlines() if line.startswith("FAILED")]
    assert len(failures) == FAILING
    assert "the most of rule flash that was used: 0.900, by values-d96-" in said
    assert "sanitizer-memcheck: clean" in said
    assert "sanitizer-synccheck: clean" in said
    records = json.loads(out.read_text())
    assert sum(bool(r["failure"]) for r in records) == FAILING
    assert f"{len(records) - FAILING} passed, {FAILING} failed, 0 not asked" in said
    assert PaperChild.ended == 5


def test_a_tool_that_found_something(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(PaperChild, "close", lambda self: 86)
    assert entry.main(["--only", "sanitizer"]) == 1
    assert "FAILED sanitizer-memcheck: exit code 86" in capsys.readouterr().out


def test_a_tool_that_is_silent_is_not_clean(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As when it could not attach to the process: exit code 0, and no summary."""

    class Silent(PaperChild):
        def __init__(self, *given: Any) -> None:
            self.output = ""

    monkeypatch.setattr(sanitizer, "Child", Silent)
    assert entry.main(["--only", "sanitizer"]) == 1
    assert "FAILED sanitizer-synccheck: exit code 0" in capsys.readouterr().out


def test_without_the_tool(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sanitizer.shutil, "which", lambda name: None)
    assert entry.main(["--only", "sanitizer"]) == 1
    assert "FAILED compute-sanitizer is not installed" in capsys.readouterr().out
    assert entry.main(["--only", "repeats", "--no-sanitizer"]) == 0


def test_out_of_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["--only", "repeats", "--budget", "-1", "--no-sanitizer"]) == 1
    assert f"0 passed, 0 failed, {REPEATED} not asked for want of time" in capsys.readouterr().out
    assert not PaperChild.asked


def test_a_kernel_file(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(__file__).parents[2] / "kernels" / "sm90_attn_fwd_d64.py"
    assert entry.main(["--kernel", str(file), "--only", "d64-bf16-causal-"]) == 1
    short = [p for p in PAIRS if max(p) <= 2048]
    assert len(PaperChild.asked) == len(short) + 3 + 1
    assert all("-d64-bf16-causal-" in name for name in PaperChild.asked)


def test_what_was_found_is_kept_case_by_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is ended from outside leaves what it had found."""
    out = tmp_path / "found.json"

    def ask(self: PaperChild, name: str, question: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        if PaperChild.asked:
            raise KeyboardInterrupt
        PaperChild.asked.append(name)
        return {}

    monkeypatch.setattr(PaperChild, "ask", ask)
    with pytest.raises(KeyboardInterrupt):
        entry.main(["--json", str(out), "--only", "repeats"])
    assert [r["case"] for r in json.loads(out.read_text())] == PaperChild.asked
