"""The checks that run on a GPU, run here on the GPU of paper: a right kernel passes, and each kind of wrong one is refused."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.gpu import checks
from tests.gpu.cases import HOSTILE, LAYOUTS, PAIRS, Case, everything, grid, of_kernel
from tests.gpu.checks import CHECKS, operands
from tests.pytorch.conftest import PaperGpu
from tests.pytorch.layouts import COPIED, READ_IN_PLACE
from tests.pytorch.reference import reference
from twill.bench import watchdog
from twill.bench.judge import judge
from twill.bench.reference import exact, same_dtype
from twill.bench.watchdog import Child, Failed

SMALL = Case("values", 64, 64, batch=2, heads=4, kv_heads=2, seqlen_q=70, seqlen_k=90)


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "DEVICE", "cpu")


def test_cases_are_what_they_say() -> None:
    cases = list(everything())
    assert len({c.name for c in cases}) == len(cases)
    assert {c.check for c in cases} <= set(CHECKS)
    assert all(Case(**json.loads(json.dumps(c.as_dict()))) == c for c in cases)
    assert {c.detail for c in cases if c.check == "layout"} <= {*READ_IN_PLACE, *COPIED}
    assert set(LAYOUTS) | {"contiguous", "data off by seven elements"} == {*READ_IN_PLACE, *COPIED}


def test_the_grid_holds_every_combination() -> None:
    cells = {(c.head_dim, c.head_dim_v, c.dtype, c.causal, c.seqlen_q, c.seqlen_k) for c in grid()}
    assert len(cells) == len(list(grid())) == 5 * 2 * 2 * (len(PAIRS) + 3)
    for head_dim in {c.head_dim for c in grid()}:
        assert {c.kv_heads for c in grid() if c.head_dim == head_dim and c.causal} == {6, 3, 1}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(7, 7), (5, 11), (11, 5), (4, 0), (600, 530)])
def test_the_reference_against_numpy(causal: bool, seqlen_q: int, seqlen_k: int) -> None:
    """The last pair is longer than a slice of rows."""
    case = replace(SMALL, seqlen_q=seqlen_q, seqlen_k=seqlen_k, batch=1, heads=2, kv_heads=1)
    q, k, v = operands(case)
    truth, (o, lse) = exact(q, k, v, 0.3, causal), reference(q, k, v, 0.3, causal)
    np.testing.assert_allclose(truth.o.numpy(), o, rtol=0, atol=1e-12)
    np.testing.assert_allclose(truth.lse.numpy(), lse, rtol=1e-12)
    np.testing.assert_allclose(truth.weight.numpy(), reference(q, k, v.abs(), 0.3, causal)[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(same_dtype(q, k, v, 0.3, causal).double().numpy(), o, rtol=0, atol=0.05)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pair", [(1, 1), (70, 90), (90, 70), (5, 0)])
def test_a_right_kernel_passes(gpu: PaperGpu, dtype: str, causal: bool, pair: tuple[int, int]) -> None:
    found = CHECKS["values"](replace(SMALL, dtype=dtype, causal=causal, seqlen_q=pair[0], seqlen_k=pair[1]))
    assert set(found) == {"flash", "element", "lse"}


@pytest.mark.parametrize("detail", HOSTILE)
@pytest.mark.parametrize("causal", [False, True])
def test_a_right_kernel_passes_hostile_operands(gpu: PaperGpu, detail: str, causal: bool) -> None:
    CHECKS["hostile"](replace(SMALL, check="hostile", detail=detail, causal=causal))


@pytest.mark.parametrize("detail", LAYOUTS)
def test_layouts(gpu: PaperGpu, detail: str) -> None:
    CHECKS["layout"](replace(SMALL, check="layout", detail=detail, kv_heads=4))


def test_many_rows(gpu: PaperGpu) -> None:
    CHECKS["many rows"](replace(SMALL, check="many rows", seqlen_q=40, seqlen_k=1, causal=True))


def test_cases_of_a_kernel_file() -> None:
    cases = list(of_kernel("mine.py", 80, 80))
    assert {(c.head_dim, c.head_dim_v, c.kernel) for c in cases} == {(80, 80, "mine.py")}
    assert {(c.dtype, c.causal) for c in cases if c.check == "values"} == {(t, m) for t in ("bf16", "fp16") for m in (False, True)}
    assert len({c.name for c in cases}) == len(cases)


@pytest.mark.parametrize("check", ["batch of none", "many elements", "many keys", "operator"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_others_that_need_no_gpu(gpu: PaperGpu, check: str) -> None:
    CHECKS[check](replace(SMALL, check=check, batch=0 if check == "batch of none" else 4, kv_heads=4, causal=check == "many keys"))


Tensors = tuple[torch.Tensor, torch.Tensor]


def _right(causal: bool) -> tuple[Any, ...]:
    case = replace(SMALL, causal=causal)
    q, k, v = operands(case)
    truth = exact(q, k, v, 0.125, causal)
    return q, k, v, 0.125, causal, truth.o.to(q.dtype), truth.lse.float()


def _edit(change: Callable[[torch.Tensor, torch.Tensor], object]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    def edited(given: tuple[Any, ...]) -> tuple[Any, ...]:
        change(given[5], given[6])
        return given

    return edited


def _recomputed(how: Callable[..., Any]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    def edited(given: tuple[Any, ...]) -> tuple[Any, ...]:
        truth = how(*given[:5])
        return (*given[:5], truth.o.to(given[0].dtype), truth.lse.float())

    return edited


WRONG: dict[str, Callable[[tuple[Any, ...]], tuple[Any, ...]]] = {
    "one element off by two percent of the average weight": _edit(lambda o, lse: o[1, 33, 2].mul_(0).add_(o[1, 34, 2])),
    "one small row not written": _edit(lambda o, lse: o[0, 69, 3].zero_()),
    "a row of NaN": _edit(lambda o, lse: o[0, 0, 0].fill_(math.nan)),
    "two rows swapped": _edit(lambda o, lse: o[:, :2].copy_(o[:, :2].flip(1).clone())),
    "log-sum-exp in base 2": _edit(lambda o, lse: lse.mul_(1.4426950408889634)),
    "log-sum-exp of one row off by a thousandth": _edit(lambda o, lse: lse[1, 2, 3].add_(1e-3 * (1 + abs(float(lse[1, 2, 3]))))),
    "the last key not seen": _recomputed(lambda q, k, v, s, c: exact(q, k[:, :-1], v[:, :-1], s, False)),
    "one key too many": _recomputed(lambda q, k, v, s, c: exact(q, torch.cat([k, 0 * k[:, :1]], 1), torch.cat([v, 0 * v[:, :1]], 1), s, c)),
    "scale forgotten": _recomputed(lambda q, k, v, s, c: exact(q, k, v, 1.0, c)),
    "scale off by two percent": _recomputed(lambda q, k, v, s, c: exact(q, k, v, s * 1.02, c)),
    "heads shared in turn": _recomputed(lambda q, k, v, s, c: exact(q, k.repeat(1, 1, 2, 1), v.repeat(1, 1, 2, 1), s, c)),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_refused(name: str, causal: bool) -> None:
    judge(*_right(causal))
    with pytest.raises(AssertionError, match=r"times what is allowed|not finite"):
        judge(*WRONG[name](_right(causal)))


def test_a_mask_aligned_with_the_first_key_is_refused() -> None:
    q, k, v, scale, _, _, _ = _right(True)
    first = exact(q, k[:, :70], v[:, :70], scale, True)
    with pytest.raises(AssertionError, match="times what is allowed"):
        judge(q, k, v, scale, True, first.o.to(q.dtype), first.lse.float())


def test_rows_without_keys_are_exact() -> None:
    q, k, v = operands(replace(SMALL, seqlen_q=90, seqlen_k=70))
    truth = exact(q, k, v, 0.125, True)
    o, lse = truth.o.to(q.dtype), truth.lse.float()
    judge(q, k, v, 0.125, True, o, lse)
    lse[0, 0, 5] = -1e30
    with pytest.raises(AssertionError, match="another log-sum-exp than -inf"):
        judge(q, k, v, 0.125, True, o, lse)
    o[0, 5, 0, 0] = 1e-30
    with pytest.raises(AssertionError, match="a row without keys is not zero"):
        judge(q, k, v, 0.125, True, o, lse)


def test_a_kernel_that_depends_on_chance_is_refused(gpu: PaperGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    from twill.pytorch import plan

    monkeypatch.setattr(checks, "REPEATS", 20)
    case = replace(SMALL, check="repeats", seqlen_q=4, seqlen_k=4)
    CHECKS["repeats"](case)
    made = plan.function_of
    runs = iter(range(100))

    def function_of(*given: Any) -> Any:
        def f(q: Any, k: Any, v: Any, o: Any, *rest: Any) -> None:
            made(*given)(q, k, v, o, *rest)
            if next(runs) == 13:
                o[0, 0, 0, 0] = torch.nextafter(o[0, 0, 0, 0], o.new_tensor(9.0))

        return f

    monkeypatch.setattr(plan, "function_of", function_of)
    plan._plans.clear()
    with pytest.raises(AssertionError, match="1 of 20 runs gave other bits"):
        CHECKS["repeats"](case)


CHILD = """
import json, os, signal, sys, time
for line in sys.stdin:
    case = json.loads(line)
    print("a line from a library", flush=True)
    what = case["detail"]
    if what == "hang": time.sleep(600)
    if what == "die": os.kill(os.getpid(), signal.SIGSEGV)
    answer = {"failure": "wrong" if what == "wrong" else "", "fatal": what == "fatal", "found": {"pid": os.getpid()}}
    print("@answer " + json.dumps(answer), flush=True)
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Child:
    monkeypatch.setattr(watchdog, "START_S", 10.0)
    child = Child("tests.gpu.child")
    child._command = [sys.executable, "-c", CHILD]
    return child


def test_the_child_answers(script: Child) -> None:
    first = script.ask("x", {"detail": ""}, 5.0)
    assert first == script.ask("x", {"detail": ""}, 5.0)
    with pytest.raises(Failed, match="wrong"):
        script.ask("x", {"detail": "wrong"}, 5.0)
    assert script.ask("x", {"detail": ""}, 5.0) == first
    assert script.close() == 0


def test_a_hang_is_a_failure_and_the_next_case_gets_a_new_child(script: Child) -> None:
    before = script.ask("x", {"detail": ""}, 5.0)
    began = time.monotonic()
    with pytest.raises(Failed, match=r"no answer in 1 s; the child was killed\na line from a library"):
        script.ask("x", {"detail": "hang"}, 1.0)
    assert time.monotonic() - began < 10
    assert script.ask("x", {"detail": ""}, 5.0) != before
    script.close()


def test_so_is_a_crash(script: Child) -> None:
    with pytest.raises(Failed, match="SIGSEGV"):
        script.ask("x", {"detail": "die"}, 5.0)
    assert script.ask("x", {"detail": ""}, 5.0)
    script.close()


def test_after_a_fatal_error_there_is_a_new_child(script: Child) -> None:
    before = script.ask("x", {"detail": ""}, 5.0)
    assert script.ask("x", {"detail": "fatal"}, 5.0) == before
    assert script.ask("x", {"detail": ""}, 5.0) != before
    script.close()


def test_the_real_child_says_why_a_check_failed() -> None:
    """Here that there is no GPU."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    child = Child("tests.gpu.child")
    with pytest.raises(Failed, match="values-d64-bf16"):
        child.ask(SMALL.name, SMALL.as_dict(), SMALL.timeout_s)
    child.close()
