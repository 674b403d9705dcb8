"""Fences and register reallocation."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.isa.test_alu import _run
from tests.emulate.isa.test_tma import _store
from tests.emulate.program import execute


def test_fences_of_memory_change_no_value() -> None:
    code = "mov.b32 %r3, 4; fence.acq_rel.gpu; fence.sc.cta; membar.gl; membar.cta; fence.proxy.alias;"
    np.testing.assert_array_equal(_run(code), np.full(32, 4))


@pytest.mark.parametrize("fence", ["fence.acq_rel.cta;", "membar.cta;", "fence.mbarrier_init.release.cluster;"])
def test_no_other_fence_stands_for_that_of_the_proxy(fence: str) -> None:
    assert "missing proxy fence" in _store(("fence.proxy.async.shared::cta;", fence)).kinds
    assert not _store(("fence.proxy.async.shared::cta;", "fence.proxy.async;")).findings.items


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("setmaxnreg.dec.sync.aligned.u32 28;", "multiple of 8"),
        ("setmaxnreg.dec.sync.aligned.u32 40; setmaxnreg.inc.sync.aligned.u32 24;", "inc to 24 from 40"),
        ("setmaxnreg.dec.sync.aligned.u32 40; setmaxnreg.dec.sync.aligned.u32 48;", "dec to 48 from 40"),
    ],
)
def test_requests_that_make_no_sense(code: str, words: str) -> None:
    found = execute(code, [np.zeros(1, np.uint32)], threads=128).findings.errors
    assert any(words in f.text for f in found)
