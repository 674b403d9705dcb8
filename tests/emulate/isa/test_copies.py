"""cp.async: copies of lanes, in groups."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.program import Outcome, execute, lane_address
from twill.emulate.machine.schedulers import SCHEDULERS

SOURCE = np.arange(128, dtype=np.uint32) + 5
COPY = (
    lane_address("%rd10", "%rd1", 16) + lane_address("%rd11", "%rd2", 16)
    + """
mov.b32 %r2, smem; shl.b32 %r3, %r399, 4; add.s32 %r4, %r2, %r3;
cp.async.cg.shared.global [%r4], [%rd11], 16SIZE;
cp.async.commit_group;
cp.async.wait_group 0;
ld.shared.v4.b32 {%r5, %r6, %r7, %r8}, [%r4]; st.global.v4.b32 [%rd10], {%r5, %r6, %r7, %r8};
"""
)  # fmt: skip


def _run(size: str = "", change: tuple[str, str] = ("SIZE", ""), scheduler: str = "eager") -> Outcome:
    code = COPY.replace("SIZE", size)
    return execute(code.replace(*change), [np.zeros(128, np.uint32), SOURCE], shared=1024, scheduler=scheduler)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("wait", ["cp.async.wait_group 0;", "cp.async.wait_all;"])
def test_values(wait: str, scheduler: str) -> None:
    out = _run("", ("cp.async.wait_group 0;", wait), scheduler)
    assert not out.findings.items
    np.testing.assert_array_equal(out.array(0, np.uint32), SOURCE)


def test_what_is_not_copied_is_zero() -> None:
    out = _run(", 8")
    assert not out.findings.items
    np.testing.assert_array_equal(out.array(0, np.uint32).reshape(32, 4), SOURCE.reshape(32, 4) * [1, 1, 0, 0])


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (("cp.async.wait_group 0;", ""), {"race", "uninitialised read", "left over"}),
        (("cp.async.wait_group 0;", "cp.async.wait_group 1;"), {"race", "uninitialised read", "left over"}),
        (("[%r4], [%rd11]", "[%r4+1024], [%rd11]"), {"out of bounds"}),
        (("[%r4], [%rd11]", "[%r4], [%rd11+512]"), {"out of bounds"}),
    ],
)
def test_faults(change: tuple[str, str], kinds: set[str]) -> None:
    assert _run("", change, "late").kinds & kinds
