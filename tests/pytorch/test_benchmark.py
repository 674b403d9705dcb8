"""The benchmark without a GPU: what is counted, how turns are taken, what is reported."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import attention
from benchmarks.attention import NAMES_OF, PAGE, PARTS, main, report
from benchmarks.attention_cycles import parse
from benchmarks.markers import put
from twill.bench.contenders import BACKWARD, CONTENDERS, PEERS, TWILL, backward_of
from twill.bench.figures import geometric_mean
from twill.bench.rows import BACKWARD_ROWS, ROWS, Row
from twill.bench.timing import agreeing, gradient, loaded, operands, times
from twill.bench.watchdog import Failed


def test_every_row_once() -> None:
    assert len({r.name for r in ROWS}) == len(ROWS) == 22
    assert {r.batch * r.seqlen for r in ROWS if r.dtype == "bf16"} == {32768}
    assert {(r.head_dim, r.head_dim_v): r.heads for r in ROWS if r.dtype == "bf16"} == {
        (128, 128): 16, (64, 64): 32, (96, 96): 16, (192, 128): 16, (256, 256): 8,
    }  # fmt: skip


def test_rows_of_the_backward() -> None:
    names = {r.name for r in BACKWARD_ROWS}
    assert len(names) == len(BACKWARD_ROWS) == 34
    assert not names & {r.name for r in ROWS}
    assert {(r.head_dim, r.seqlen, r.causal) for r in BACKWARD_ROWS if r.head_dim <= 128} == {
        (d, s, c) for d in (64, 96, 128) for s in (1024, 2048, 4096, 8192, 16384) for c in (False, True)
    }
    assert Row(128, 128, 8192, False, 4, 16, gradients=True).flops == 2.5 * Row(128, 128, 8192, False, 4, 16).flops
    assert Row(192, 128, 8192, True, 4, 16, gradients=True).flops == 4 * 16 * 8192 * 4096 * 2 * (3 * 192 + 2 * 128)


def test_work_by_hand() -> None:
    """A known figure: d 128, S 8192, batch 4, 16 heads is 2.2 TFLOP, half of it with a mask."""
    row = Row(128, 128, 8192, False, 4, 16)
    assert row.flops == 4 * 16 * 8192 * 8192 * 128 * 4
    assert Row(128, 128, 8192, True, 4, 16).flops == row.flops / 2
    assert Row(192, 128, 8192, False, 4, 16).flops == row.flops * 320 / 256


def test_scaled_cycles_by_hand() -> None:
    """132 blocks of 128 queries and 128 keys on 132 SMs keep the tensor cores busy for 2048 cycles."""
    row = Row(128, 128, 128, False, 132, 1)
    assert row.scaled_cycles(2048, 132) == 2048
    assert row.scaled_cycles(3000, 132) == 3000


class FakeClock:
    """Milliseconds that grow with every burst, and who was timed for how many calls."""

    def __init__(self) -> None:
        self.bursts: list[tuple[str, int]] = []

    def burst(self, call: Any, given: Any, causal: bool, calls: int) -> float:
        self.bursts.append((call, calls))
        return {"a": 1.0, "b": 4.0, "c": 0.5}[call]


def test_contenders_take_turns() -> None:
    clock = FakeClock()
    found = times({n: n for n in "abc"}, (), False, rounds=40, burst_ms=40, clock=clock)  # type: ignore[misc, arg-type]
    assert {name: len(ms) for name, ms in found.items()} == {"a": 40, "b": 40, "c": 40}
    turns = clock.bursts[3:]
    assert len(turns) == 2 * 3 * 40
    # each burst is warmed by its own kernel, and both have a length in time, not in calls
    assert all(warm[0] == timed[0] for warm, timed in zip(turns[::2], turns[1::2], strict=True))
    assert {(name, calls) for name, calls in turns[1::2]} == {("a", 40), ("b", 10), ("c", 80)}
    orders = Counter(tuple(name for name, _ in turns[1::2][n : n + 3]) for n in range(0, 120, 3))
    assert len(orders) == 6, "an order never came"
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)


def test_one_that_computes_something_else_is_left_out() -> None:
    right = torch.randn(64, generator=torch.Generator().manual_seed(1))
    outputs = {"a": right, "b": right + 0.001, "c": right * 1.5, "d": right}
    assert set(agreeing(outputs)) == {"c"}
    assert set(agreeing({**outputs, "c": torch.full_like(right, torch.nan)})) == {"c"}
    assert not agreeing({"a": right})
    assert not agreeing({"a": right, "b": right})


def test_wrong_gradients_are_left_out() -> None:
    """Relative to their size, which falls with the number of keys."""
    make = torch.Generator().manual_seed(1)
    right = tuple(1e-3 * torch.randn(64, generator=make) for _ in range(3))
    other = (right[0], right[1] * 1.001, right[2])
    wrong = (right[0], right[1], right[2].flip(0))
    assert set(agreeing({"a": right, "b": other, "c": wrong, "d": right})) == {"c"}
    assert set(agreeing({"a": right, "b": other, "c": (*right[:2], torch.full((64,), torch.nan)), "d": right})) == {"c"}


def _plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    seen = (x.transpose(1, 2) for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(*seen, is_causal=causal).transpose(1, 2)


def test_only_the_backward_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row(64, 64, 8, True, 1, 2, gradients=True)
    given, forwards = operands(row, "cpu"), [0]

    def forward(*operands: Any) -> torch.Tensor:
        forwards[0] += 1
        return _plain(*operands)

    do = gradient(row, "cpu")
    with torch.no_grad():
        call = backward_of(forward, *given, do, True)
        first, second = call(*given, True), call(*given, True)
    assert forwards == [1]
    wide = [x.double().requires_grad_() for x in given]
    for x, y, z in zip(first, second, torch.autograd.grad(_plain(*wide, True), wide, do.double()), strict=True):
        assert torch.equal(x, y)
        torch.testing.assert_close(x.double(), z, rtol=0, atol=2**-5)


def test_a_contender_without_a_backward_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    from twill.bench import timing

    row = Row(64, 64, 8, True, 1, 2, gradients=True)
    monkeypatch.setattr(timing, "gradient", lambda row: gradient(row, "cpu"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setitem(timing.CONTENDERS, "cuDNN", lambda: _plain)
    monkeypatch.setitem(timing.CONTENDERS, "FA4", lambda: lambda q, k, v, causal: _plain(q, k, v, causal).detach())
    calls, reasons = loaded(["cuDNN", "FA4"], row, operands(row, "cpu"))
    assert (list(calls), list(reasons)) == (["cuDNN"], ["FA4"])
    assert "does not require grad" in reasons["FA4"]


NCU = """==PROF== Connected to process 1
0.001
"ID","Process ID","Process Name","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","1","python","one","sm__cycles_elapsed.max","cycle","1,200"
"1","1","python","two","sm__cycles_elapsed.max","cycle","300"
"2","1","python","one","sm__cycles_elapsed.max","cycle","1,203"
"3","1","python","two","sm__cycles_elapsed.max","cycle","300"
"4","1","python","one","sm__cycles_elapsed.max","cycle","1,197"
"5","1","python","two","sm__cycles_elapsed.max","cycle","300"
"""


def test_cycles_are_those_of_all_kernels_of_a_call() -> None:
    assert parse(NCU) == 1500
    with pytest.raises(ValueError, match="no table"):
        parse("==ERROR== no GPU")
    with pytest.raises(ValueError, match="measured no"):
        parse('"ID","Metric Name","Metric Value"\n')


def _record() -> dict[str, Any]:
    first, second, third = (r.as_dict() for r in ROWS[:3])
    return {
        "date": "2000-01-01", "device": "Paper GPU", "sm_count": 132, "versions": {"torch": "1"}, "rounds": 3,
        "before": {"driver_version": "1.2", "power.limit": "700 W", "clocks.max.sm": "1980 MHz", "temperature.gpu": "40"},
        "after": {"temperature.gpu": "60"},
        "rows": [
            {"row": first, "failure": "", "ms": {"twill": [8.0, 9.0, 10.0], "FA4": [9.9, 9.9, 9.9], "cuDNN": [18.0, 20.0, 22.0]},
             "reasons": {"FA3": "Traceback\nModuleNotFoundError: no fa3"}, "clocks": "1500 MHz",
             "cycles": {"twill": ROWS[0].flops / 4096 / 132}},
            {"row": second, "failure": "", "ms": {"twill": [5.0], "FA4": [4.0]}, "clocks": "1400 MHz",
             "reasons": {"FA3": "ModuleNotFoundError: no fa3"}},
            {"row": third, "failure": "no time was left"},
        ],
    }  # fmt: skip


def test_report() -> None:
    text = report(_record())
    flops = ROWS[0].flops
    assert f"| {flops / 9e9:.0f} (22 %) | {flops / 9.9e9:.0f} (0 %) | - | {flops / 20e9:.0f} (20 %) | **1.100** of FA4 |" in text
    assert "**0.800** of FA4" in text
    assert "Geometric mean of the ratios over 2 rows: 0.938; the least is 0.800" in text
    assert "Below 0.98: d128-bf16-s16384-b2h16-causal 0.800." in text
    assert "FA3: ModuleNotFoundError: no fa3 (2 rows, first d128-bf16-s16384-b2h16)" in text
    assert "no time was left (1 rows" in text
    assert "| d128-bf16-s16384-b2h16 | 2048 | - | - | - |" in text
    assert "SM clocks seen after rows: 1400 MHz to 1500 MHz of at most 1980 MHz" in text
    assert "driver 1.2, power limit 700 W" in text


def test_geometric_mean() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)


def test_the_page_has_a_place_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for part in PARTS.values():
        assert put(PAGE.read_text(), part, "x") != PAGE.read_text()
    page, kept = tmp_path / "page.md", tmp_path / "kept.json"
    page.write_text(PAGE.read_text())
    kept.write_text(json.dumps(_record()))
    monkeypatch.setattr(attention, "PAGE", page)
    assert main(["--from", str(kept), "--write"]) == 0
    assert report(_record()) in page.read_text()
    assert report(_record()) in capsys.readouterr().out


def test_the_backward_has_a_place_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = {**_record(), "direction": "backward"}
    for entry, row in zip(record["rows"], BACKWARD_ROWS, strict=False):
        entry["row"] = row.as_dict()
    text = report(record)
    assert "Below 0.97: d128-bf16-s16384-b2h16-causal-backward 0.800." in text
    assert f"| head dim | type | S | mask | batch x heads | {' | '.join(BACKWARD)} | twill to the best peer |" in text
    page, kept = tmp_path / "page.md", tmp_path / "kept.json"
    page.write_text(PAGE.read_text())
    kept.write_text(json.dumps(record))
    monkeypatch.setattr(attention, "PAGE", page)
    assert main(["--from", str(kept), "--write"]) == 0
    assert put(PAGE.read_text(), PARTS["backward"], text) == page.read_text()


def test_measuring_goes_on_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeChild:
        def __init__(self, module: str) -> None:
            pass

        def ask(self, name: str, question: dict[str, Any], timeout_s: float) -> dict[str, Any]:
            if "versions" in question:
                return {"versions": {}, "device": "Paper GPU", "sm_count": 132}
            if "causal" in name:
                raise Failed(f"{name}: no answer in 150 s")
            return {"ms": {n: [1.0, 2.0] for n in question["contenders"]}, "reasons": {}, "seconds": 0.1}

        def close(self) -> None:
            pass

    monkeypatch.setattr(attention, "Child", FakeChild)
    monkeypatch.setattr(attention, "gpu_state", dict)
    kept = tmp_path / "kept.json"
    assert main(["--rows", "d64", "--json", str(kept), "--contenders", "twill", "cuDNN"]) == 0
    rows = json.loads(kept.read_text())["rows"]
    assert [bool(r["failure"]) for r in rows] == [False, True]
    assert set(rows[0]["ms"]) == {"twill", "cuDNN"}
    assert main(["--direction", "backward", "--rows", "d256.*8192-b4h8-b", "--json", str(kept)]) == 0
    (only,) = json.loads(kept.read_text())["rows"]
    assert only["row"]["gradients"] and set(only["ms"]) == set(NAMES_OF["backward"])
    assert main(["--rows", "d64", "--json", str(kept), "--budget", "-1"]) == 0
    assert {r["failure"] for r in json.loads(kept.read_text())["rows"]} == {"no time was left"}


def test_contenders_are_known_by_name() -> None:
    assert list(CONTENDERS) == [TWILL, *PEERS]
    assert set(BACKWARD) <= set(CONTENDERS)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rows", "nothing"]) == 1
    assert "nothing was measured" in capsys.readouterr().err
