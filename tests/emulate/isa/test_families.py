"""Every family of instructions has a file of tests, and what no rule knows is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulate.program import execute
from twill.emulate.errors import EmulationError
from twill.emulate.isa.registry import FAMILIES


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_tested(family: str) -> None:
    assert "def test_" in Path(__file__).with_name(f"test_{family}.py").read_text()


@pytest.mark.parametrize(
    "instruction",
    [
        "add.sat.s32 %r1, %r2, %r3;", "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [smem], [smem];",
        "tcgen05.cp.cta_group::1.128x256b [%r1], %rd1;", "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 %r1, %rd1, %rd2, 1, 1, 1;",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes [smem], [%rd1, {%r1, %r2}], [smem];",
        "mbarrier.arrive.sometimes.shared.b64 %rd1, [smem];", "tcgen05.ld.sync.aligned.16x64b.x1.b32 {%r1}, [%r2];",
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_by_name(instruction: str) -> None:
    opcode = instruction.split()[0]
    with pytest.raises(EmulationError) as refusal:
        execute("mov.b32 %r1, 0;\n" + instruction)
    assert opcode in str(refusal.value)
    assert "line" in str(refusal.value)
