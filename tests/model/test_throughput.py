"""From cycles to TFLOP/s."""

from __future__ import annotations

import pytest

from twill.model.machine import load_machine
from twill.model.registry import GraphRequest, build_graph
from twill.model.throughput import throughput


@pytest.mark.parametrize(("machine", "peak"), [("b200", 2250), ("b300", 2250), ("h200", 989), ("h100", 989)])
def test_a_busy_tensor_core_is_the_nominal_peak(machine: str, peak: float) -> None:
    chip = load_machine(machine)
    graph = build_graph("attn_fwd", chip, GraphRequest(head_dim=128, tile="256x128", subtiles=2))
    flop = 4 * 256 * 128 * 128
    found = throughput(graph, chip, flop / chip.cost("mma_flops_per_cycle"))
    assert found is not None
    assert found.share == pytest.approx(1)
    assert found.tflops == pytest.approx(peak, rel=1e-3)


def test_the_backward_and_other_head_dims() -> None:
    chip = load_machine("b200")
    graph = build_graph("attn_bwd", chip, GraphRequest(head_dim=192, head_dim_v=128))
    found = throughput(graph, chip, 10_000)
    assert found is not None
    assert found.share == pytest.approx(2 * 128 * 128 * (3 * 192 + 2 * 128) / 10_000 / 8192)


def test_what_has_no_throughput() -> None:
    chip = load_machine("b200")
    assert throughput(build_graph("gemm", chip, GraphRequest()), chip, 1000) is None
    toy = load_machine("toy")
    assert toy.chip is None
    assert throughput(build_graph("toy", toy, GraphRequest()), toy, 2) is None


def test_no_hash_depends_on_the_chip() -> None:
    assert "chip" not in load_machine("b200").model_dump(mode="json")
