"""Costs against numbers worked out by hand from the machines' figures."""

import math

import pytest

from twill.errors import ParameterError
from twill.model.costs import (
    Work,
    compute_cost,
    mma_cost,
    register_handover,
    smem_store_cycles,
    tma_load_cycles,
    tma_store_cycles,
)
from twill.model.machine import load_machine

HOPPER, BLACKWELL, B300 = load_machine("h200"), load_machine("b200"), load_machine("b300")


@pytest.mark.parametrize(
    ("machine", "shape", "occupancy"),
    [
        (BLACKWELL, (128, 128, 128), 512),
        (BLACKWELL, (128, 128, 64), 256),
        (BLACKWELL, (128, 256, 64), 512),
        (HOPPER, (128, 128, 128), 1024),
        (HOPPER, (64, 128, 16), 64),
        (HOPPER, (64, 80, 128), 320),
    ],
)
def test_mma_occupancy(machine, shape, occupancy):
    assert mma_cost(machine, *shape, smem_operands="ab").occupancy_cycles == occupancy


def test_mma_latency_hopper_is_occupancy_and_58():
    assert mma_cost(HOPPER, 64, 128, 128, smem_operands="ab").latency_cycles == 512 + 58


@pytest.mark.parametrize(("k", "measured"), [(128, 900), (64, 559)])
def test_mma_latency_blackwell_is_the_published_one_with_its_mbarrier(k, measured):
    cost = mma_cost(BLACKWELL, 128, 128, k, smem_operands="ab")
    assert cost.latency_cycles + BLACKWELL.cost("handover_mbarrier") == measured


@pytest.mark.parametrize(
    ("machine", "shape", "operands", "ctas", "rate"),
    [
        (HOPPER, (64, 80, 128), "ab", 1, 116),  # (64 + 80) * 128 * 2 bytes in 320 cycles
        (HOPPER, (64, 128, 80), "b", 1, 64),
        (HOPPER, (64, 128, 128), "ab", 1, 96),
        (BLACKWELL, (128, 128, 128), "ab", 1, 128),
        (BLACKWELL, (128, 128, 128), "b", 1, 64),
        (BLACKWELL, (128, 128, 128), "ab", 2, 96),
        (BLACKWELL, (64, 128, 256), "ab", 2, 128),  # dQ of a pair: 32 KB of dS and half of 64 KB of K in 512 cycles
    ],
)
def test_mma_operand_rate(machine, shape, operands, ctas, rate):
    assert mma_cost(machine, *shape, smem_operands=operands, ctas=ctas).smem_bytes_per_cycle == rate


def test_narrow_mma_waits_for_its_operands():
    cost = mma_cost(HOPPER, 64, 48, 64, smem_operands="ab")
    assert cost.occupancy_cycles == (64 + 48) * 64 * 2 / 128  # 112, where the tensor core alone would take 96
    assert cost.smem_bytes_per_cycle == 128


def test_k_is_padded_to_16():
    assert mma_cost(HOPPER, 64, 128, 72, smem_operands="ab") == mma_cost(HOPPER, 64, 128, 80, smem_operands="ab")


@pytest.mark.parametrize("shape", [(100, 128, 128), (0, 128, 128), (64, 128, 128), (128, 100, 128), (128, 128, 12), (128, 0, 16)])
def test_mma_refuses_shapes_that_no_instruction_has(shape):
    with pytest.raises(ParameterError) as error:
        mma_cost(BLACKWELL, *shape, smem_operands="ab")
    assert error.value.hint


def test_half_height_needs_a_pair():
    assert mma_cost(BLACKWELL, 64, 128, 128, smem_operands="ab", ctas=2).occupancy_cycles == 256
    with pytest.raises(ParameterError):
        mma_cost(BLACKWELL, 64, 128, 128, smem_operands="ab", ctas=1)


@pytest.mark.parametrize(("machine", "cycles"), [(BLACKWELL, 1024), (B300, 512)])
def test_exp2_of_a_128x128_tile(machine, cycles):
    assert compute_cost(machine, (Work("mufu", 128 * 128),)).cycles == cycles


def test_exp2_beside_wgmma():
    assert compute_cost(HOPPER, (Work("mufu", 64 * 128),)).cycles == math.ceil(8192 / 16 * 1.344)


def test_other_pipes_hide_beside_the_slowest_on_blackwell_only():
    work = (Work("mufu", 8192), Work("fma", 8192))
    assert compute_cost(BLACKWELL, work).cycles == 512
    assert compute_cost(HOPPER, work).cycles == math.ceil(8192 / 16 * 1.344 + 8192 / 120)


def test_compute_floor_spreads_the_reservation():
    cost = compute_cost(BLACKWELL, (Work("mufu", 1600),), floor_cycles=400)
    assert cost.cycles == 400
    assert [(r.unit, r.cycles, r.amount) for r in cost.reservations] == [("mufu", 400, 25)]


def test_copies():
    assert tma_load_cycles(BLACKWELL, 16384) == 460 + 6 * 16
    assert tma_store_cycles(BLACKWELL, 16384) == 130 + 52 * 16
    assert register_handover(BLACKWELL, 32768) == math.ceil(61 + 16.1 * 32)
    assert smem_store_cycles(HOPPER, 45 * 200) == 200
