"""The benchmark of a call's steps, with a kernel of paper: every step is one that the call takes."""

from __future__ import annotations

import pytest
import torch

from benchmarks.call_cost import BURST, BURSTS, main, microseconds, steps
from tests.pytorch.conftest import PaperGpu
from twill.pytorch import counters, target


def test_every_step_runs(gpu: PaperGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_new", lambda device: torch.zeros(1, dtype=torch.int32))
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)
    monkeypatch.setattr(target, "current_device", lambda: 0)
    q = torch.randn(1, 4, 2, 64).to(torch.bfloat16)
    launched = {}
    for name, step in steps(q, q, q).items():
        before = len(gpu.calls)
        step()
        launched[name] = len(gpu.calls) - before
    assert {name for name, count in launched.items() if count} == {
        "twill.attention", "twill.attention with the log-sum-exp", "the operator", "host function and launch",
    }  # fmt: skip
    assert set(launched.values()) == {0, 1}


def test_the_median_of_bursts_each_from_idle() -> None:
    counts = {"step": 0, "idle": 0}

    def count(what: str) -> None:
        counts[what] += 1

    median, least = microseconds(lambda: count("step"), lambda: count("idle"))
    assert counts == {"step": BURST * BURSTS, "idle": BURSTS}
    assert 0 < least <= median


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert main([]) == 1
    assert "no CUDA device" in capsys.readouterr().err
