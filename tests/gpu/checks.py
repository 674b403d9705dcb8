"""The checks, by the names that cases have. Each raises an AssertionError, or returns what it measured. They run in the child process."""

from __future__ import annotations

from collections.abc import Callable

import torch

import twill
from tests.gpu import machinery
from tests.gpu.cases import Case
from tests.gpu.gradients import GRADIENT_CHECKS
from tests.pytorch.layouts import COPIED, READ_IN_PLACE
from twill.bench.judge import judge

__all__ = ["CHECKS", "DEVICE", "hostile_operands", "operands"]

DEVICE = "cuda"
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
REPEATS = 1000
Found = dict[str, object]


def operands(case: Case, device: str | None = None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normally distributed, the same for the same case."""
    where, dtype = device or DEVICE, DTYPES[case.dtype]
    make = torch.Generator(device=where).manual_seed(20261130)
    q = (case.batch, case.seqlen_q, case.heads, case.head_dim)
    k = (case.batch, case.seqlen_k, case.kv_heads, case.head_dim)
    v = (case.batch, case.seqlen_k, case.kv_heads, case.head_dim_v)
    return tuple(torch.randn(shape, generator=make, device=where, dtype=dtype) for shape in (q, k, v))  # type: ignore[return-value]


def _poison(case: Case) -> None:
    """Leave NaN in the memory that the next allocation of the outputs' sizes is likely to get."""
    dtype = DTYPES[case.dtype]
    o = torch.full((case.batch, case.seqlen_q, case.heads, case.head_dim_v), torch.nan, device=DEVICE, dtype=dtype)
    lse = torch.full((case.batch, case.heads, case.seqlen_q), torch.nan, device=DEVICE)
    del o, lse


def _judged(case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None = None) -> Found:
    _poison(case)
    o, lse = twill.attention(q, k, v, softmax_scale=scale, causal=case.causal, return_lse=True)
    _poison(case)
    alone = twill.attention(q, k, v, softmax_scale=scale, causal=case.causal)
    assert torch.equal(alone, o), "the kernels with and without log-sum-exp give different outputs"
    return {**judge(q, k, v, case.head_dim**-0.5 if scale is None else scale, case.causal, o, lse)}


def values(case: Case) -> Found:
    """Outputs and log-sum-exp of random operands."""
    return _judged(case, *operands(case))


def hostile_operands(case: Case) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float | None]:
    """Operands that make softmax hard, and a scale where that is what does it."""
    q, k, v = operands(case)
    scale = None
    position = torch.arange(case.seqlen_k, device=DEVICE)[None, :, None, None]
    if case.detail == "large scores":
        q = q * 30
    elif case.detail == "equal scores":
        k = k[:, :1].expand_as(k).contiguous()
    elif case.detail in ("rising scores", "falling scores"):
        # four a key after scaling: the maximum jumps by far more than 2 to the 127th from one tile of keys to the next
        steps = position if case.detail == "rising scores" else case.seqlen_k - position
        q, k = torch.ones_like(q), (steps * (4.0 / case.head_dim**0.5)).to(k.dtype).expand_as(k).contiguous()
    elif case.detail == "one key wins":
        k = torch.where(position == case.seqlen_k // 3, q.new_tensor(50.0), 0.1 * k).contiguous()
        q = q.abs()
    elif case.detail == "tiny scale":
        scale = 1e-6
    else:
        raise KeyError(case.detail)
    return q, k, v, scale


def hostile(case: Case) -> Found:
    """Outputs of operands that make softmax hard."""
    return _judged(case, *hostile_operands(case))


def layout(case: Case) -> Found:
    """Operands that lie in memory in some other way give, bit for bit, what contiguous ones give."""
    make = torch.Generator(device=DEVICE).manual_seed(5)

    def flat(size: int) -> torch.Tensor:
        return torch.randn(size, generator=make, device=DEVICE, dtype=DTYPES[case.dtype])

    lie = {**READ_IN_PLACE, **COPIED}[case.detail]
    q, k, v = (lie(flat, case.batch, case.seqlen_q, case.heads, case.head_dim) for _ in range(3))
    plain = [x.clone(memory_format=torch.contiguous_format) for x in (q, k, v)]
    got = twill.attention(q, k, v, causal=case.causal, return_lse=True)
    expected = twill.attention(*plain, causal=case.causal, return_lse=True)
    for ours, theirs in zip(got, expected, strict=True):
        assert torch.equal(ours, theirs), f"{case.detail}: {int((ours != theirs).sum())} of {ours.numel()} differ"
    for x, y in zip((q, k, v), plain, strict=True):
        assert torch.equal(x, y), "an operand was written to"
    return {}


def repeats(case: Case) -> Found:
    """The same bits a thousand times, with nothing waiting in between."""
    q, k, v = operands(case)
    o, lse = twill.attention(q, k, v, causal=case.causal, return_lse=True)
    differing = torch.zeros((), dtype=torch.int64, device=DEVICE)
    for _ in range(REPEATS):
        again, sums = twill.attention(q, k, v, causal=case.causal, return_lse=True)
        differing += (again.view(torch.int16) != o.view(torch.int16)).any() | (sums.view(torch.int32) != lse.view(torch.int32)).any()
    assert int(differing) == 0, f"{int(differing)} of {REPEATS} runs gave other bits"
    return {"repeats": REPEATS}


def empty_batch(case: Case) -> Found:
    """Nothing in, nothing out."""
    o, lse = twill.attention(*operands(case), return_lse=True)
    assert (o.shape[0], lse.shape[0]) == (0, 0)
    return {}


def many_elements(case: Case) -> Found:
    """Three packed operands of more than 2^31 elements each, with strides to match; the ends and the middle are looked at."""
    shape = (case.batch, case.seqlen_q, 3, case.heads, case.head_dim)
    packed = torch.empty(shape, device=DEVICE, dtype=DTYPES[case.dtype])
    packed.normal_()
    q, k, v = packed.unbind(2)
    assert q.numel() > 2**31 or DEVICE != "cuda"
    o, lse = twill.attention(q, k, v, causal=case.causal, return_lse=True)
    found: Found = {"elements": q.numel()}
    for place in (0, 1, case.batch // 2, case.batch - 2, case.batch - 1):
        part = slice(place, place + 1)
        judge(q[part], k[part], v[part], case.head_dim**-0.5, case.causal, o[part], lse[part])
    return found


def many_keys(case: Case) -> Found:
    """A few queries and so many keys that K and V have more than 2^31 elements each."""
    q, k, v = operands(case)
    assert k.numel() > 2**31 or DEVICE != "cuda"
    o, lse = twill.attention(q, k, v, causal=case.causal, return_lse=True)
    for first in range(0, case.heads, 4):
        part = slice(first, first + 4)
        judge(q[:, :, part], k[:, :, part], v[:, :, part], case.head_dim**-0.5, case.causal, o[:, :, part], lse[:, part])
    return {"elements": k.numel()}


def many_rows(case: Case) -> Found:
    """Many queries and one key, causal: only the last query sees it. Heads of so few keys are walked together, as many as there are."""
    q, k, v = operands(case)
    assert case.causal and case.seqlen_k == 1
    o, lse = twill.attention(q, k, v, causal=True, return_lse=True)
    assert not bool(o[:, :-1].any()), "a row without keys is not zero"
    assert bool((lse[:, :, :-1] == -torch.inf).all()), "a row without keys has another log-sum-exp than -inf"
    judge(q[:, -1:], k, v, case.head_dim**-0.5, True, o[:, -1:], lse[:, :, -1:].contiguous())
    return {"rows": case.seqlen_q}


CHECKS: dict[str, Callable[[Case], Found]] = {
    "values": values, "hostile": hostile, "layout": layout, "repeats": repeats, "batch of none": empty_batch,
    "many elements": many_elements, "many keys": many_keys, "many rows": many_rows, "two streams": machinery.two_streams,
    "graph beside": machinery.graph_beside, "stream": machinery.stream, "device of the operands": machinery.other_device,
    "graph": machinery.graph, "compiled": machinery.compiled, "compiled graphs": machinery.compiled_graphs,
    "operator": machinery.operator, "overhead": machinery.overhead, "refused": machinery.refused, "launch": machinery.launch,
    "stride of zero": machinery.stride_of_zero, **GRADIENT_CHECKS,
}  # fmt: skip
