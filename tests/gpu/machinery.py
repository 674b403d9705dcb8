"""Checks of what is around the kernel on a GPU: streams, devices, graphs, the compiler, what a call costs, what is refused."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

import twill
from tests.gpu.cases import Case
from twill.pytorch import AttentionError

__all__ = [
    "compiled", "compiled_graphs", "graph", "graph_beside", "launch", "operator", "other_device", "overhead", "refused", "stream",
    "stride_of_zero", "two_streams",
]  # fmt: skip

LIMIT_US = 20.0
"""What a call may cost on the host."""
BURST = 100
ROUNDS = 30
Found = dict[str, object]


def _operands(case: Case, device: str | None = None) -> tuple[Any, Any, Any]:
    from tests.gpu.checks import operands

    return operands(case, device)


def stream(case: Case) -> Found:
    """The kernel is launched on the current stream: it sees what was written there after a long wait."""
    q, k, v = _operands(case)
    expected = twill.attention(q, k, v)
    late = torch.zeros_like(q)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        late.copy_(q)
        o = twill.attention(late, k, v)
    side.synchronize()
    assert torch.equal(o, expected), "the kernel did not wait for the work before it on its stream"
    return {}


def two_streams(case: Case) -> Found:
    """Launches of two streams run at the same time, each with work tiles of its own."""
    given = [_operands(case), tuple(-x for x in _operands(case))]
    expected = [twill.attention(*x, causal=case.causal) for x in given]
    streams = [torch.cuda.Stream() for _ in given]
    torch.cuda.synchronize()
    results: list[list[Any]] = [[], []]
    for _ in range(ROUNDS):
        for stream_of, x, into in zip(streams, given, results, strict=True):
            with torch.cuda.stream(stream_of):
                into.append(twill.attention(*x, causal=case.causal))
    torch.cuda.synchronize()
    wrong = sum(not torch.equal(o, right) for into, right in zip(results, expected, strict=True) for o in into)
    assert not wrong, f"{wrong} of {2 * ROUNDS} launches on two streams at once gave another output"
    return {"launches": 2 * ROUNDS}


def graph_beside(case: Case) -> Found:
    """A graph is replayed on one stream while the kernel is called on another, and while the one it was captured on is used again."""
    q, k, v = _operands(case)
    expected = twill.attention(q, k, v, causal=case.causal)
    torch.cuda.synchronize()
    captured, streams = torch.cuda.CUDAGraph(), [torch.cuda.Stream() for _ in range(2)]
    with torch.cuda.graph(captured, stream=streams[0]):
        inside = twill.attention(q, k, v, causal=case.causal)
    wrong = 0
    for n in range(ROUNDS):
        inside.fill_(torch.nan)
        torch.cuda.synchronize()
        with torch.cuda.stream(streams[n % 2]):
            captured.replay()
        with torch.cuda.stream(streams[0]):
            beside = twill.attention(q, k, v, causal=case.causal)
        torch.cuda.synchronize()
        wrong += not torch.equal(inside, expected) or not torch.equal(beside, expected)
    assert not wrong, f"{wrong} of {ROUNDS} rounds gave another output"
    return {"rounds": ROUNDS}


def other_device(case: Case) -> Found:
    """Operands on a device that is not the current one."""
    if torch.cuda.device_count() < 2:
        return {"skipped": "there is one GPU"}
    q, k, v = (x.to("cuda:1") for x in _operands(case))
    assert torch.cuda.current_device() == 0
    o = twill.attention(q, k, v)
    assert torch.cuda.current_device() == 0
    with torch.cuda.device(1):
        assert torch.equal(o, twill.attention(q, k, v))
    assert torch.equal(o.cpu(), twill.attention(*_operands(case)).cpu())
    return {}


def graph(case: Case) -> Found:
    """Captured once and replayed with other operands."""
    q, k, v = _operands(case)
    twill.attention(q, k, v, causal=case.causal, return_lse=True)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        o, lse = twill.attention(q, k, v, causal=case.causal, return_lse=True)
    for n in range(3):
        q.copy_(torch.randn_like(q) * (n + 1))
        o.fill_(torch.nan)
        lse.fill_(torch.nan)
        captured.replay()
        torch.cuda.synchronize()
        expected = twill.attention(q, k, v, causal=case.causal, return_lse=True)
        assert torch.equal(o, expected[0]), "a replayed graph gives another output"
        assert torch.equal(lse, expected[1]), "a replayed graph gives another log-sum-exp"
    return {"replays": 3}


def _model(q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    o, lse = twill.attention(q * 2, k, v, causal=True, return_lse=True)
    return o + q, lse.exp()


def _compiled(case: Case, **how: Any) -> Found:
    torch.compiler.reset()
    function = torch.compile(_model, fullgraph=True, **how)
    with torch.no_grad():
        for _ in range(4):
            operands = _operands(case)
            got = [x.clone() for x in function(*operands)]
            for ours, plain in zip(got, _model(*operands), strict=True):
                torch.testing.assert_close(ours, plain, rtol=2**-7, atol=2**-7)
    return {}


def compiled(case: Case) -> Found:
    """By torch.compile as one graph."""
    return _compiled(case)


def compiled_graphs(case: Case) -> Found:
    """By torch.compile as one graph, run as a CUDA graph."""
    return _compiled(case, mode="reduce-overhead")


def operator(case: Case) -> Found:
    """PyTorch's own checks of an operator, on the GPU."""
    from twill.pytorch.op import attention_fwd, attention_fwd_lse

    for checked in (attention_fwd, attention_fwd_lse):
        torch.library.opcheck(checked, (*_operands(case), None, True))
    return {}


def overhead(case: Case) -> Found:
    """What a call costs on the host, the launch included: bursts that the GPU's queue takes without waiting."""
    q, k, v = _operands(case)
    found: Found = {}
    for name, with_lse in (("us", False), ("us_with_lse", True)):
        bursts = []
        for _ in range(40):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(BURST):
                twill.attention(q, k, v, return_lse=with_lse)
            bursts.append((time.perf_counter() - began) / BURST * 1e6)
        found[name], found[f"{name}_best"] = statistics.median(bursts), min(bursts)
    assert float(str(found["us"])) <= LIMIT_US, f"a call costs the host {found['us']:.1f} us, more than {LIMIT_US:.0f}"
    return found


def refused(case: Case) -> Found:
    """What cannot be computed is refused on a machine that has a GPU, too."""
    q, k, v = _operands(case)
    wrong = {
        "k is on cpu": (q, k.cpu(), v), "these are on cpu": (q.cpu(), k.cpu(), v.cpu()), "q is torch.float32": (q.float(), k, v),
        "no kernel for head dim 88": (q[..., :88], k[..., :88], v[..., :88]),
    }  # fmt: skip
    for message, given in wrong.items():
        try:
            twill.attention(*given)
        except AttentionError as error:
            assert message in str(error), f"expected {message!r}, got {error}"
        else:
            raise AssertionError(f"not refused: {message}")
    return {"refused": len(wrong)}


def launch(case: Case) -> Found:
    """Only the kernels, for a tool that watches every access: all that a reference would do takes too long under one."""
    q, k, v = _operands(case)
    twill.attention(q, k, v, causal=case.causal, return_lse=True)
    torch.cuda.synchronize()
    return {}


def stride_of_zero(case: Case) -> Found:
    """Not a requirement, a question: does a kernel read an expanded operand through a tensor map with a stride of 0?"""
    from twill.pytorch.counters import counter_of
    from twill.pytorch.libraries import function_of
    from twill.pytorch.selection import Workload, choose
    from twill.pytorch.target import target_of

    q, k, v = _operands(case)
    k, v = (x[:1].expand(case.batch, -1, -1, -1) for x in (k, v))
    expected = twill.attention(q, k, v)
    target = target_of(q.device)
    tiles = case.batch * case.heads
    work = Workload(target.arch, target.sm_count, case.head_dim, case.head_dim_v, False, tiles, case.seqlen_q, case.seqlen_k)
    o, counter = torch.full_like(expected, torch.nan), counter_of(target.index)
    function = function_of(choose(work), case.dtype, False, False)  # type: ignore[arg-type]
    function(q, k, v, o, None, counter, case.head_dim**-0.5, target.sm_count)
    torch.cuda.synchronize()
    return {"agrees": torch.equal(o, expected)}
