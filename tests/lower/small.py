"""A small pipeline by hand: a load into a ring that two compute groups read, whose results a third combines."""

from __future__ import annotations

from check.authoring import handmade_machine, write_schedule

from twill.check import checked
from twill.lower import WarpProgram, lower
from twill.model.graph import Buffer, Edge, LoopGraph, Op, Reader
from twill.model.schedule import Schedule

GROUPS = {"load": ("LD",), "left": ("A",), "right": ("B",), "sum": ("C",)}
STARTS = {"LD": 0, "A": 130, "B": 130, "C": 220}


def small_graph(kind: str = "smem") -> LoopGraph:
    """LD (100) -> A, B (60 each) -> C (40); ``kind`` of the edges into C: ``smem`` through buffer Y, or ``order``."""
    reads = tuple(Reader(op=v, hold_cycles=60, cross_group_cycles=30) for v in "AB")
    load = {"asynchronous": True, "variable_latency": True, "warps": 1}
    crossing = {"same_group_cycles": 30, "cross_group_cycles": 30}
    y = Buffer(name="Y", memory="smem", size=40, writers=("A", "B"), readers=(Reader(op="C", hold_cycles=40, cross_group_cycles=30),))
    return LoopGraph(
        name="small", machine="handmade",
        ops=(
            Op(name="LD", kind="tma_load", unit="tma", latency_cycles=100, issue_cycles=10, **load),
            Op(name="A", kind="left", unit="alu", latency_cycles=60, issue_cycles=60, subtile=0),
            Op(name="B", kind="right", unit="alu", latency_cycles=60, issue_cycles=60, subtile=1),
            Op(name="C", kind="sum", unit="alu", latency_cycles=40, issue_cycles=40),
        ),
        edges=(
            *(Edge(src="LD", dst=v, kind="smem", value="X", latency_cycles=100, **crossing) for v in "AB"),
            *(Edge(src=v, dst="C", kind=kind, value="Y", latency_cycles=60, **crossing) for v in "AB"),
        ),
        buffers=(
            Buffer(name="X", memory="smem", size=96, writers=("LD",), readers=reads, prefetch=True),
            *((y,) if kind == "smem" else ()),
        ),
    )  # fmt: skip


def small_program(kind: str = "smem") -> tuple[Schedule, WarpProgram]:
    machine = handmade_machine(max_warps=16)
    placed = {"X": (0, 3), "Y": (300, 2)} if kind == "smem" else {"X": (0, 3)}
    schedule = write_schedule(small_graph(kind), machine, ii=100, starts=STARTS, groups=GROUPS, placed=placed)
    return schedule, lower(checked(schedule, machine))
