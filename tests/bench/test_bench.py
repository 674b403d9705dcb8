"""``python -m twill.bench`` without a GPU: what is asked, what is left out after failures, what the report says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the bench verifies with PyTorch")

import twill
from twill.bench import __main__ as command
from twill.bench import child, run
from twill.bench.cases import Variant, cases, variants
from twill.bench.report import markdown, wrong
from twill.bench.rows import ROWS
from twill.bench.run import Refused, Wanted, measure
from twill.bench.watchdog import Failed

ABOUT = {"device": "a B200", "capability": "10.0", "arch": "sm100", "sm_count": 148, "versions": {"torch": "2"}}
LOADED = {"kernel": "sm100_attn_fwd_d128", "schedule": "0123456789abcdef", "rows": 256, "keys": 128, "interval": 2839}


class Paper:
    """Answers in place of the child; ``failing`` says which questions fail."""

    def __init__(self, failing: Callable[[str], bool] = lambda _: False, about: dict[str, Any] = ABOUT) -> None:
        self.failing, self.device, self.asked = failing, about, list[str]()

    def ask(self, name: str, question: dict[str, object], timeout_s: float) -> dict[str, Any]:
        self.asked.append(f"{question['do']} {name}")
        assert json.loads(json.dumps(question)) == question
        assert 0 < timeout_s <= 600
        if question["do"] == "about":
            return dict(self.device)
        if self.failing(self.asked[-1]):
            raise Failed(f"{name}: no answer in {timeout_s:.0f} s; the child was killed")
        if question["do"] == "load":
            return dict(LOADED)
        if question["do"] == "verify":
            return {"flash": 0.5, "element": 0.25 + 0.5 * ("1023x1024" in name), "lse": 0.1}
        names = question["contenders"]
        assert isinstance(names, list)
        return {"ms": {n: [1.0 if n == "twill" else 1.5, 1.1, 1.2] for n in names}, "reasons": {}, "seconds": 1.0}


def _measured(paper: Paper, **more: Any) -> dict[str, Any]:
    wanted = {"arch": "sm100", "only": "", "contenders": ("twill", "FA4"), "budget_s": 1e6, "rounds": 3, "burst_ms": 1.0, "quick": True}
    kept: list[str] = []
    record = measure(Wanted(**{**wanted, **more}), paper, lambda r: kept.append(markdown(r)), lambda _: None)
    assert len(kept) == len(record["kernels"]) + len(record["rows"])
    return record


def test_everything_is_asked_once() -> None:
    paper = Paper()
    record = _measured(paper, quick=False)
    assert len(set(paper.asked)) == len(paper.asked)
    assert len(record["kernels"]) == 20
    assert all(k["passed"] == 30 and not k["failures"] for k in record["kernels"])
    assert [r["row"] for r in record["rows"]] == [r.as_dict() for r in ROWS]
    assert wrong(record) == 0
    text = markdown(record)
    assert "600 shapes of 20 kernels right; none wrong." in text
    assert "1.091 (geometric mean)" in text
    assert "| d128-bf16 | sm100_attn_fwd_d128 (0123456789ab, I = 2839) | 30 | 0 | 0 | 0.50 | 0.75 | 0.10 |" in text


def test_a_kernel_that_hangs_is_left_alone_and_not_timed() -> None:
    paper = Paper(lambda asked: asked.startswith("verify d64-bf16-causal"))
    record = _measured(paper)
    (bad,) = [k for k in record["kernels"] if k["failures"]]
    assert (bad["name"], bad["passed"], len(bad["failures"])) == ("d64-bf16-causal", 0, run.PATIENCE)
    assert bad["skipped"] == len(list(cases(Variant(64, 64, "bf16", True), quick=True))) - run.PATIENCE
    row = next(r for r in record["rows"] if r["row"]["head_dim"] == 64 and r["row"]["causal"])
    assert set(row["ms"]) == {"FA4"}
    assert wrong(record) == 1
    text = markdown(record)
    assert "wrong: d64-bf16-causal." in text
    assert "no answer in 60 s; the child was killed" in text
    assert "twill: its kernel was not found right (1 rows" in text


def test_a_kernel_that_cannot_be_loaded_and_a_row_that_fails() -> None:
    paper = Paper(lambda asked: asked.startswith(("load d96-fp16", "time d256")))
    record = _measured(paper)
    bad = {k["name"]: k for k in record["kernels"] if k["failures"]}
    assert set(bad) == {"d96-fp16", "d96-fp16-causal"}
    assert all(not k["loaded"] and k["passed"] == 0 for k in bad.values())
    assert sum(bool(r["failure"]) for r in record["rows"]) == 2
    assert wrong(record) == 4
    assert "| d96-fp16 | not loaded | 0 | 1 |" in markdown(record)


def test_time_that_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(10**6))
    monkeypatch.setattr(run.time, "monotonic", lambda: float(next(now)))
    record = _measured(Paper(), budget_s=60.0)
    assert 0 < len(record["kernels"]) < 20
    assert 0 < len(record["rows"]) < len(ROWS)
    assert len(record["left"]) == 20 - len(record["kernels"]) + len(ROWS) - len(record["rows"])
    assert "No time was left for: verify " in markdown(record)


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"device": None, "versions": {}}, "PyTorch sees no CUDA device"),
        ({**ABOUT, "device": "an H200", "capability": "9.0", "arch": "sm90"}, "run it with --arch sm90"),
        ({**ABOUT, "device": "a T4", "capability": "7.5", "arch": None}, "there are kernels for compute capabilities 9.0"),
    ],
)
def test_another_machine_is_refused(about: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=message):
        _measured(Paper(about=about))


def test_part_of_the_model() -> None:
    """At the I of the schedule and the highest clock it is all of it."""
    record = _measured(Paper(), only="^d128-bf16$")
    seconds = 1e-3
    for entry in record["rows"]:
        row = next(r for r in ROWS if r.as_dict() == entry["row"])
        flop_a_cycle = 2 * 256 * 128 * 256 / 2839 * 148
        clock = row.flops / seconds / flop_a_cycle / 1e6
        entry["ms"] = {"twill": [1.0]}
        record["before"]["clocks.max.sm"] = f"{round(clock)} MHz"
        one = {**record, "rows": [entry]}
        assert "| 100% |" in markdown(one)


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    papers = iter([Paper(), Paper(lambda asked: asked.startswith("verify")), Paper(about={"device": None})])
    monkeypatch.setattr(command, "Child", lambda _: next(papers))
    monkeypatch.setattr(Paper, "close", lambda _: None, raising=False)
    given = ["--arch", "sm100", "-o", str(tmp_path / "found"), "--only", "d96-bf16", "--quick"]
    assert [command.main(given) for _ in range(3)] == [0, 1, 2]
    assert "next step: run this on a machine with a GPU" in capsys.readouterr().err
    record = json.loads((tmp_path / "found" / "report.json").read_text())
    assert (tmp_path / "found" / "report.md").read_text() == markdown(record)


def _reference(q: Any, k: Any, v: Any, *, causal: bool, return_lse: bool = False) -> Any:
    from twill.bench.reference import exact

    found = exact(q, k, v, q.shape[3] ** -0.5, causal)
    return (found.o.to(q.dtype), found.lse.float()) if return_lse else found.o.to(q.dtype)


def test_what_the_child_says_of_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "DEVICE", "cpu")
    monkeypatch.setattr(twill, "attention", _reference, raising=False)
    for variant in (Variant(64, 64, "bf16", True), Variant(192, 128, "fp16", False)):
        for case in [c for c in cases(variant, quick=True) if max(c.seqlen_q, c.seqlen_k) < 400]:
            used = child.answer({"do": "verify", **case.as_dict()})
            assert set(used) == {"flash", "element", "lse"}
    calls = iter(range(100))

    def unsteady(*given: Any, **more: Any) -> Any:
        found = _reference(*given, **more)
        return found + 0.25 * (next(calls) == 1) if not more.get("return_lse") else found

    def one_wrong(*given: Any, **more: Any) -> Any:
        o, lse = _reference(*given, **more)
        o.view(-1)[7] += 1
        return o, lse

    case = next(c for c in cases(Variant(64, 64, "bf16", False), quick=True) if c.seqlen_q == 65)
    monkeypatch.setattr(twill, "attention", one_wrong, raising=False)
    with pytest.raises(AssertionError, match="this many times what is allowed"):
        child.answer({"do": "verify", **case.as_dict()})
    monkeypatch.setattr(twill, "attention", unsteady, raising=False)
    with pytest.raises(AssertionError, match="1 of 3 runs gave other bits"):
        child.answer({"do": "verify", **case.as_dict(), "repeats": 3})


def test_names_are_unique() -> None:
    every = [c.name for v in variants() for c in cases(v)]
    assert len(set(every)) == len(every)
