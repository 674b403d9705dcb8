"""The checks of gradients, by the names that cases have. They run in the child process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import twill
from tests.gpu.cases import ORDERED, Case
from tests.pytorch.layouts import COPIED, READ_IN_PLACE
from twill.bench.gradients import judge_gradients

__all__ = ["GRADIENT_CHECKS"]

REPEATS = 200
ORDERED_REPEATS = 1000
CLOSE = 2.0**-6
"""Of the largest: what another order of adding up dQ, and rounding, may change in gradients that are not judged themselves."""
Found = dict[str, object]


def _operands(case: Case) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k, v and the gradient of the output."""
    from tests.gpu.checks import operands

    q, k, v = operands(case)
    make = torch.Generator(device=q.device).manual_seed(20261201)
    do = torch.randn((*q.shape[:3], case.head_dim_v), generator=make, device=q.device, dtype=q.dtype)
    return q, k, v, do


def _wanted(*operands: torch.Tensor) -> list[torch.Tensor]:
    return [x.detach().requires_grad_() for x in operands]


def _step(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor, causal: bool, scale: float | None = None,
          ordered: bool = False) -> Any:  # fmt: skip
    """Output and gradients, in memory that is likely to have held NaN."""
    given = _wanted(q, k, v)
    o = twill.attention(*given, softmax_scale=scale, causal=causal, deterministic=ordered)
    poison = [torch.full_like(x, torch.nan, memory_format=torch.contiguous_format) for x in (q, k, v)]
    del poison
    return o.detach(), torch.autograd.grad(o, given, do)


def _judged(case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor, scale: float | None = None) -> Found:
    o, found = _step(q, k, v, do, case.causal, scale, case.detail == ORDERED)
    return {**judge_gradients((q, k, v), do, case.head_dim**-0.5 if scale is None else scale, case.causal, o, found)}


def _alike(found: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...], what: str) -> None:
    """dK and dV to the bit; dQ, that blocks add to as they come, within rounding."""
    for name, ours, theirs in zip(("dq", "dk", "dv"), found, expected, strict=True):
        if name == "dq":
            apart = float((ours.double() - theirs.double()).abs().max()) / max(float(theirs.double().abs().max()), 1e-6)
            assert apart <= CLOSE, f"{what}: dq is {apart:.3g} of its largest element apart"
        else:
            assert torch.equal(ours, theirs), f"{what}: {int((ours != theirs).sum())} of {ours.numel()} elements of {name} differ"


def values(case: Case) -> Found:
    """Gradients of random operands."""
    return _judged(case, *_operands(case))


def hostile(case: Case) -> Found:
    """Gradients of operands that make softmax hard."""
    from tests.gpu.checks import hostile_operands

    q, k, v, scale = hostile_operands(case)
    return _judged(case, q, k, v, _operands(case)[3], scale)


def layout(case: Case) -> Found:
    """Operands and gradients that lie in memory in some other way give what contiguous ones give."""
    q = _operands(case)[0]
    make = torch.Generator(device=q.device).manual_seed(5)

    def flat(size: int) -> torch.Tensor:
        return torch.randn(size, generator=make, device=q.device, dtype=q.dtype)

    lie = {**READ_IN_PLACE, **COPIED}[case.detail]
    strange = [lie(flat, case.batch, case.seqlen_q, case.heads, case.head_dim) for _ in range(4)]
    plain = [x.clone(memory_format=torch.contiguous_format) for x in strange]
    found = [_step(*x, case.causal) for x in (strange, plain)]  # type: ignore[misc]
    assert torch.equal(found[0][0], found[1][0]), "the outputs differ"
    _alike(found[0][1], found[1][1], case.detail)
    for x, y in zip(strange, plain, strict=True):
        assert torch.equal(x, y), "an operand was written to"
    return {}


def repeats(case: Case) -> Found:
    """Many backwards of one graph, with nothing waiting in between: dK and dV to the bit, dQ within rounding."""
    q, k, v, do = _operands(case)
    given = _wanted(q, k, v)
    o = twill.attention(*given, causal=case.causal)
    first = torch.autograd.grad(o, given, do, retain_graph=True)
    differing = torch.zeros((), dtype=torch.int64, device=q.device)
    apart = torch.zeros((), device=q.device)
    for _ in range(REPEATS):
        dq, dk, dv = torch.autograd.grad(o, given, do, retain_graph=True)
        differing += (dk.view(torch.int16) != first[1].view(torch.int16)).any() | (dv.view(torch.int16) != first[2].view(torch.int16)).any()
        apart = torch.maximum(apart, (dq.float() - first[0].float()).abs().max())
    assert int(differing) == 0, f"dk or dv had other bits in {int(differing)} of {REPEATS} runs"
    relative = float(apart) / float(first[0].float().abs().max())
    assert relative <= CLOSE, f"dq moved by {relative:.3g} of its largest element"
    return {"repeats": REPEATS, "dq moved by": relative}


def ordered(case: Case) -> Found:
    """Many deterministic backwards, now and then beside another kernel that takes multiprocessors away: all three to the bit, and right."""
    q, k, v, do = _operands(case)
    judged = _judged(case, q, k, v, do)
    given = _wanted(q, k, v)
    o = twill.attention(*given, causal=case.causal, deterministic=True)
    first = [x.view(torch.int16) for x in torch.autograd.grad(o, given, do, retain_graph=True)]
    differing = torch.zeros((), dtype=torch.int64, device=q.device)
    side, other = torch.cuda.Stream(), torch.randn(2048, 2048, device=q.device, dtype=q.dtype)
    for n in range(ORDERED_REPEATS):
        if n % 3 == 0:
            with torch.cuda.stream(side):
                other @ other
        again = torch.autograd.grad(o, given, do, retain_graph=True)
        for x, y in zip(again, first, strict=True):
            differing += (x.view(torch.int16) != y).any()
    assert int(differing) == 0, f"{int(differing)} of {3 * ORDERED_REPEATS} gradients had other bits"
    return {"repeats": ORDERED_REPEATS, **judged}


def some(case: Case) -> Found:
    """Any one of the three alone."""
    q, k, v, do = _operands(case)
    _, everything = _step(q, k, v, do, case.causal)
    for n in range(3):
        given = [x.detach().requires_grad_(i == n) for i, x in enumerate((q, k, v))]
        twill.attention(*given, causal=case.causal).backward(do)
        assert [x.grad is not None for x in given] == [i == n for i in range(3)]
        alone = tuple(everything[i] if i != n else x.grad for i, x in enumerate(given))
        _alike(alone, everything, "one gradient alone")  # type: ignore[arg-type]
    return {}


def stream(case: Case) -> Found:
    """Forward and backward run on the stream of the forward, and wait for what is before them."""
    q, k, v, do = _operands(case)
    _, expected = _step(q, k, v, do, case.causal)
    late, side = torch.zeros_like(q), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        late.copy_(q)
        _, found = _step(late, k, v, do, case.causal)
    side.synchronize()
    _alike(found, expected, "on another stream")
    return {}


def graph(case: Case) -> Found:
    """Forward and backward captured once and replayed with other operands."""
    q, k, v, do = _operands(case)
    _step(q, k, v, do, case.causal)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        o, found = _step(q, k, v, do, case.causal)
    for n in range(3):
        q.copy_(torch.randn_like(q) * (n + 1))
        for x in (o, *found):
            x.fill_(torch.nan)
        captured.replay()
        torch.cuda.synchronize()
        again = _step(q, k, v, do, case.causal)
        assert torch.equal(o, again[0]), "a replayed graph gives another output"
        _alike(found, again[1], "a replayed graph")
    return {"replays": 3}


def _layer(q: Any, k: Any, v: Any) -> Any:
    return torch.nn.functional.gelu(twill.attention(q * 2, k, v, causal=True)) + q


def _compiled(case: Case, **how: Any) -> Found:
    torch.compiler.reset()
    compiled = torch.compile(_layer, fullgraph=True, **how)
    for _ in range(4):
        q, k, v, do = _operands(case)
        results = []
        for layer in (compiled, _layer):
            given = _wanted(q, k, v)
            results.append([x.clone() for x in torch.autograd.grad(layer(*given), given, do)])
        for ours, plain in zip(*results, strict=True):
            torch.testing.assert_close(ours, plain, rtol=CLOSE, atol=CLOSE * float(plain.abs().max()))
    return {}


def compiled(case: Case) -> Found:
    """A layer and its gradients by torch.compile, each as one graph."""
    return _compiled(case)


def compiled_graphs(case: Case) -> Found:
    """The same as CUDA graphs."""
    return _compiled(case, mode="reduce-overhead")


def many_elements(case: Case) -> Found:
    """Operands and gradients of more than 2^31 elements each; the ends and the middle are looked at."""
    q, k, v, do = _operands(case)
    assert q.numel() > 2**31 or not q.is_cuda
    o, found = _step(q, k, v, do, case.causal)
    for place in (0, case.batch // 2, case.batch - 1):
        part = slice(place, place + 1)
        one = (found[0][part], found[1][part], found[2][part])
        judge_gradients((q[part], k[part], v[part]), do[part], case.head_dim**-0.5, case.causal, o[part], one)
    return {"elements": q.numel()}


def launch(case: Case) -> Found:
    """Only the kernels, for a tool that watches every access."""
    q, k, v, do = _operands(case)
    _step(q, k, v, do, case.causal, ordered=case.detail == ORDERED)
    torch.cuda.synchronize()
    return {}


GRADIENT_CHECKS: dict[str, Callable[[Case], Found]] = {
    "gradients": values, "gradients hostile": hostile, "gradients layout": layout, "gradients repeats": repeats, "gradients some": some,
    "gradients stream": stream, "gradients graph": graph, "gradients compiled": compiled, "gradients compiled graphs": compiled_graphs,
    "gradients many elements": many_elements, "gradients launch": launch, "gradients ordered": ordered,
}  # fmt: skip
