"""Whole graphs against the rooflines of the FlashAttention-4 paper and against measurements on Hopper."""

import pytest

from twill.model.graphs.attn_bwd import AttnBwd, attn_bwd
from twill.model.graphs.attn_fwd import AttnFwd, attn_fwd
from twill.model.graphs.parameters import Tile
from twill.model.machine import load_machine


def uncontended(name):
    """The machine without what FMA work and a narrow SMEM port take from MMAs."""
    machine = load_machine(name)
    stolen = machine.costs["mma_stolen_by_fma"].model_copy(update={"value": 0})
    port = machine.units["smem"].model_copy(update={"capacity": machine.units["smem"].capacity.model_copy(update={"value": 10**6})})
    return machine.model_copy(update={"costs": {**machine.costs, "mma_stolen_by_fma": stolen}, "units": {**machine.units, "smem": port}})


def busy(graph, unit):
    return sum(r.cycles * r.amount for op in graph.ops for r in op.reservations if r.unit == unit)


@pytest.mark.parametrize(
    ("machine", "tile", "cycles"), [("b200", Tile(256, 128), 2048), ("b200", Tile(128, 128), 1024), ("h200", Tile(128, 128), 2048)]
)
def test_forward_mma(machine, tile, cycles):
    graph = attn_fwd(uncontended(machine), AttnFwd(tile=tile))
    assert busy(graph, "tensor") == 100 * cycles


def test_forward_smem_and_exp():
    graph = attn_fwd(load_machine("b200"), AttnFwd(poly_share=0.0))
    assert busy(graph, "smem") == 128 * 1536
    assert busy(graph, "mufu") == 100 * 2048


def test_forward_softmax_beside_wgmma_takes_what_was_measured():
    """1200-1280; the sum of the contended pipes is 1278, and each of the four ops rounds up."""
    graph = attn_fwd(load_machine("h200"), AttnFwd(tile=Tile(128, 128)))
    assert sum(graph.op(f"{name}_a").latency_cycles for name in ("MAX", "EXP", "SUM", "CVT")) == pytest.approx(1278, abs=4)


@pytest.mark.parametrize(
    ("machine", "parameters", "cycles"),
    [
        ("b200", AttnBwd(), 2560),
        ("b200", AttnBwd(ctas=2), 2560),
        ("b200", AttnBwd(head_dim=64), 1280),
        ("b200", AttnBwd(head_dim=192, head_dim_v=128), 3328),
        ("b200", AttnBwd(head_dim=256), 2560),
        ("h200", AttnBwd(), 3200),
        ("h200", AttnBwd(tile=Tile(64, 128)), 2560),
        ("h200", AttnBwd(head_dim=64), 1600),
        ("h200", AttnBwd(head_dim=64, tile=Tile(128, 128)), 2560),
    ],
)
def test_backward_mma(machine, parameters, cycles):
    assert busy(attn_bwd(uncontended(machine), parameters), "tensor") == 100 * cycles


@pytest.mark.parametrize(("machine", "cycles"), [("b200", 1024), ("b300", 512)])
def test_backward_exp(machine, cycles):
    assert busy(attn_bwd(load_machine(machine)), "mufu") == 100 * cycles


def test_backward_smem_is_the_roofline_of_one_block():
    """((4Md + 3Nd + MN) + MN) / 64 + Md / 16 = 3328 for M = N = d = 128; rounding up each rate adds less than 1 %."""
    cycles = busy(attn_bwd(load_machine("b200")), "smem") / 128
    assert 3328 <= cycles < 1.01 * 3328


def test_backward_smem_on_hopper():
    """Operands 2368, dS 160, dQ staging 320 and its read 320; the fills (another 320) slow nothing down."""
    cycles = busy(attn_bwd(load_machine("h200")), "smem") / 128
    assert 3168 <= cycles < 1.02 * 3168
    assert 3168 + 2 * 80 * 128 * 2 / 128 == 3488


def test_backward_exp_on_hopper():
    graph = attn_bwd(load_machine("h200"))
    assert graph.op("EXP_a").latency_cycles == pytest.approx(64 * 80 / 16 * 1.344 + 64 * 80 / 120, abs=1)


def test_backward_registers_on_hopper():
    """dK and dV 64 each, S and dP 40 each, which become P and dS of 20; dQ^T 40: 128 + 80 + 32 = 240."""
    machine = load_machine("h200")
    values = {v.name: v for v in attn_bwd(machine).values}
    assert {n: v.registers for n, v in values.items() if n.endswith("_a")} == {
        "S_a": 40, "E_a": 40, "P_a": 20, "dP_a": 40, "dS_a": 20, "dV_a": 64, "dK_a": 64, "dQ_a": 40,
    }  # fmt: skip
    assert [n for n, v in values.items() if v.persistent] == ["dV_a", "dK_a", "dV_b", "dK_b"]
    in_place = {(v.name, r.op) for v in values.values() for r in v.readers if r.hold_cycles == 0}
    assert {("S_a", "EXP_a"), ("E_a", "CVT_a"), ("dP_a", "DS_a")} <= in_place
    assert 128 + 80 + machine.registers.overhead_per_thread.value == 240


def test_backward_dq_leaves_registers_of_a_pair_in_half():
    one, two = (attn_bwd(load_machine("b200"), AttnBwd(ctas=c)) for c in (1, 2))
    size = {g.parameters["ctas"]: next(b.size for b in g.buffers if b.name == "dQ") for g in (one, two)}
    assert size == {1: 128, 2: 64}
    assert two.op("XCH").kind == "exchange"
    assert {e.src for e in two.edges if e.dst == "XCH"} == {"DS"}
    assert "XCH" in {e.src for e in two.edges if e.dst == "DQ"}


@pytest.mark.parametrize(
    ("head_dim", "columns"),
    [
        (64, {"dV": 64, "dK": 64, "S": 128, "dP": 128, "P": 64, "dS_k": 64, "dQ": 64}),
        (96, {"dV": 96, "dK": 96, "SP": 128, "dPdS": 128, "dQ": 96}),
    ],
)
def test_backward_tmem_columns(head_dim, columns):
    graph = attn_bwd(load_machine("b200"), AttnBwd(head_dim=head_dim))
    assert {b.name: b.size for b in graph.buffers if b.memory == "tmem"} == columns
