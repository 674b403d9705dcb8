"""PTX text to instructions."""

from __future__ import annotations

import pytest

from twill.emulate.errors import EmulationError
from twill.emulate.ptx.parser import parse
from twill.emulate.ptx.syntax import Immediate, Memory, Pair, Register, Symbol, Vector

HEADER = (
    ".version 9.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 128 .b8 smem[];\n"
    ".visible .entry k(\n\t.param .u32 a,\n\t.param .align 8 .b8 b[16]\n)\n.reqntid 64, 1, 1\n{\n"
)


def test_parameters_are_laid_out_with_their_alignment() -> None:
    kernel = parse(HEADER + "ret;\n}").kernels[0]
    assert [(p.name, p.offset, p.size) for p in kernel.parameters] == [("a", 0, 4), ("b", 8, 16)]
    assert kernel.directives["reqntid"] == (64, 1, 1)
    assert kernel.shared == {"smem": (128, 0)}


def test_inline_assembly_has_labels_and_registers_of_its_own() -> None:
    wait = "{\n.reg .pred P1;\nAGAIN:\nmbarrier.try_wait.parity.shared.b64 P1, [%r1], 0, 10;\n@P1 bra.uni DONE;\nbra.uni AGAIN;\nDONE:\n}\n"
    kernel = parse(HEADER + ".reg .b32 %r<2>;\n" + wait + wait + "ret;\n}").kernels[0]
    first, second = kernel.instructions[0], kernel.instructions[3]
    assert first.operands[0] != second.operands[0]
    targets = [kernel.labels[x.label] for x in kernel.instructions if x.label is not None]
    assert targets == [3, 0, 6, 3]


def test_operands() -> None:
    body = (
        ".reg .b32 %r<9>;\n.reg .b64 %rd<2>;\n.reg .pred %p<2>;\n"
        "elect.sync %r1|%p1, -1;\nst.shared.v2.b32 [smem+8], {%r1, %r2};\nld.global.b32 %r3, [%rd1+-4];\nmov.b32 %r4, 0f3F800000;\n"
        "@!%p1 add.s32 %r5, %r4, 0x10;\nret;\n}"
    )
    elect, store, load, move, add, _ = parse(HEADER + body).kernels[0].instructions
    assert elect.operands == (Pair(Register("%r1"), Register("%p1")), Immediate(-1))
    assert store.operands == (Memory(Symbol("smem", 8)), Vector((Register("%r1"), Register("%r2"))))
    assert load.operands[1] == Memory(Register("%rd1"), -4)
    assert move.operands[1] == Immediate(0x3F800000)
    assert (add.guard, add.guard_negated, add.operands[2]) == (Register("%p1"), True, Immediate(16))


def test_source_lines_follow_loc() -> None:
    body = '.loc 1 17 3\nret;\n}\n.file 1 "folder/kernel.py"\n'
    (end,) = parse(HEADER + body).kernels[0].instructions
    assert end.location is not None
    assert (end.location.file, end.location.line, end.line) == ("folder/kernel.py", 17, 12)


@pytest.mark.parametrize(("text", "words"), [("int main() {}", "no .version"), (HEADER + "add.s32 %r1, %r2, 1;\n}", "PTX line 11.*%r1")])
def test_what_is_no_ptx_is_refused(text: str, words: str) -> None:
    with pytest.raises(EmulationError, match=words):
        parse(text)
