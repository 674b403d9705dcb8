"""What the builder adds to the costs of single operations."""

import math

import pytest

from twill.model.builder import GraphBuilder
from twill.model.costs import Work
from twill.model.machine import load_machine

HOPPER, BLACKWELL = load_machine("h200"), load_machine("b200")


def reservation(op, unit):
    return next(r for r in op.reservations if r.unit == unit)


def test_fma_work_lengthens_mmas_on_hopper_only():
    for machine, expected in ((HOPPER, math.ceil(512 * (1 + 0.57 * 128 / 512))), (BLACKWELL, 512)):
        m = 64 if machine is HOPPER else 128
        b = GraphBuilder("g", machine)
        b.mma("MM", "mma", m, 128, 128, smem_operands="b")
        b.compute("F", "fma", work=(Work("fma", 128 * machine.cost("fma_lanes")),))
        b.edge("MM", "F", "registers", size_bytes=1024)
        before = b.latency_cycles("MM")
        graph = b.finish()
        mm = graph.op("MM")
        assert reservation(mm, "tensor").cycles == expected
        assert mm.latency_cycles == before + expected - 512
        assert graph.edges[0].latency_cycles == mm.latency_cycles


def test_bulk_copies_slow_down_mmas_that_saturate_the_port():
    b = GraphBuilder("g", BLACKWELL)
    b.mma("SS", "mma", 128, 128, 128, smem_operands="ab")
    b.mma("TS", "mma", 128, 128, 128, smem_operands="b")
    b.bulk("RED", "reduce_add", 32 * 1024)  # 32 bytes in each of 1024 cycles
    graph = b.finish()
    assert [(r.unit, r.cycles, r.amount) for r in graph.op("SS").reservations] == [("tensor", 640, 100), ("smem", 640, 128)]
    assert [(r.unit, r.cycles, r.amount) for r in graph.op("TS").reservations] == [("tensor", 512, 100), ("smem", 512, 96)]
    assert graph.op("RED").latency_cycles == 130 + 52 * 32


def test_holds_grow_with_the_mma_but_in_place_stays_in_place():
    b = GraphBuilder("g", HOPPER)
    b.load("LX", "X", 16384)
    b.mma("MM", "mma", 64, 128, 128, smem_operands="ab")
    b.read("LX", "MM", "X", hold_cycles=b.latency_cycles("MM"))
    b.compute("F", "fma", work=(Work("fma", 15360),))
    b.value("Z", "MM", 64)
    b.use("Z", "F", hold_cycles=0, size_bytes=32768)
    graph = b.finish()
    assert graph.buffers[0].readers[0].hold_cycles == graph.op("MM").latency_cycles > 570
    assert graph.values[0].readers[0].hold_cycles == 0


def test_hand_overs():
    b = GraphBuilder("g", BLACKWELL)
    b.load("LX", "X", 1024)
    b.mma("MM", "mma", 128, 128, 128, smem_operands="ab")
    b.compute("F", "fma", work=(Work("fma", 1024),))
    for src, dst, kind, size, same, cross in (
        ("LX", "MM", "smem", 0, 92, 92),  # a load is always seen through its mbarrier
        ("MM", "F", "tmem", 0, 92, 92),  # and so is the end of an MMA, by its own group too
        ("F", "MM", "smem", 0, 0, 92),
        ("F", "MM", "registers", 10240, 0, 61 + 161),
    ):
        edge = b.edge(src, dst, kind, size_bytes=size)
        assert (edge.same_group_cycles, edge.cross_group_cycles) == (same, cross)
    hopper = GraphBuilder("g", HOPPER)
    hopper.mma("MM", "mma", 64, 128, 128, smem_operands="ab")
    hopper.compute("F", "fma", work=(Work("fma", 1024),))
    assert hopper.edge("MM", "F", "registers", size_bytes=1024).same_group_cycles == 0


def test_ports_are_spread_over_the_whole_op():
    b = GraphBuilder("g", HOPPER)
    op = b.compute("ST", "store", work=(), floor_cycles=100, extra_cycles=100, ports={"smem": 9000})
    assert reservation(op, "smem").cycles == 200
    assert reservation(op, "smem").amount == 45


def test_a_second_load_refills_the_buffer():
    b = GraphBuilder("g", BLACKWELL)
    b.load("L1", "X", 1024)
    b.load("L2", "X", 2048)
    b.compute("F", "fma", work=(Work("fma", 1024),))
    b.read("L2", "F", "X", hold_cycles=8)
    (buffer,) = b.finish().buffers
    assert (buffer.writers, buffer.size, buffer.prefetch) == (("L1", "L2"), 2048, False)


@pytest.mark.parametrize("rows", [0, 512])
def test_row_statistics_arrive_with_the_tile(rows):
    b = GraphBuilder("g", BLACKWELL)
    assert b.load("LX", "X", 8192, row_bytes=rows).latency_cycles == 460 + math.ceil(6 * (8192 + rows) / 1024)
