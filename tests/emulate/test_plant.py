"""Planted faults as text are the planted faults of the emulator."""

from __future__ import annotations

import re

import pytest

from twill.emulate.errors import EmulationError
from twill.emulate.mutants import mutants
from twill.emulate.ptx.parser import parse
from twill.emulate.ptx.plant import planted
from twill.emulate.ptx.syntax import Instruction

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 room[];
.visible .entry kernel(
.param .u64 given
)
{
.reg .pred %p<9>;
.reg .b32 %r<99>;
.reg .b64 %rd<99>;
.reg .f32 %f<9>;
"""
SCOPE = """
{
.reg .pred P1;
again:
mbarrier.try_wait.parity.shared.b64 P1, [%r1+8], %r2;
@!P1 bra.uni again;
}
@%p1 mbarrier.arrive.shared.b64 %rd1, [room+64];
mbarrier.arrive.expect_tx.shared.b64 %rd2, [%r1], 512;
sub.f32 %f1, %f2, 0fBF800000;
{
.reg .pred p;
setp.ne.b32 p, %r3, 0;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd1, %rd2, p, 1, 1, 0, 0;
}
wgmma.wait_group.sync.aligned 1;
cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r1+128], [%rd1, {%r2, %r3}], [room+8];
ret;
}
"""


def _plain(x: Instruction) -> str:
    return re.sub(r"@\d+", "", re.sub(r"location=[^)]*\)", "", repr(x)))


def test_text_and_kernel_are_the_same_mutant() -> None:
    text = HEAD + SCOPE
    kernel = parse(text).kernels[0]
    found = list(mutants(kernel))
    assert {m.family for m in found} >= {
        "wait dropped", "parity flipped", "arrival dropped", "arrival with bytes dropped", "bytes halved", "operands swapped",
        "multiplication dropped", "wgmma wait weakened", "load to another place",
    }  # fmt: skip
    for m in found:
        changed = planted(text, m.old, m.new, m.registers)
        assert changed != text
        again = parse(changed).kernels[0]
        assert [_plain(x) for x in again.instructions] == [_plain(x) for x in m.kernel.instructions], m.family
        assert list(again.labels.values()) == list(m.kernel.labels.values())


def test_a_statement_that_is_not_there_is_refused() -> None:
    text = HEAD + SCOPE
    first = next(mutants(parse(text).kernels[0]))
    with pytest.raises(EmulationError, match="has 0 statements"):
        planted(text.replace("mbarrier.try_wait.parity", "mbarrier.test_wait.parity"), first.old, first.new, first.registers)
