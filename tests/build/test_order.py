"""The skeleton of a loop must have the schedule's order; arithmetic that moved across it is told, not refused."""

from __future__ import annotations

import itertools

import pytest

from twill.build.order import Placed, compared, moves, placed, shape, strays
from twill.build.roles import Event, RoleCode
from twill.build.sass import Instruction

from .listing import function

CONSUMER = RoleCode(
    "softmax_a",
    ("softmax_a",),
    (
        Event("wait", "K_full"), Event("mma", "QK_a"), Event("op", "RESC_a"), Event("wait", "V_full"), Event("mma", "PV_a"),
        Event("own", "1"), Event("arrive", "K_empty"), Event("op", "EXP_a"), Event("own", "0"), Event("arrive", "V_empty"),
    ),
)  # fmt: skip
CODE = (
    "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R8+0x10], R3 #10",
    "HGMMA.64x128x16.F32 R24, gdesc[UR8], RZ, !UPT #9",
    "HGMMA.64x128x16.F32 R24, gdesc[UR12], R24, gsb0 #9",
    "FMUL R88, R88, R9 #12",
    "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R9+0x20], R3 #20",
    "HGMMA.64x128x16.F32 R88, R180, gdesc[UR8].tnspB, R88 #9",
    "HGMMA.64x128x16.F32 R88, R184, gdesc[UR12].tnspB, R88, gsb0 #9",
    "WARPGROUP.DEPBAR.LE gsb0, 0x1 #30",
    "@P0 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR6+0x30], RZ #31",
    "MUFU.EX2 R4, R4 #40",
    "MUFU.EX2 R5, R5 #41",
    "WARPGROUP.DEPBAR.LE gsb0, 0x0 #50",
    "@P0 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR6+0x40], RZ #51",
)
LOADER = RoleCode(
    "load",
    ("load",),
    (Event("wait", "K_empty"), Event("expect", "K_full"), Event("tma", "LK"), Event("expect", "V_full"), Event("tma", "LV")),
)
LOADS = (
    "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R8+0x10], R3 #10",
    "@P0 SYNCS.ARRIVE.TRANS64 RZ, [UR5+0x10], R0 #11",
    "UTMALDG.4D [UR8], [UR6], desc[URZ] #12",
    "UTMALDG.4D [UR16], [UR6], desc[URZ] #13",
    "@P0 SYNCS.ARRIVE.TRANS64 RZ, [UR5+0x28], R0 #14",
    "UTMALDG.4D [UR24], [UR6], desc[URZ] #15",
)


def _body(code: tuple[str, ...]) -> tuple[Instruction, ...]:
    return function(code).instructions


def _problem(code: tuple[str, ...], role: RoleCode = CONSUMER) -> str | None:
    return compared(role, _body(code))[1]


def _period(code: tuple[str, ...]) -> tuple[Placed, ...]:
    body = _body(code)
    found, problem = compared(CONSUMER, body)
    assert problem is None
    return placed(CONSUMER, body, found, [None] * len(body))


def test_the_schedules_order_passes() -> None:
    found, problem = compared(CONSUMER, _body(CODE))
    assert problem is None
    assert [p.event for p in found] == list(CONSUMER.skeleton)
    assert [p.at for p in found] == [(0,), (1, 2), (4,), (5, 6), (7,), (8,), (11,), (12,)]


def test_loads_of_several_boxes_are_one() -> None:
    found, problem = compared(LOADER, _body(LOADS))
    assert problem is None
    assert [p.at for p in found] == [(0,), (1,), (2, 3), (4,), (5,)]
    assert shape(_body(LOADS)) == ("wait", "expect", "tma", "expect", "tma")


SKELETON = [i for i, x in enumerate(CODE) if not x.startswith(("FMUL", "MUFU"))]


@pytest.mark.parametrize(("first", "second"), list(itertools.pairwise(SKELETON)))
def test_any_two_of_the_skeleton_swapped_are_refused(first: int, second: int) -> None:
    code = list(CODE)
    code[first], code[second] = code[second], code[first]
    assert _problem(tuple(code)) is not None


def test_two_waits_for_barriers_swapped_are_told_apart_by_their_lines() -> None:
    code = list(CODE)
    code[0], code[4] = code[4], code[0]
    assert _problem(tuple(code)) == "at first the schedule has wait K_full, the machine code wait V_full"


def test_a_load_swapped_with_another() -> None:
    code = list(LOADS)
    code[3], code[5] = code[5], code[3]
    assert _problem(tuple(code), LOADER) is not None


@pytest.mark.parametrize("lost", SKELETON)
def test_a_missing_one_is_refused(lost: int) -> None:
    code = tuple(x for i, x in enumerate(CODE) if i != lost)
    if "gdesc[UR8]" in CODE[lost]:
        assert _problem(code) is None, "how many instructions an MMA takes is not the order's business"
    else:
        assert _problem(code) is not None


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R9], R3 #60", "the machine code has a wait for a barrier too many"),
        ("BAR.SYNC.DEFER_BLOCKING 0x1, 0x80 #60", "the machine code has a named barrier too many"),
        ("WARPGROUP.DEPBAR.LE gsb0, 0x0 #45", "where the schedule has arrive V_empty, the machine code has a wait for MMAs with 0 pending"),
        ("HGMMA.64x128x16.F32 R24, gdesc[UR8], R24, gsb0", "the machine code has groups of QK, PV, QK"),
    ],
)
def test_one_too_many_is_refused(extra: str, reason: str) -> None:
    problem = _problem((*CODE, extra))
    assert problem is not None
    assert reason in problem


def test_a_wait_for_too_few() -> None:
    code = tuple(x.replace("0x1 #30", "0x0 #30") for x in CODE)
    assert _problem(code) == "where the schedule has wait own MMAs, 1 pending, the machine code has a wait for MMAs with 0 pending"


def test_nothing_moved() -> None:
    assert moves(_period(CODE)) == ()


def test_a_wait_that_rose_past_an_exponential() -> None:
    code = list(CODE)
    code.insert(10, code.pop(11))
    assert [m.text for m in moves(_period(tuple(code)))] == ["1 of 2 EXP_a after wait own MMAs, 0 pending"]


def test_arithmetic_that_moved_before_an_mma_and_behind_an_arrival() -> None:
    code = list(CODE)
    code.insert(0, code.pop(3))
    code.append(code.pop(10))
    assert [m.text for m in moves(_period(tuple(code)))] == [
        "1 of 1 RESC_a before wait K_full",
        "1 of 1 RESC_a before QK_a",
        "1 of 2 EXP_a after wait own MMAs, 0 pending",
        "1 of 2 EXP_a after arrive V_empty",
    ]


def test_an_instruction_made_by_another_op_is_not_counted() -> None:
    body = _body(CODE)
    found, _ = compared(CONSUMER, body)
    functions = ["row_max" if x.line == 40 else "exp2" if x.line == 41 else None for x in body]
    (exp,) = [p for p in placed(CONSUMER, body, found, functions) if p.event.name == "EXP_a"]
    assert exp.at == (10,)


GROUPS = ((13, 15), (23, 25))


def test_the_order_of_a_whole_kernel() -> None:
    assert strays(_body(CODE), GROUPS) is None


@pytest.mark.parametrize(("first", "second"), list(itertools.pairwise(SKELETON)))
def test_two_swapped_anywhere_are_out_of_order(first: int, second: int) -> None:
    code = list(CODE)
    code[first], code[second] = code[second], code[first]
    found = strays(_body(tuple(code)), GROUPS)
    assert found is not None
    if {first, second} not in ({1, 2}, {5, 6}):
        # else the end of a group comes before its beginning, and the next group's before its own
        assert {x.address // 16 for x in found} & {first, second}
