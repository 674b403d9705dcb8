"""From a call to values with nothing of paper but the GPU: real plans, real host code, real machine code's PTX, run by the emulator.

So the strides that `twill.attention` hands on are those that TMA walks, with no device at hand; and tensor maps can be looked at for
operands that nobody has the memory for.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

import twill
from tests.gpu import checks
from tests.gpu.cases import ORDERED, Case
from tests.gpu.checks import CHECKS, operands
from tests.pytorch.emulated import MISSING, Emulated, EmulatedBackward
from tests.pytorch.layouts import COPIED, READ_IN_PLACE
from twill.bench.judge import judge
from twill.emulate.errors import EmulationError
from twill.emulate.host.record import TensorArgument
from twill.pytorch import gradients, kernels, plan
from twill.pytorch.catalogue import KernelFile, backward_kernels
from twill.pytorch.operands import Shapes
from twill.pytorch.target import Target

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

SM_COUNT = 2
"""Few, so that blocks walk several work tiles."""
D64 = Case("values", 64, 64, "bf16", True, 2, 4, 2, 70, 150)
Make = Callable[..., Any]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Make:
    folder = tmp_path_factory.mktemp("emulated")

    @cache
    def make(path: Path, dtype: Literal["bf16", "fp16"], causal: bool, lse: bool, kind: str = "attn_fwd",
             deterministic: bool = False) -> Emulated | EmulatedBackward:  # fmt: skip
        if kind == "attn_fwd":
            return Emulated(path, dtype, causal, lse, folder / "cache")
        return EmulatedBackward(path, dtype, causal, deterministic, folder / "cache")

    return make


@pytest.fixture
def gpu(emulated: Make, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    plan.forget_plans()
    gradients.forget_backward_plans()
    monkeypatch.setattr(checks, "DEVICE", "cpu")
    for module in (plan, gradients):
        monkeypatch.setattr(module, "target_of", lambda device: Target("sm90", SM_COUNT, -1))
        monkeypatch.setattr(
            module, "function_of",
            lambda kernel, dtype, causal, lse, deterministic=False: emulated(kernel.path, dtype, causal, lse, kernel.makes, deterministic),
        )  # fmt: skip
        monkeypatch.setattr(module, "counter_of", lambda device: torch.zeros(1, dtype=torch.int32))
    monkeypatch.setattr(plan, "current_device", lambda: -1)
    yield
    plan._plans.clear()
    gradients._plans.clear()


@pytest.mark.parametrize("pair", [(1, 1), (70, 150), (150, 70), (193, 129)])
def test_values(gpu: None, pair: tuple[int, int]) -> None:
    """Causal, with shared heads; the kernels with and without log-sum-exp give the same bits."""
    CHECKS["values"](replace(D64, seqlen_q=pair[0], seqlen_k=pair[1]))


@pytest.mark.parametrize("name", [*READ_IN_PLACE, "batch expanded", "odd row stride"])
def test_layouts(gpu: None, name: str) -> None:
    """Bit for bit what contiguous operands give."""
    assert name in {*READ_IN_PLACE, *COPIED}
    CHECKS["layout"](replace(D64, check="layout", detail=name, heads=2, kv_heads=2, seqlen_q=66, seqlen_k=66, head_dim_v=64))


def test_heads_expanded(gpu: None) -> None:
    q, k, v = operands(replace(D64, kv_heads=1, batch=1))
    wide_k, wide_v = (x.expand(-1, -1, 4, -1) for x in (k, v))
    assert torch.equal(twill.attention(q, wide_k, wide_v, causal=True), twill.attention(q, k, v, causal=True))


def test_another_head_dim_for_v_in_the_other_layout(gpu: None) -> None:
    case = Case("values", 192, 128, "fp16", False, 1, 2, 2, 100, 160)
    q, k, v = operands(case)
    o = twill.scaled_dot_product_attention(*(x.transpose(1, 2).contiguous() for x in (q, k, v)), scale=0.05)
    judge(q, k, v, 0.05, False, o.transpose(1, 2), None)


D96 = Case("gradients", 96, 96, "bf16", True, 1, 4, 2, 70, 150)


@pytest.mark.parametrize("lengths", [(70, 150), (150, 70), (1, 1)])
def test_gradients(gpu: None, lengths: tuple[int, int]) -> None:
    """Causal, with shared heads, from autograd down to the kernels before and after the loop."""
    CHECKS["gradients"](replace(D96, seqlen_q=lengths[0], seqlen_k=lengths[1]))


@pytest.mark.parametrize("lengths", [(70, 150), (150, 70)])
def test_deterministic_gradients(gpu: None, lengths: tuple[int, int]) -> None:
    """From autograd down: right, and the same bits under each of the schedulers that take turns."""
    case = replace(D96, seqlen_q=lengths[0], seqlen_k=lengths[1], detail=ORDERED)
    CHECKS["gradients"](case)
    q, k, v = (x.requires_grad_() for x in operands(case))
    o = twill.attention(q, k, v, causal=True, deterministic=True)
    first, *others = (torch.autograd.grad(o, (q, k, v), torch.ones_like(o), retain_graph=True) for _ in range(3))
    for other in others:
        assert all(torch.equal(x, y) for x, y in zip(first, other, strict=True))


@pytest.mark.parametrize("name", ["one of three packed", "part of wider heads", "all expanded"])
def test_gradients_of_layouts(gpu: None, name: str) -> None:
    CHECKS["gradients layout"](replace(D96, detail=name, heads=2, kv_heads=2, seqlen_q=66, seqlen_k=66))


@pytest.mark.parametrize("kernel", backward_kernels(), ids=lambda k: k.name)
@pytest.mark.parametrize("seqlen_q", [1, 64, 1000])
def test_the_workspace_is_as_large_as_the_kernel_says(kernel: KernelFile, seqlen_q: int) -> None:
    module = importlib.import_module(f"twill.kernels.{kernel.name}")
    shapes = Shapes(3, seqlen_q, 77, 8, 2, kernel.head_dim, kernel.head_dim_v)
    assert gradients.workspace_words(kernel, shapes) == module.tiles.workspace_words(module.TILES, 3, seqlen_q, 8)


@pytest.mark.parametrize("kernel", backward_kernels(), ids=lambda k: k.name)
def test_sums_for_dq_are_counted_in_64_bits(emulated: Make, kernel: KernelFile) -> None:
    """All of them together may be more than 2^31 floats; the number of a tile times its size was 32 bits wide once."""
    module = importlib.import_module(f"twill.kernels.{kernel.name}")
    floats = module.TILES.queries * module.TILES.columns
    ptx = emulated(kernel.path, "bf16", True, False, kernel.makes).ptx
    assert re.search(rf"(mul\.wide\.[su]32|mad\.lo\.s64) [^;]*\b{4 * floats}\b", ptx)
    assert not re.search(rf"(mul|mad)\.lo\.[su]32 [^;]*\b{floats}\b", ptx)


@dataclass(frozen=True)
class Map:
    """A tensor map as the hardware reads it: sizes, and strides in bytes of all dimensions but the first."""

    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


def _decode(data: bytes) -> Map:
    """Four dimensions. Strides are in units of 16 bytes, 32 bits each and 4 more of each in one word; sizes are less one."""
    words = [int.from_bytes(data[n : n + 8], "little") for n in range(0, 48, 8)]
    low = (words[1] >> 32, words[2] & 0xFFFFFFFF, words[2] >> 32)
    high = tuple(words[3] >> (32 + 4 * n) & 0xF for n in range(3))
    strides = tuple((a | b << 32) * 16 for a, b in zip(low, high, strict=True))
    sizes = (words[4] & 0xFFFFFFFF, words[4] >> 32, words[5] & 0xFFFFFFFF, words[5] >> 32)
    return Map(words[0], tuple(n + 1 for n in sizes), strides)


S, H, D = 300, 4, 64
ADDRESS = 1 << 41


def _tensor(batch: int, seqlen: int, heads: int, strides: tuple[int, ...] | None = None, address: int = ADDRESS) -> TensorArgument:
    return TensorArgument(address, "bf16", (batch, seqlen, heads, D), strides or (seqlen * heads * D, heads * D, D, 1))


def _maps(emulated: Make, q: TensorArgument, k: TensorArgument) -> list[tuple[Map, TensorArgument]]:
    """The tensor maps of q, k, v and o beside the tensors."""
    path = next(x.path for x in kernels() if x.name == "sm90_attn_fwd_d64")
    o = _tensor(*q.shape[:3], address=2 * ADDRESS)
    counter = TensorArgument(3 * ADDRESS, "i32", (1,), (1,))
    kernel: Any = emulated(path, "bf16", True, False)
    launch = kernel.launch(q=q, k=k, v=k, o=o, lse=None, counter=counter, softmax_scale=0.1, sm_count=132)
    found = [_decode(launch.parameters[p.offset : p.offset + p.size]) for p in launch.kernel.parameters if p.size == 128]
    return list(zip(found, (q, k, k, o), strict=True))


CASES: dict[str, tuple[TensorArgument, TensorArgument]] = {
    "contiguous": (_tensor(2, S, H), _tensor(2, 77, H)),
    "shared heads": (_tensor(2, S, H), _tensor(2, S, 2)),
    "heads outside": (_tensor(2, S, H, (H * S * D, D, S * D, 1)), _tensor(2, S, H)),
    "one of three packed": (_tensor(2, S, H, (3 * S * H * D, 3 * H * D, D, 1)), _tensor(2, S, H, (3 * S * H * D, 3 * H * D, D, 1))),
    "batches further apart than 2^31 elements": (_tensor(2, S, H, (2**31 + 64, H * D, D, 1)), _tensor(2, S, H, (2**35 + 8, H * D, D, 1))),
    "strides of almost 2^40 bytes": (_tensor(2, S, H, (2**39 - 8, 2**37 + 16, 2**36 + 8, 1)), _tensor(2, S, H, (2**38, D, 2**34, 1))),
    "a long sequence": (_tensor(1, 3, H), _tensor(1, 2**31 - 2**16, H)),
    "sizes of one with odd strides": (_tensor(1, S, 1, (3, D, 5, 1)), _tensor(1, S, 1, (3, D, 5, 1))),
}


@pytest.mark.parametrize("name", CASES)
def test_tensor_maps_are_the_operands(emulated: Make, name: str) -> None:
    for found, tensor in _maps(emulated, *CASES[name]):
        order = (3, 1, 2, 0)
        assert (found.address, found.sizes) == (tensor.address, tuple(tensor.shape[n] for n in order))
        # a dimension of size 1 has no stride worth the name
        for n, dimension in enumerate(order[1:]):
            assert tensor.shape[dimension] == 1 or found.strides[n] == 2 * tensor.strides[dimension]


@pytest.mark.parametrize(
    "q",
    [
        _tensor(2, S, H, address=ADDRESS + 2), _tensor(2, S, H, (S * H * D + 4, H * D, D, 1)),
        _tensor(2, S, H, (S * H * D, H * D + 1, D, 1)), _tensor(2, S, H, (S * H * D * 2, H * D * 2, D * 2, 2)),
    ],
    ids=["data", "batch", "sequence", "dim"],
)  # fmt: skip
def test_what_twill_would_copy_the_host_code_would_refuse(emulated: Make, q: TensorArgument) -> None:
    """A second line of defence: such operands never reach it."""
    with pytest.raises(EmulationError, match="refuses its arguments"):
        _maps(emulated, q, _tensor(2, S, H))
