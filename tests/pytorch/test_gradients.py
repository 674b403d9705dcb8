"""Gradients: the kernel is one of paper, and all around it, autograd first of all, is real. Compared with autograd through float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import twill
from tests.pytorch.conftest import PaperGpu
from tests.pytorch.layouts import COPIED, READ_IN_PLACE
from twill.pytorch import AttentionError, selection
from twill.pytorch.catalogue import backward_kernels
from twill.pytorch.gradients import backward
from twill.pytorch.op import attention_bwd, attention_fwd, attention_fwd_lse

D = 96
LSE = 1e-5
"""What rounding of the log-sum-exp to float32 can do to a gradient that is exactly 0."""
SHAPE = {"batch": 2, "seqlen_q": 5, "seqlen_k": 7, "heads": 4, "kv_heads": 2}
quiet = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def _operands(
    batch: int = 2, seqlen_q: int = 5, seqlen_k: int = 7, heads: int = 4, kv_heads: int = 2, d: int = D,
    dtype: torch.dtype = torch.bfloat16,
) -> list[torch.Tensor]:  # fmt: skip
    make = torch.Generator().manual_seed(11)
    shapes = ((batch, seqlen_q, heads, d), (batch, seqlen_k, kv_heads, d), (batch, seqlen_k, kv_heads, d), (batch, seqlen_q, heads, d))
    return [torch.randn(shape, generator=make).to(dtype) for shape in shapes]


def _exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool) -> torch.Tensor:
    """Attention in float64, differentiable; a query that sees no key gives zeros."""
    wide_k, wide_v = (x.repeat_interleave(q.shape[2] // max(k.shape[2], 1), dim=2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q, wide_k) * scale
    if causal:
        hidden = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).triu(k.shape[1] - q.shape[1] + 1)
        scores = scores.masked_fill(hidden, -1e300)
        p = scores.softmax(dim=3).masked_fill(hidden, 0.0)
    else:
        p = scores.softmax(dim=3)
    return torch.einsum("bhij,bjhd->bihd", p, wide_v)


def _expected(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor, scale: float, causal: bool) -> list[torch.Tensor]:
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    return list(torch.autograd.grad(_exact(*wide, scale, causal), wide, do.double()))


def _close(ours: Any, exact: Any, dtype: torch.dtype = torch.bfloat16) -> None:
    unit = {torch.bfloat16: 2**-8, torch.float16: 2**-11}[dtype]
    for x, y in zip(ours, exact, strict=True):
        assert x.dtype == dtype
        torch.testing.assert_close(x.double(), y, rtol=unit, atol=4 * unit * float(y.abs().max()) + LSE if y.numel() else 0.0)


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize(
    "sizes",
    [
        {}, {"seqlen_q": 1, "seqlen_k": 1}, {"seqlen_q": 9, "seqlen_k": 5}, {"kv_heads": 4}, {"heads": 6, "kv_heads": 1},
        {"seqlen_q": 0}, {"seqlen_k": 0}, {"seqlen_q": 0, "seqlen_k": 0}, {"batch": 0}, {"heads": 0, "kv_heads": 0},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_against_autograd_in_float64(gpu: PaperGpu, sizes: dict[str, int], causal: bool, dtype: torch.dtype) -> None:
    q, k, v, do = _operands(**sizes, dtype=dtype)
    given = [x.clone().requires_grad_() for x in (q, k, v)]
    o = twill.attention(*given, causal=causal)
    assert torch.equal(o, twill.attention(q, k, v, causal=causal))
    _close(torch.autograd.grad(o, given, do), _expected(q, k, v, do, D**-0.5, causal), dtype)


def test_the_scale(gpu: PaperGpu) -> None:
    q, k, v, do = _operands()
    given = [x.clone().requires_grad_() for x in (q, k, v)]
    _close(torch.autograd.grad(twill.attention(*given, softmax_scale=0.3), given, do), _expected(q, k, v, do, 0.3, False))
    assert gpu.last.scale == 0.3


def test_in_the_other_layout(gpu: PaperGpu) -> None:
    q, k, v, do = (x.transpose(1, 2) for x in _operands(seqlen_k=5))
    given, theirs = ([x.detach().clone().requires_grad_() for x in (q, k, v)] for _ in range(2))
    ours = torch.autograd.grad(twill.scaled_dot_product_attention(*given, is_causal=True, enable_gqa=True), given, do)
    reference = torch.nn.functional.scaled_dot_product_attention(*theirs, is_causal=True, enable_gqa=True)
    for x, y in zip(ours, torch.autograd.grad(reference, theirs, do), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=2**-5)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2), (1, 2)], ids=str)
def test_only_those_that_are_asked_for(gpu: PaperGpu, wanted: tuple[int, ...]) -> None:
    *operands, do = _operands()
    given = [x.clone().requires_grad_(n in wanted) for n, x in enumerate(operands)]
    twill.attention(*given).backward(do)
    exact = _expected(*operands, do, D**-0.5, False)
    assert [n for n, x in enumerate(given) if x.grad is not None] == list(wanted)
    _close([given[n].grad for n in wanted], [exact[n] for n in wanted])
    assert len(gpu.calls) == 2


def test_none_is_asked_for(gpu: PaperGpu) -> None:
    q, k, v, _ = _operands()
    bias = torch.zeros(D, requires_grad=True)
    (twill.attention(q, k, v).float() + bias).sum().backward()
    assert len(gpu.calls) == 1


def test_a_graph_used_twice(gpu: PaperGpu) -> None:
    *operands, do = _operands()
    given = [x.clone().requires_grad_() for x in operands]
    o = twill.attention(*given)
    first = torch.autograd.grad(o, given, do, retain_graph=True)
    second = torch.autograd.grad(o, given, do)
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(o, given, do)


def test_one_tensor_for_all_three(gpu: PaperGpu) -> None:
    x, *_, do = _operands(seqlen_k=5, kv_heads=4)
    given = x.clone().requires_grad_()
    (ours,) = torch.autograd.grad(twill.attention(given, given, given), given, do)
    exact = sum(_expected(x, x, x, do, D**-0.5, False), torch.zeros(x.shape, dtype=torch.float64))
    torch.testing.assert_close(ours.double(), exact, rtol=2**-6, atol=2**-6 * float(exact.abs().max()))


def test_a_changed_operand_is_noticed(gpu: PaperGpu) -> None:
    q, k, v, do = _operands()
    wanted = q.clone().requires_grad_()
    o = twill.attention(wanted, k, v)
    k.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.backward(do)


@pytest.mark.parametrize("name", [*READ_IN_PLACE, *COPIED])
def test_strides(gpu: PaperGpu, name: str) -> None:
    """Operands and the gradient of the output, however they lie, give what contiguous ones give."""
    lie = {**READ_IN_PLACE, **COPIED}[name]
    make = torch.Generator().manual_seed(2)
    q, k, v, do = (lie(lambda size: torch.randn(size, generator=make).to(torch.bfloat16), 2, 6, 4, D) for _ in range(4))
    results = []
    for x in ([q, k, v, do], [y.clone(memory_format=torch.contiguous_format) for y in (q, k, v, do)]):
        given = [y.detach().requires_grad_() for y in x[:3]]
        results.append(torch.autograd.grad(twill.attention(*given, causal=True), given, x[3]))
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain, rtol=0, atol=2**-6)


def test_a_sum_makes_a_gradient_of_strides_zero(gpu: PaperGpu) -> None:
    *operands, _ = _operands()
    given = [x.clone().requires_grad_() for x in operands]
    twill.attention(*given).sum().backward()
    _close([x.grad for x in given], _expected(*operands, torch.ones(2, 5, 4, D), D**-0.5, False))


def test_expanded_heads_have_gradients_of_their_own(gpu: PaperGpu) -> None:
    """The forward reads one head for all; summed too early, gradients of the heads before the sum would be wrong."""
    q, k, v, do = _operands(kv_heads=1)
    seen: list[torch.Tensor] = []
    given = [k.clone().requires_grad_(), v.clone().requires_grad_()]
    wide = [x.expand(-1, -1, 4, -1) for x in given]
    for x in wide:
        x.register_hook(seen.append)
    twill.attention(q, *wide).backward(do)
    plain = _expected(q, k.expand(-1, -1, 4, -1), v.expand(-1, -1, 4, -1), do, D**-0.5, False)
    _close(sorted(seen, key=lambda x: float((x.double() - plain[1]).norm())), plain[1:])
    _close([x.grad for x in given], [x.sum(dim=2, keepdim=True) for x in plain[1:]])


def test_the_log_sum_exp_has_none(gpu: PaperGpu) -> None:
    *operands, do = _operands()
    given = [x.clone().requires_grad_() for x in operands]
    o, lse = twill.attention(*given, return_lse=True)
    with pytest.raises(AttentionError, match=r"a gradient of lse is wanted.*\n.*lse\.detach\(\)"):
        lse.sum().backward(retain_graph=True)
    with pytest.raises(AttentionError, match="a gradient of lse is wanted"):
        (o.sum() + lse.sum()).backward(retain_graph=True)
    assert len(gpu.calls) == 1
    _close(torch.autograd.grad(o, given, do), _expected(*operands, do, D**-0.5, False))


def test_no_second_derivative(gpu: PaperGpu) -> None:
    *operands, do = _operands()
    given = [x.clone().requires_grad_() for x in operands]
    (dq,) = torch.autograd.grad(twill.attention(*given), given[:1], do, create_graph=True)
    with pytest.raises(AttentionError, match="a second derivative of attention is wanted"):
        dq.sum().backward()


@pytest.mark.parametrize("by_operator", [False, True], ids=["straight", "operator"])
def test_deterministic_gradients_have_a_kernel_of_their_own(gpu: PaperGpu, by_operator: bool) -> None:
    *operands, do = _operands()
    given = [x.clone().requires_grad_() for x in operands]

    def make(**how: bool) -> torch.Tensor:
        if by_operator:
            return torch.ops.twill.attention_fwd_lse(*given, None, False, **how)[0]
        return twill.attention(*given, **how)

    make().backward(do)
    assert not gpu.last.deterministic
    make(deterministic=True).backward(do)
    assert gpu.last.deterministic
    with torch.no_grad():
        twill.attention(*given, deterministic=True)
    assert not gpu.last.deterministic, "an output always is"


def test_deterministic_where_pytorch_is_told_to_be(gpu: PaperGpu) -> None:
    *operands, do = _operands()
    given = [x.clone().requires_grad_() for x in operands]
    o = twill.attention(*given)
    torch.use_deterministic_algorithms(True)
    try:
        o.backward(do, retain_graph=True)
        assert gpu.last.deterministic
    finally:
        torch.use_deterministic_algorithms(False)
    o.backward(do)
    assert not gpu.last.deterministic


@pytest.mark.parametrize("compiled", [False, True])
@quiet
def test_a_head_dim_without_a_kernel(gpu: PaperGpu, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said by the forward, not when a step of training is half done."""
    there = tuple(x for x in backward_kernels() if x.head_dim != 256)
    monkeypatch.setattr(selection, "backward_kernels", lambda: there)
    torch.compiler.reset()
    call: Callable[..., Any] = twill.attention
    if compiled:
        call = torch.compile(lambda *given: twill.attention(*given), fullgraph=True, backend="aot_eager")
    q, k, v, _ = _operands(d=256)
    with pytest.raises(Exception, match="a gradient is wanted, and there is no kernel for it at head dim 256"):
        call(q.requires_grad_(), k, v)
    assert not gpu.calls
    with torch.no_grad():
        call(q, k, v)
    assert len(gpu.calls) == 1


def test_the_operator_without_log_sum_exp_says_which_to_call(gpu: PaperGpu) -> None:
    q, k, v, _ = _operands()
    with pytest.raises(AttentionError, match=r"twill::attention_fwd keeps nothing to make one from\n.*attention_fwd_lse"):
        attention_fwd(q.requires_grad_(), k, v, None, False)
    assert not gpu.calls


MISMATCHED: dict[str, tuple[int, Callable[[torch.Tensor], torch.Tensor], str]] = {
    "another type of dO": (0, lambda x: x.float(), r"the gradient of o is \(2, 5, 4, 96\), torch\.float32"),
    "another length of dO": (0, lambda x: x[:, :4], r"the gradient of o is \(2, 4, 4, 96\)"),
    "a sparse dO": (0, lambda x: x.to_sparse(), "the gradient of o is .*torch.sparse_coo"),
    "heads of o": (4, lambda x: x[:, :, :2], r"o is \(2, 5, 2, 96\)"),
    "layout of lse": (5, lambda x: x.transpose(1, 2), r"lse is \(2, 5, 4\)"),
    "type of lse": (5, lambda x: x.half(), "lse is .*torch.float16"),
    "another device": (5, lambda x: x.to("meta"), "lse is .*on meta"),
    "operands": (2, lambda x: x[:, :3], "differ in length or heads"),
}


@pytest.mark.parametrize("name", MISMATCHED)
def test_what_does_not_belong_together_is_refused(gpu: PaperGpu, name: str) -> None:
    position, change, message = MISMATCHED[name]
    q, k, v, do = _operands()
    o, lse = attention_fwd_lse(q, k, v, None, False)
    given = [do, q, k, v, o, lse]
    given[position] = change(given[position])
    with pytest.raises(AttentionError, match=message):
        backward(*given, None, False)
    assert len(gpu.calls) == 1


def test_a_log_sum_exp_with_strides(gpu: PaperGpu) -> None:
    q, k, v, do = _operands()
    o, lse = attention_fwd_lse(q, k, v, None, False)
    plain = attention_bwd(do, q, k, v, o, lse, None, False)
    other = attention_bwd(do, q, k, v, o, lse.transpose(1, 2).contiguous().transpose(1, 2), None, False)
    assert all(torch.equal(x, y) for x, y in zip(plain, other, strict=True))


def test_more_than_32_bits_count_is_refused(gpu: PaperGpu) -> None:
    q = torch.zeros(1, 1, 1, D, dtype=torch.bfloat16).expand(1, 2**31 - 2**15, 1, -1)
    lse = torch.zeros(1, 1, 1).expand(1, 1, q.shape[1])
    with pytest.raises(AttentionError, match="2147450880 queries; kernels of gradients count at most"):
        attention_bwd(q, q, q[:, :5], q[:, :5], q, lse, None, False)


def test_more_iterations_than_a_reciprocal_tells_apart_are_refused(gpu: PaperGpu) -> None:
    rows, heads = selection.choose_backward("sm90", D, D).rows, 64
    q = torch.zeros(1, 1, 1, D, dtype=torch.bfloat16).expand(1, rows * 2**14, heads, -1)
    lse = torch.zeros(1, 1, 1).expand(1, heads, q.shape[1])
    with pytest.raises(
        AttentionError, match="1048576 tiles of queries share a head of k and v; kernels of gradients count fewer than 1048576"
    ):
        attention_bwd(q, q, q[:, :5, :1], q[:, :5, :1], q, lse, None, False)


@pytest.mark.parametrize("sizes", [{}, {"seqlen_k": 0}, {"batch": 0}], ids=str)
@quiet
def test_opcheck(gpu: PaperGpu, sizes: dict[str, int]) -> None:
    q, k, v, do = _operands(**sizes)
    o, lse = attention_fwd_lse(q, k, v, None, True)
    torch.library.opcheck(attention_bwd, (do, q, k, v, o, lse, None, True))
    wanted = tuple(x.requires_grad_() for x in (q, k, v))
    # not what it compiles: that asks for the gradient of lse as well
    torch.library.opcheck(
        attention_fwd_lse, (*wanted, None, True), test_utils=("test_schema", "test_autograd_registration", "test_faketensor")
    )


def _step(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(twill.attention(q * 2, k, v, causal=True)) + q


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@quiet
def test_compiled_whole(gpu: PaperGpu, backend: str, dynamic: bool) -> None:
    torch.compiler.reset()
    compiled = torch.compile(_step, fullgraph=True, dynamic=dynamic, backend=backend)
    for sizes in ({}, {"seqlen_q": 9, "seqlen_k": 12}, {"batch": 3}):
        *operands, do = _operands(**sizes)
        results = []
        for step in (compiled, _step):
            given = [x.clone().requires_grad_() for x in operands]
            o = step(*given)
            results.append((o, *torch.autograd.grad(o, given, do)))
        for ours, plain in zip(*results, strict=True):
            assert torch.equal(ours, plain)


@quiet
def test_compiled_the_log_sum_exp_leaves_detached(gpu: PaperGpu) -> None:
    torch.compiler.reset()

    def both(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        o, lse = twill.attention(q, k, v, return_lse=True)
        return o, lse.detach()

    *operands, do = _operands()
    given = [x.clone().requires_grad_() for x in operands]
    o, lse = torch.compile(both, fullgraph=True, backend="aot_eager")(*given)
    assert not lse.requires_grad
    _close(torch.autograd.grad(o, given, do), _expected(*operands, do, D**-0.5, False))


def test_a_checkpoint_runs_it_again(gpu: PaperGpu) -> None:
    from torch.utils.checkpoint import checkpoint

    *operands, do = _operands()
    given = [x.clone().requires_grad_() for x in operands]
    o = checkpoint(twill.attention, *given, use_reentrant=False)
    _close(torch.autograd.grad(o, given, do), _expected(*operands, do, D**-0.5, False))
    assert len(gpu.calls) == 3


def test_hostile_rows(gpu: PaperGpu) -> None:
    """Queries without keys, and scores so far apart that most exponentials are 0."""
    q, k, v, do = _operands(seqlen_q=9, seqlen_k=4)
    q = q * 50
    given = [x.clone().requires_grad_() for x in (q, k, v)]
    found = torch.autograd.grad(twill.attention(*given, causal=True), given, do)
    assert not bool(found[0][:, :5].any())
    assert all(math.isfinite(float(x.abs().max())) for x in found)
    _close(found, _expected(q, k, v, do, D**-0.5, True))
