"""Exponentials ahead of their maxima: right where these hardly grow, where they grow, and where an exponential overflows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cutlass", reason="kernels are compiled by CuTe DSL: install 'twill-gpu[kernels]'")
pytest.importorskip("filelock")

from twill.check import checked
from twill.cli.files import read_schedule
from twill.cli.request import machine_of_schedule
from twill.emit.emitter import emit
from twill.emulate import kernel as emulated
from twill.emulate.kernel import AttentionKernel
from twill.emulate.numbers import Inputs, Shape, inputs, to_bits
from twill.emulate.ready import ready, shape_of
from twill.lower import lower

SCHEDULE = Path(__file__).parent.parent / "emit" / "schedules" / "d128_old_max.json"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> AttentionKernel:
    schedule = read_schedule(str(SCHEDULE))
    found = checked(schedule, machine_of_schedule(schedule.machine.name, None))
    file = tmp_path_factory.mktemp("old_max") / "old_max.py"
    file.write_text(emit(found, lower(found), "a test"), encoding="utf-8")
    return ready(file, causal=False, cache="off")


def _anew(kernel: AttentionKernel, segments: set[int]) -> bool:
    """Whether single elements of Q and K were read, as is only done where scores are made again."""
    code = kernel.code.flow.kernel.instructions
    run = (x for i in segments for s in [kernel.code.flow.segments[i]] for x in code[s.begin : s.end])
    return any(x.opcode.startswith("ld.shared") and x.opcode.endswith("16") for x in run)


@pytest.mark.parametrize("steps", [0, 3, 40], ids=["level", "growing", "overflowing"])
def test_right_and_without_a_finding(kernel: AttentionKernel, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that grow from tile to tile, as a kernel walks them; 40 times what they begin with is more than fp32 has exponents for."""
    shape = shape_of(kernel, 70, 400, causal=False)
    k = np.random.default_rng(7).standard_normal((1, 400, 1, 128)) * (1 + steps * (np.arange(399, -1, -1) // 80))[None, :, None, None]

    def given(of: Shape, seed: int) -> Inputs:
        made = inputs(of, seed)
        return Inputs(made.q, to_bits(k, of.dtype), made.v, made.scale)

    monkeypatch.setattr(emulated, "inputs", given)
    result = kernel.run(shape, "late", seed=100 + steps)
    assert [f.text for f in result.findings.items] == []
    assert result.largest_error <= 1
    assert all(b.equal > 0.99 * b.size for b in result.beside.values())
    assert _anew(kernel, result.coverage.seen) == (steps > 0)
