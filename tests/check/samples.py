"""Schedules that the tests of the checker share: hand-made ones, and one of a shipped graph from the greedy scheduler."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

from twill.model.builder import GraphBuilder
from twill.model.costs import Work
from twill.model.graph import Buffer, Edge, LoopGraph, Op, Reader, RegisterValue, Reservation
from twill.model.graphs.attn_fwd import AttnFwd, attn_fwd
from twill.model.graphs.parameters import Tile
from twill.model.machine import Machine, load_machine
from twill.model.schedule import Options, Schedule, parse_schedule

from .authoring import handmade_machine, life, stride, write_schedule
from .greedy import greedy_starts

SCHEDULES = Path(__file__).parents[2] / "schedules"


def _half_alu(cycles: int) -> Reservation:
    return Reservation(unit="alu", cycles=cycles, amount=50)


def ring_graph() -> LoopGraph:
    """A load into a ring, a matrix instruction into TMEM, and two ops that share its result through registers.

    LD (200) -> MM (100) -> AD (60) -> ST (40), AD feeds itself across iterations.
    """
    tensor = (Reservation(unit="tensor", cycles=50, amount=100), Reservation(unit="smem", cycles=50, amount=32))
    load = {"asynchronous": True, "variable_latency": True, "warps": 1}
    read_x = Reader(op="MM", hold_cycles=100, cross_group_cycles=30)
    read_t = Reader(op="AD", hold_cycles=60, cross_group_cycles=30)
    return LoopGraph(
        name="ring", machine="handmade",
        ops=(
            Op(name="LD", kind="tma_load", unit="tma", latency_cycles=200, issue_cycles=10, **load),
            Op(name="MM", kind="mma", unit="tensor", latency_cycles=100, issue_cycles=20, asynchronous=True, warps=1, reservations=tensor),
            Op(name="AD", kind="add", unit="alu", latency_cycles=60, issue_cycles=60, reservations=(_half_alu(60),)),
            Op(name="ST", kind="store", unit="alu", latency_cycles=40, issue_cycles=40, reservations=(_half_alu(40),)),
        ),
        edges=(
            Edge(src="LD", dst="MM", kind="smem", value="X", latency_cycles=200, same_group_cycles=30, cross_group_cycles=30),
            Edge(src="MM", dst="AD", kind="tmem", value="T", latency_cycles=100, same_group_cycles=10, cross_group_cycles=30),
            Edge(src="AD", dst="AD", kind="registers", value="acc", distance=1, latency_cycles=60, cross_group_cycles=90),
            Edge(src="AD", dst="ST", kind="registers", value="y", latency_cycles=60, cross_group_cycles=90),
        ),
        buffers=(
            Buffer(name="X", memory="smem", size=96, writers=("LD",), readers=(read_x,), prefetch=True),
            Buffer(name="W", memory="smem", size=500, persistent=True),
            Buffer(name="T", memory="tmem", size=64, writers=("MM",), readers=(read_t,)),
            Buffer(name="U", memory="tmem", size=64, persistent=True),
        ),
        values=(
            RegisterValue(name="acc", producer="AD", registers=16, persistent=True),
            RegisterValue(name="y", producer="AD", registers=32, readers=(Reader(op="ST", hold_cycles=40),)),
        ),
        reserved={"smem": 100},
    )  # fmt: skip


RING_GROUPS = {"load": ("LD",), "mma": ("MM",), "one": ("AD",), "two": ("ST",)}
RING_STARTS = {"LD": 0, "MM": 230, "AD": 360, "ST": 510}
RING_PLACED = {"X": (500, 2), "W": (0, 1), "T": (0, 1), "U": (64, 1)}


def ring_schedule() -> tuple[Schedule, Machine]:
    """Four groups at I = 220; X lives from 0 to 360, T from 230 to 450: exactly one period."""
    machine = handmade_machine()
    schedule = write_schedule(ring_graph(), machine, ii=220, starts=RING_STARTS, groups=RING_GROUPS, placed=RING_PLACED)
    return schedule, machine


def overlay_graph() -> LoopGraph:
    """Two matrix instructions after one another whose results need 128 and 64 columns, of which there are 128."""
    mma = {"kind": "mma", "unit": "tensor", "latency_cycles": 100, "issue_cycles": 10, "asynchronous": True, "warps": 1}
    tensor = (Reservation(unit="tensor", cycles=80, amount=100),)
    return LoopGraph(
        name="overlay", machine="handmade",
        ops=(
            Op(name="M1", reservations=tensor, **mma),
            Op(name="R1", kind="read", unit="alu", latency_cycles=50, issue_cycles=50),
            Op(name="M2", reservations=tensor, **mma),
            Op(name="R2", kind="read", unit="alu", latency_cycles=50, issue_cycles=50),
        ),
        edges=(
            Edge(src="M1", dst="R1", kind="tmem", value="A", latency_cycles=100, same_group_cycles=10, cross_group_cycles=20),
            Edge(src="R1", dst="M2", kind="order", latency_cycles=50, cross_group_cycles=20),
            Edge(src="M2", dst="R2", kind="tmem", value="B", latency_cycles=100, same_group_cycles=10, cross_group_cycles=20),
        ),
        buffers=(
            Buffer(name="A", memory="tmem", size=128, writers=("M1",), readers=(Reader(op="R1", hold_cycles=50, cross_group_cycles=20),)),
            Buffer(name="B", memory="tmem", size=64, writers=("M2",), readers=(Reader(op="R2", hold_cycles=50, cross_group_cycles=20),)),
        ),
    )  # fmt: skip


def overlay_schedule(placed_b: int = 32, m2: int = 190) -> tuple[Schedule, Machine]:
    """A lives in [0, 190), B in [190, 380): at I = 380 each cycle has one of them, at the same addresses."""
    machine = handmade_machine()
    starts = {"M1": 0, "R1": 120, "M2": m2, "R2": m2 + 120}
    schedule = write_schedule(
        overlay_graph(), machine, ii=380, starts=starts, groups={"mma": ("M1", "M2"), "read": ("R1", "R2")},
        placed={"A": (0, 1), "B": (placed_b, 1)},
    )  # fmt: skip
    return schedule, machine


def builder_schedule() -> tuple[Schedule, Machine]:
    """A streaming loop from GraphBuilder on the H200: load, then scale, in a ring of as many stages as fit."""
    machine = load_machine("h200")
    b = GraphBuilder("axpy_tile", machine)
    b.load("LX", "X", 16384)
    b.compute("F", "fma", work=(Work("fma", 8192),), unit="fma")
    b.read("LX", "F", "X", hold_cycles=b.issue_cycles("F"))
    b.value("y", "F", 64)
    graph = b.finish()
    ii = math.ceil(8192 / 120)
    starts = {"LX": 0, "F": graph.op("LX").latency_cycles + 110}
    schedule = write_schedule(
        graph, machine, ii=ii, starts=starts, groups={"load": ("LX",), "scale": ("F",)}, placed={"X": (0, 14)},
        options=Options(groups=2, max_copies=20),
    )  # fmt: skip
    return schedule, machine


def shared_group_schedule() -> tuple[Schedule, Machine]:
    """ring_graph without hand-over costs, registers local, one group for AD and ST, on a grid of 10 cycles."""
    machine = handmade_machine()
    options = Options(groups=3, max_copies=3, without=("hand-over",), with_rules=("local-registers",), time_unit_cycles=10, registers=96)
    schedule = write_schedule(
        ring_graph(), machine, ii=170, starts={"LD": 0, "MM": 230, "AD": 340, "ST": 400}, options=options,
        groups={"load": ("LD",), "mma": ("MM",), "math": ("AD", "ST")}, placed=RING_PLACED,
    )  # fmt: skip
    return schedule, machine


def _groups(graph: LoopGraph, machine: Machine) -> dict[str, tuple[str, ...]]:
    kinds: dict[str, list[str]] = {}
    for op in graph.ops:
        x = "ab"[op.subtile or 0]
        if op.variable_latency:
            kinds.setdefault("load", []).append(op.name)
        elif machine.accumulator == "tmem" and op.asynchronous:
            kinds.setdefault("mma", []).append(op.name)
        elif machine.accumulator == "tmem" and op.kind == "rescale":
            kinds.setdefault("rescale", []).append(op.name)
        else:
            kinds.setdefault(f"softmax_{x}", []).append(op.name)
    return {name: tuple(ops) for name, ops in kinds.items()}


@cache
def attention_schedule(machine_name: str) -> tuple[Schedule, Machine]:
    """The attention forward loop at the first I, in steps of 200, at which the greedy scheduler finds a legal place for everything."""
    machine = load_machine(machine_name)
    two = AttnFwd(tile=Tile(128, 128), subtiles=2, rescale="always") if machine.accumulator == "registers" else None
    graph = attn_fwd(machine, two)
    groups = _groups(graph, machine)
    group = {op: name for name, ops in groups.items() for op in ops}
    options = Options(groups=len(groups), max_copies=4)
    for ii in range(2400, 8000, 200):
        starts = greedy_starts(graph, machine, groups, ii)
        if starts is None:
            continue
        offsets = dict.fromkeys(machine.memories, 0)
        placed = {}
        for buffer in graph.buffers:
            begin, end = (0, ii) if buffer.persistent else life(graph, buffer, starts, group, ii, options)
            stages = math.ceil((end - begin) / ii)
            placed[buffer.name] = (offsets[buffer.memory], stages)
            offsets[buffer.memory] += stages * stride(buffer, machine)
        if all(size <= machine.memory_size(m) - graph.reserved.get(m, 0) for m, size in offsets.items()):
            return write_schedule(graph, machine, ii=ii, starts=starts, groups=groups, placed=placed, options=options), machine
    raise AssertionError("the greedy scheduler found no schedule")


def _file(path: Path) -> Callable[[], tuple[Schedule, Machine]]:
    def read() -> tuple[Schedule, Machine]:
        schedule = parse_schedule(path.read_text(encoding="utf-8"), path.name)
        return schedule, load_machine(schedule.machine.name)

    return read


LEGAL: dict[str, Callable[[], tuple[Schedule, Machine]]] = {
    "ring": ring_schedule,
    "overlay": overlay_schedule,
    "builder": builder_schedule,
    "shared-group": shared_group_schedule,
    "attn_fwd-h200": lambda: attention_schedule("h200"),
    "attn_fwd-b200": lambda: attention_schedule("b200"),
}
"""Legal schedules by name; files in schedules/ join them."""

LEGAL |= {path.stem: _file(path) for path in sorted(SCHEDULES.glob("*.json"))}
