"""mbarrier objects: counts, bytes, parities, and what is wrong with them. More in test_synchronization.py."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.program import Outcome, execute
from twill.emulate.machine.schedulers import SCHEDULERS

OUT = np.zeros(1, np.uint32)
ONE = "elect.sync %r1|%p1, -1;\n"
INIT = ONE + "@%p1 mbarrier.init.shared.b64 [smem], COUNT; bar.sync 0;\n"
WAIT = "AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [smem], 0; @!%p2 bra AGAIN; mov.b32 %r3, 1;\n"


def _run(code: str, count: int = 1, scheduler: str = "eager") -> Outcome:
    text = INIT.replace("COUNT", str(count)) + code + "\nst.global.b32 [%rd1], %r3;"
    return execute(text, [OUT], shared=64, scheduler=scheduler)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize(
    ("count", "code"),
    [
        (1, "@%p1 mbarrier.arrive.shared.b64 %rd20, [smem];"),
        (3, "@%p1 mbarrier.arrive.shared.b64 %rd20, [smem], 3;"),
        (32, "mbarrier.arrive.shared.b64 %rd20, [smem];"),
        (2, "@%p1 mbarrier.arrive.noComplete.shared.b64 %rd20, [smem], 1; @%p1 mbarrier.arrive.release.cta.shared::cta.b64 %rd20, [smem];"),
    ],
)
def test_arrivals_end_a_phase(count: int, code: str, scheduler: str) -> None:
    out = _run(code + WAIT, count, scheduler)
    assert not out.findings.items
    assert out.array(0, np.uint32)[0] == 1


def test_bytes_hold_a_phase_open() -> None:
    """Announced without an arrival, and never sent: the phase does not end."""
    out = _run("@%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [smem], 16; @%p1 mbarrier.arrive.shared.b64 %rd20, [smem];" + WAIT)
    (found,) = [f for f in out.findings.items if f.severity == "error"]
    assert found.kind == "deadlock"
    assert "still expects 16 bytes" in found.text


def test_a_test_does_not_wait() -> None:
    code = "mbarrier.test_wait.parity.shared.b64 %p2, [smem], PARITY; selp.b32 %r3, 5, 6, %p2;"
    assert _run(code.replace("PARITY", "0")).array(0, np.uint32)[0] == 6
    assert _run(code.replace("PARITY", "1")).array(0, np.uint32)[0] == 5, "the phase before the first counts as over"


@pytest.mark.parametrize(
    ("count", "code", "words"),
    [
        (1, "@%p1 mbarrier.arrive.shared.b64 %rd20, [smem], 2;", "more arrivals"),
        (1, "@%p1 mbarrier.arrive.shared.b64 %rd20, [smem+8];", "not initialised"),
        (1, "@%p1 mbarrier.inval.shared.b64 [smem]; @%p1 mbarrier.arrive.shared.b64 %rd20, [smem];", "not initialised"),
        (1, "@%p1 mbarrier.init.shared.b64 [smem+12], 1;", "initialises a barrier at 12"),
        (1, "@%p1 mbarrier.init.shared.b64 [smem+16], 0;", "with 0 arrivals"),
    ],
)
def test_mistakes(count: int, code: str, words: str) -> None:
    out = _run(code + "mov.b32 %r3, 0;", count)
    assert any(words in f.text for f in out.findings.errors)


OVERRUN = """
mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; setp.ne.s32 %p1, %r2, 0; elect.sync %r3|%p2, -1;
@%p1 bra READY;
@%p2 mbarrier.init.shared.b64 [smem], 1;
READY: bar.sync 0;
@%p1 bra SECOND;
AGAIN: mbarrier.try_wait.parity.shared.b64 %p3, [smem], 0; @!%p3 bra AGAIN; bra OVER;
SECOND: bar.warp.sync -1; @%p2 mbarrier.arrive.shared.b64 %rd20, [smem]; @%p2 mbarrier.arrive.shared.b64 %rd20, [smem];
OVER: mov.b32 %r3, 0;
"""


def test_a_phase_that_passes_a_sleeper_by() -> None:
    kinds = set[str]()
    for scheduler in SCHEDULERS:
        kinds |= execute(OVERRUN, [OUT], threads=64, shared=64, scheduler=scheduler).kinds
    assert "phase overrun" in kinds
