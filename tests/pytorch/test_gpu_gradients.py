"""The checks of gradients, run here on the GPU of paper: a right kernel passes, and each kind of wrong one is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.gpu import checks, gradients, sanitizer
from tests.gpu.cases import HOSTILE, LAYOUTS, Case
from tests.gpu.checks import CHECKS
from tests.gpu.gradient_cases import gradient_cases, head_dims
from tests.pytorch.conftest import PaperGpu
from twill.bench.gradients import theirs, truth
from twill.bench.shapes import EMPTY_PAIRS, PAIRS
from twill.pytorch.catalogue import backward_kernels

SMALL = Case("gradients", 96, 96, batch=2, heads=4, kv_heads=2, seqlen_q=70, seqlen_k=90)


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "DEVICE", "cpu")


def test_cases_are_what_they_say() -> None:
    cases = list(gradient_cases())
    assert len({c.name for c in cases}) == len(cases)
    assert {c.check for c in cases} <= set(CHECKS)
    assert all(Case(**json.loads(json.dumps(c.as_dict()))) == c for c in cases)
    assert sum(c.check == "gradients" and not c.detail for c in cases) == len(head_dims()) * 4 * (len(PAIRS) + len(EMPTY_PAIRS))


def test_all_head_dims_that_ship() -> None:
    assert set(head_dims()) == {(k.head_dim, k.head_dim_v) for k in backward_kernels() if k.arch == "sm90"}


def test_both_tools_watch_both_directions() -> None:
    assert {r.name for r in sanitizer.RUNS} == {
        "sanitizer-memcheck", "sanitizer-synccheck", "sanitizer-memcheck-gradients", "sanitizer-synccheck-gradients",
    }  # fmt: skip
    for run in sanitizer.RUNS:
        assert {c.check for c in run.cases()} == {"gradients launch" if run.gradients else "launch"}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(7, 7), (5, 11), (11, 5), (600, 530)])
def test_the_truth_is_what_autograd_makes_of_float64(causal: bool, seqlen_q: int, seqlen_k: int) -> None:
    """The last pair is longer than a slice of rows."""
    case = replace(SMALL, seqlen_q=seqlen_q, seqlen_k=seqlen_k, batch=1, heads=2, kv_heads=1, causal=causal)
    q, k, v, do = (x.double() for x in gradients._operands(case))
    expected = theirs(q, k, v, do, 0.3, causal)
    o = torch.zeros_like(do).bfloat16()
    found = truth(q.bfloat16(), k.bfloat16(), v.bfloat16(), do.bfloat16(), 0.3, causal, o)
    for name, exact in found.exact.items():
        torch.testing.assert_close(exact, expected[name], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("lengths", [(70, 90), (90, 70), (1, 1), (3, 1), (0, 5), (5, 0), (0, 0)], ids=str)
def test_a_right_kernel_passes(gpu: PaperGpu, causal: bool, dtype: str, lengths: tuple[int, int]) -> None:
    found = CHECKS["gradients"](replace(SMALL, causal=causal, dtype=dtype, seqlen_q=lengths[0], seqlen_k=lengths[1]))
    assert all(0 <= float(str(used)) <= 1 for used in found.values())


@pytest.mark.parametrize("detail", HOSTILE)
def test_a_right_kernel_passes_what_is_hostile(gpu: PaperGpu, detail: str) -> None:
    CHECKS["gradients hostile"](replace(SMALL, detail=detail))


@pytest.mark.parametrize("detail", LAYOUTS)
def test_layouts(gpu: PaperGpu, detail: str) -> None:
    CHECKS["gradients layout"](replace(SMALL, kv_heads=4, seqlen_k=70, detail=detail))


@pytest.mark.parametrize("check", ["gradients some", "gradients repeats", "gradients many elements"])
def test_other_checks(gpu: PaperGpu, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "REPEATS", 3)
    CHECKS[check](SMALL)


def _unscaled(dq: Any, dk: Any, dv: Any) -> None:
    dk.mul_(96**0.5)


def _two_percent(dq: Any, dk: Any, dv: Any) -> None:
    dq.mul_(1.02)


def _one_row(dq: Any, dk: Any, dv: Any) -> None:
    dv[:, 17] = 0


def _other_heads(dq: Any, dk: Any, dv: Any) -> None:
    dv.copy_(dv.flip(2))


def _one_head_of_a_group(dq: Any, dk: Any, dv: Any) -> None:
    dk.mul_(0.5)


def _small_ones_lost(dq: Any, dk: Any, dv: Any) -> None:
    dq[dq.abs() < 0.01 * float(dq.abs().max())] = 0


def _not_written(dq: Any, dk: Any, dv: Any) -> None:
    dk[0, 0, 0, 0] = torch.nan


WRONG = (_unscaled, _two_percent, _one_row, _other_heads, _one_head_of_a_group, _small_ones_lost, _not_written)


@pytest.mark.parametrize("harm", WRONG, ids=lambda f: f.__name__.strip("_"))
def test_a_wrong_kernel_is_refused(gpu: PaperGpu, harm: Callable[..., None]) -> None:
    right = gpu.gradients

    def wrong(*given: Any) -> tuple[Any, Any, Any]:
        made = right(*given)
        harm(*made)
        return made

    gpu.gradients = wrong
    with pytest.raises(AssertionError, match=r"times what is allowed|not finite"):
        CHECKS["gradients"](SMALL)


@pytest.mark.parametrize("forgotten", ["the mask", "the sums of O * dO", "the log-sum-exp"])
def test_a_kernel_that_forgets_is_refused(gpu: PaperGpu, forgotten: str) -> None:
    right = gpu.gradients

    def wrong(q: Any, k: Any, v: Any, o: Any, do: Any, lse: Any, scale: float, causal: bool) -> tuple[Any, Any, Any]:
        if forgotten == "the mask":
            return right(q, k, v, o, do, lse, scale, False)
        if forgotten == "the log-sum-exp":
            return right(q, k, v, o, do, lse + 0.05, scale, causal)
        return right(q, k, v, torch.zeros_like(o), do, lse, scale, causal)

    gpu.gradients = wrong
    with pytest.raises(AssertionError, match="times what is allowed"):
        CHECKS["gradients"](replace(SMALL, causal=True))


def test_gradients_that_move_are_refused(gpu: PaperGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    right, calls = gpu.gradients, [0]

    def wrong(*given: Any) -> tuple[Any, Any, Any]:
        calls[0] += 1
        dq, dk, dv = right(*given)
        return dq, dk * (1 + 0.01 * (calls[0] == 3)), dv

    gpu.gradients = wrong
    monkeypatch.setattr(gradients, "REPEATS", 4)
    with pytest.raises(AssertionError, match="dk or dv had other bits in 1 of 4 runs"):
        CHECKS["gradients repeats"](SMALL)
