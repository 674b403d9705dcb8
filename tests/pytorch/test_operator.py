"""The operator under PyTorch's own checks, its compiler and its tracers."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import twill
from tests.pytorch.conftest import PaperGpu
from twill.pytorch import AttentionError
from twill.pytorch.op import attention_fwd, attention_fwd_lse


def _operands(
    batch: int = 2, seqlen_q: int = 5, seqlen_k: int = 7, heads: int = 4, kv_heads: int = 2, d: int = 64, dv: int = 64
) -> list[torch.Tensor]:
    make = torch.Generator().manual_seed(1)
    shapes = ((batch, seqlen_q, heads, d), (batch, seqlen_k, kv_heads, d), (batch, seqlen_k, kv_heads, dv))
    return [torch.randn(shape, generator=make).to(torch.bfloat16) for shape in shapes]


@pytest.mark.parametrize("operator", [attention_fwd, attention_fwd_lse], ids=["alone", "with lse"])
@pytest.mark.parametrize("sizes", [{}, {"d": 192, "dv": 128}, {"seqlen_k": 0}, {"seqlen_q": 0}, {"batch": 0}], ids=str)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_opcheck(gpu: PaperGpu, operator: object, sizes: dict[str, int]) -> None:
    torch.library.opcheck(operator, (*_operands(**sizes), None, True))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("causal", [False, True])
def test_fake_results_are_like_the_real_ones(gpu: PaperGpu, device: str, causal: bool) -> None:
    """On a machine without a GPU fake CUDA tensors go through as well."""
    real = twill.attention(*(x.transpose(0, 1).contiguous().transpose(0, 1) for x in _operands()), causal=causal, return_lse=True)
    with FakeTensorMode():
        fake = twill.attention(*(torch.empty_like(x, device=device) for x in _operands()), causal=causal, return_lse=True)
    for r, f in zip(real, fake, strict=True):
        assert (f.shape, f.dtype, f.stride(), f.device.type) == (r.shape, r.dtype, r.stride(), device)


def test_wrong_operands_are_refused_while_tracing() -> None:
    with FakeTensorMode(), pytest.raises(AttentionError, match="head dims differ: q 64, k 96"):
        q = torch.empty(2, 4, 4, 64, dtype=torch.bfloat16, device="cuda")
        k = torch.empty(2, 4, 4, 96, dtype=torch.bfloat16, device="cuda")
        twill.attention(q, k, k)


def test_meta_tensors_have_shapes() -> None:
    q, k, v = (x.to("meta") for x in _operands())
    o, lse = twill.attention(q, k, v, return_lse=True)
    assert (o.shape, o.device.type, lse.shape) == ((2, 5, 4, 64), "meta", (2, 4, 5))


def _model(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Layouts of both kinds, arithmetic on both sides, and an operand that is used again afterwards."""
    o, lse = twill.attention(q * 2, k, v, causal=True, return_lse=True)
    other = twill.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), enable_gqa=True)
    return o + q, lse.exp(), other.sum(dim=1)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_compiled_whole_it_is_the_same(gpu: PaperGpu, backend: str, dynamic: bool) -> None:
    torch.compiler.reset()
    compiled = torch.compile(_model, fullgraph=True, dynamic=dynamic, backend=backend)
    for sizes in ({}, {"seqlen_q": 9, "seqlen_k": 12}, {"batch": 3}):
        operands = _operands(**sizes)
        for ours, plain in zip(compiled(*operands), _model(*operands), strict=True):
            assert torch.equal(ours, plain)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_one_dynamic_graph_serves_all_lengths(gpu: PaperGpu) -> None:
    torch.compiler.reset()
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(lambda q, k, v: twill.attention(q, k, v), fullgraph=True, dynamic=True, backend=backend)
    for length in (5, 6, 9, 100):
        compiled(*_operands(seqlen_q=length, seqlen_k=length + 1))
    assert len(graphs) == 1
    assert [n.target for n in graphs[0].graph.nodes if n.op == "call_function"] == [torch.ops.twill.attention_fwd.default]


def test_results_are_new_and_operands_stay(gpu: PaperGpu) -> None:
    operands = _operands()
    copies = [x.clone() for x in operands]
    versions = [x._version for x in operands]
    first, second = (twill.attention(*operands, return_lse=True) for _ in range(2))
    storages = {x.untyped_storage().data_ptr() for x in (*operands, *first, *second)}
    assert len(storages) == 7
    assert all(torch.equal(x, y) for x, y in zip(operands, copies, strict=True))
    assert [x._version for x in operands] == versions


def test_exported(gpu: PaperGpu) -> None:
    class Model(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return twill.attention(q, k, v, causal=True)

    operands = tuple(_operands())
    program = torch.export.export(Model(), operands)
    assert torch.equal(program.module()(*operands), twill.attention(*operands, causal=True))
