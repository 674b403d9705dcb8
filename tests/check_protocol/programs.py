"""Two WarpPrograms written by hand: FA3's order on Hopper with ping-pong barriers, and FA4's on Blackwell with a rescale role."""

from __future__ import annotations

from functools import cache

from twill.schedules import load

from twill.lower.program import Access, Arrive, Barrier, Execute, Instruction, Role, Storage, Wait, WaitOwn, WarpProgram
from twill.model.graph import LoopGraph
from twill.model.machine import load_machine
from twill.model.registry import GraphRequest, build_graph


@cache
def hopper_graph() -> LoopGraph:
    request = GraphRequest(tile="128x128", subtiles=2, settings={"rescale": "always"})
    return build_graph("attn_fwd", load_machine("h200"), request)


@cache
def blackwell_graph() -> LoopGraph:
    return load("sm100_attn_fwd_d128").graph


def _program(graph: LoopGraph, roles: tuple[Role, ...], storage: tuple[Storage, ...], barriers: tuple[Barrier, ...]) -> WarpProgram:
    return WarpProgram(
        "by hand", roles, storage, barriers, frozenset(o.name for o in graph.ops if o.asynchronous),
        {o.name: o.latency_cycles for o in graph.ops}, {o.name: o.issue_cycles for o in graph.ops},
    )  # fmt: skip


def _load(stages_k: int, stages_v: int, registers: int) -> Role:
    body: tuple[Instruction, ...] = (
        Wait("K_empty", 0, stages_k), Execute("LK", 0, (Access("K", "write"),)), Arrive("K_full", 0, 1, "after", "LK"),
        Wait("V_empty", 0, stages_v), Execute("LV", 0, (Access("V", "write"),)), Arrive("V_full", 0, 1, "after", "LV"),
    )  # fmt: skip
    return Role("load", 1, registers, body)


def _full(ring: str, slots: int, users: tuple[str, ...]) -> Barrier:
    return Barrier(f"{ring}_full", "mbarrier", slots, 1, tuple(f"edge L{ring}->{u}" for u in users), tx_bytes=32768)


def _consumer(x: str, turn: str, other: str, lag: int) -> Role:
    """FA3: QK of the next tile, then PV of this one, are issued back to back; softmax of the next tile runs beside PV."""
    body: tuple[Instruction, ...] = (
        Wait("K_full", 0, 0),
        Wait(turn, 0, lag),
        Execute(f"QK_{x}", 0, (Access("K", "read"),)),
        Wait("V_full", 1, 0),
        Execute(f"PV_{x}", 1, (Access("V", "read"),)),
        Arrive(other, 0, 1),
        WaitOwn(1, 0, (1,), (f"edge QK_{x}->MAX_{x}", f"edge QK_{x}->EXP_{x}")),
        Arrive("K_empty", 0, 1),
        Execute(f"MAX_{x}", 0),
        Execute(f"EXP_{x}", 0),
        Execute(f"SUM_{x}", 0),
        WaitOwn(0, 1, (), (f"edge PV_{x}->RESC_{x}@1",)),
        Arrive("V_empty", 1, 1),
        Execute(f"CVT_{x}", 0),
        Execute(f"RESC_{x}", 0),
    )
    return Role(f"softmax_{x}", 4, 240, body)


def hopper() -> WarpProgram:
    graph = hopper_graph()
    qk, pv = ("QK_a", "QK_b"), ("PV_a", "PV_b")
    barriers = (
        _full("K", 3, qk),
        Barrier("K_empty", "mbarrier", 3, 2, tuple(f"release K by {u}" for u in qk)),
        _full("V", 3, pv),
        Barrier("V_empty", "mbarrier", 3, 2, tuple(f"release V by {u}" for u in pv)),
        Barrier("turn_a", "named", 1, 1, ("order QK_b->QK_a@1",), named_id=1),
        Barrier("turn_b", "named", 1, 1, ("order QK_a->QK_b",), named_id=2),
    )
    storage = (
        Storage("K", "smem", 0, 32768, 3, False), Storage("V", "smem", 98304, 32768, 3, False), Storage("Q", "smem", 196608, 32768, 1, True)
    )  # fmt: skip
    roles = (_load(3, 3, 24), _consumer("a", "turn_a", "turn_b", 1), _consumer("b", "turn_b", "turn_a", 0))
    return _program(graph, roles, storage, barriers)


def _mma_of(x: str) -> tuple[Instruction, ...]:
    """PV of the tile before, then QK over its scores: the tensor core runs them in order."""
    score, out, v = Access(f"SP_{x}", "read"), Access(f"O_{x}", "write"), Access("V", "read")
    return (
        Wait(f"P0_{x}", 1, 0),
        Wait(f"O_{x}_scaled", 1, 0),
        Execute(f"PV_{x}0", 1, (score, v, out)),
        Wait(f"P1_{x}", 1, 0),
        Execute(f"PV_{x}1", 1, (score, v, out)),
    )


def _qk_of(x: str) -> tuple[Instruction, ...]:
    return (
        Execute(f"QK_{x}", 0, (Access("K", "read"), Access(f"SP_{x}", "write"))),
        Arrive(f"S_{x}", 0, 1, "after", f"QK_{x}"),
    )


def _softmax(x: str) -> Role:
    score = f"SP_{x}"
    body: tuple[Instruction, ...] = (
        Wait(f"S_{x}", 0, 0),
        Execute(f"MAX_{x}", 0, (Access(score, "read"), Access(f"STAT_{x}", "write"))),
        Arrive(f"STAT_{x}_full", 0, 1),
        Execute(f"EXP_{x}0", 0, (Access(score, "write"),)),
        Arrive(f"P0_{x}", 0, 1),
        Execute(f"EXP_{x}1", 0, (Access(score, "write"),)),
        Arrive(f"P1_{x}", 0, 1),
        Execute(f"SUM_{x}", 0),
    )
    return Role(f"softmax_{x}", 4, 168, body)


def blackwell() -> WarpProgram:
    graph = blackwell_graph()
    mma = Role("mma", 1, 48, (
        Wait("V_full", 1, 0), *_mma_of("a"),
        Wait("K_full", 0, 0), *_qk_of("a"),
        *_mma_of("b"), Arrive("V_empty", 1, 1, "after", "PV_b1"),
        *_qk_of("b"), Arrive("K_empty", 0, 1, "after", "QK_b"),
    ))  # fmt: skip
    rescale: tuple[Instruction, ...] = ()
    barriers = [
        _full("K", 2, ("QK_a", "QK_b")),
        Barrier("K_empty", "mbarrier", 2, 1, ("release K by QK_a", "release K by QK_b")),
        _full("V", 1, ("PV_a0", "PV_a1", "PV_b0", "PV_b1")),
        Barrier("V_empty", "mbarrier", 1, 1, ("release V by PV_a1", "release V by PV_b1")),
    ]
    for x in "ab":
        rescale += (
            Wait(f"STAT_{x}_full", 0, 0),
            Execute(f"RESC_{x}", 0, (Access(f"STAT_{x}", "read"), Access(f"O_{x}", "write"))),
            Arrive(f"O_{x}_scaled", 0, 1),
        )
        barriers += [
            Barrier(f"S_{x}", "mbarrier", 1, 1, (f"edge QK_{x}->MAX_{x}",)),
            Barrier(f"STAT_{x}_full", "mbarrier", 1, 1, (f"edge MAX_{x}->RESC_{x}",)),
            Barrier(f"P0_{x}", "mbarrier", 1, 1, (f"edge EXP_{x}0->PV_{x}0",)),
            Barrier(f"P1_{x}", "mbarrier", 1, 1, (f"edge EXP_{x}1->PV_{x}1",)),
            Barrier(f"O_{x}_scaled", "mbarrier", 1, 1, (f"edge RESC_{x}->PV_{x}0",)),
        ]
    storage = (
        Storage("K", "smem", 0, 32768, 2, False), Storage("V", "smem", 65536, 32768, 1, False), Storage("Q", "smem", 98304, 65536, 1, True),
        Storage("O_staging", "smem", 163840, 65536, 1, True),
        Storage("STAT_a", "smem", 229376, 512, 1, False), Storage("STAT_b", "smem", 229888, 512, 1, False),
        Storage("O_a", "tmem", 0, 128, 1, True), Storage("O_b", "tmem", 128, 128, 1, True),
        Storage("SP_a", "tmem", 256, 128, 1, False), Storage("SP_b", "tmem", 384, 128, 1, False),
    )  # fmt: skip
    roles = (_load(2, 1, 48), mma, _softmax("a"), Role("rescale", 4, 72, rescale), _softmax("b"))
    return _program(graph, roles, storage, tuple(barriers))
