"""Jumps, ends of threads, and hints that change nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.isa.test_alu import LANES, LOAD, A, B, _run
from tests.emulate.program import execute


def test_lanes_that_part_meet_again() -> None:
    code = """
    mov.u32 %r5, %tid.x; and.b32 %r6, %r5, 3; mov.b32 %r3, 0; mov.b32 %r7, 0;
    setp.lt.u32 %p1, %r5, 10; @%p1 bra SMALL;
    add.s32 %r3, %r3, 1000; bra LOOP;
    SMALL: add.s32 %r3, %r3, 5;
    LOOP: add.s32 %r3, %r3, %r7; add.s32 %r7, %r7, 1; setp.le.u32 %p2, %r7, %r6; @%p2 bra LOOP;
    shfl.sync.bfly.b32 %r8, %r3, 1, 31, -1; add.s32 %r3, %r3, %r8;
    """
    one = np.array([(5 if i < 10 else 1000) + sum(range((i & 3) + 1)) for i in range(32)])
    np.testing.assert_array_equal(_run(code), one + one[LANES ^ 1])


def test_predicated_instructions_touch_only_their_lanes() -> None:
    code = "mov.u32 %r5, %tid.x; mov.b32 %r3, 1; setp.gt.u32 %p1, %r5, 29; @%p1 mov.b32 %r3, 2; @!%p1 add.s32 %r3, %r3, 6;"
    np.testing.assert_array_equal(_run(code), np.where(LANES > 29, 2, 7))


def test_an_instruction_for_all_lanes_that_some_miss_is_found() -> None:
    code = """
    mov.u32 %r5, %tid.x; setp.lt.u32 %p1, %r5, 3; @%p1 bra OTHER;
    shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1; bra OUT;
    OTHER: shfl.sync.bfly.b32 %r3, %r1, 2, 31, -1;
    OUT:
    """
    assert "warp" in execute(LOAD + code, [np.zeros(32, np.uint32), A, B]).kinds


@pytest.mark.parametrize("end", ["ret;", "exit;"])
def test_lanes_may_end_early(end: str) -> None:
    code = f"mov.u32 %r5, %tid.x; setp.gt.u32 %p1, %r5, 7; mov.b32 %r3, 5; @%p1 bra ON; {end} ON:"
    out = execute(LOAD + code + "\nst.global.b32 [%rd10], %r3;", [np.zeros(32, np.uint32), A, B])
    assert not out.findings.items
    np.testing.assert_array_equal(out.array(0, np.uint32), np.where(LANES > 7, 5, 0))


def test_a_trap_is_an_error() -> None:
    (found,) = execute("trap;").findings.items
    assert (found.kind, found.severity) == ("warp", "error")


def test_hints_change_nothing() -> None:
    code = "mov.b32 %r3, 4; prefetch.global.L2 [%rd11]; nanosleep.u32 20; griddepcontrol.wait; griddepcontrol.launch_dependents;"
    np.testing.assert_array_equal(_run(code), np.full(32, 4))
