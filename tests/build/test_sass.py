"""Listings become instructions, blocks, loops and counts."""

from __future__ import annotations

import pytest

from twill.build import BuildError
from twill.build.families import counted
from twill.build.flow import Flow
from twill.build.report import turns
from twill.build.sass import Function, parse

from .listing import function, listing, wait


def test_every_part_of_an_instruction() -> None:
    found = function([
        "LDC R1, c[0x0][0x28]",
        ".L_x_0: @!P0 HGMMA.64x128x16.F32.BF16 R24, R180, gdesc[UR8].tnspB, R24, gsb0 #17",
        "@P1 BRA .L_x_0",
        "EXIT",
    ])  # fmt: skip
    one, two, three, _ = found.instructions
    assert (one.address, one.predicate, one.opcode, one.operands, one.line) == (0, "", "LDC", "R1, c[0x0][0x28]", None)
    assert (two.address, two.predicate, two.opcode, two.line) == (16, "@!P0", "HGMMA.64x128x16.F32.BF16", 17)
    assert two.operands == "R24, R180, gdesc[UR8].tnspB, R24, gsb0"
    assert three.targets == (".L_x_0",)
    assert found.labels == {".L_x_0": 1}
    assert two.is_a("HGMMA")
    assert two.is_a("HGMMA.64x128x16")
    assert not two.is_a("HGMMA.64x12", "HGMM")


def test_functions_are_kept_apart() -> None:
    text = listing([".L_x_0: BRA .L_x_0"], "one") + listing(["MOV R0, R1 #3", "EXIT"], "two")
    first, second = parse(text)
    assert (first.name, len(first.instructions)) == ("one", 1)
    assert (second.name, [x.line for x in second.instructions]) == ("two", [3, 3])


@pytest.mark.parametrize("text", ["", "not machine code\n", listing([])])
def test_nothing_in_it(text: str) -> None:
    with pytest.raises(BuildError, match="holds no machine code"):
        parse(text)


def test_a_branch_to_nowhere() -> None:
    with pytest.raises(BuildError, match=r"branch at 0x10 goes to \.L_x_7, which the listing lacks"):
        function(["MOV R0, R1", "BRA .L_x_7"])


def _persistent() -> Function:
    """A loop over tiles around a loop with a rare branch, a wait, and a wait whose first try was moved in front of its spin."""
    return function([
        "S2R R0, SR_TID.X",
        ".L_n: USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0",
        "@!P0 BRA .L_n",
        ".L_tile: MOV R1, RZ",
        ".L_loop: IADD3 R1, R1, 0x1, RZ",
        *wait(".L_w", "R8+URZ+0x10", 5),
        "SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [R9+URZ+0x18], R3",
        "@!P1 BRA .L_far",
        ".L_back: @P2 BRA .L_skip",
        "FMUL R4, R4, R5",
        "FMUL R6, R6, R5",
        ".L_skip: MUFU.EX2 R4, R4",
        "@P3 BRA .L_loop",
        "@P4 BRA .L_tile",
        "EXIT",
        ".L_far: MOV R9, R9",
        *wait(".L_v", "R9+URZ+0x18", 6),
        "BRA .L_back",
        ".L_end: BRA .L_end",
    ])  # fmt: skip


def test_loops_and_their_turns() -> None:
    flow = Flow(_persistent())
    (loop,) = flow.work
    body = flow.body(loop)
    assert len(flow.loops) == 5, "the loop, the one around it, and three spins; the trap at the end is never reached"
    assert len(flow.spins) == 3
    assert [x.opcode for x in body].count("FMUL") == 2
    far = next(i for i, x in enumerate(body) if x.operands == "R9, R9")
    rescale = next(i for i, x in enumerate(body) if x.is_a("FMUL"))
    assert far < rescale, "what is executed first comes first, wherever it lies"
    (turn,) = turns(flow.function)
    # 1 + 4 for the first wait, 2 for the first try of the second, a branch, and 2 at the end; 2 more if that is not taken
    assert (turn.shortest, turn.longest) == (10, 12)
    assert turn.registers == 240
    assert turn.families["fma"] == (0, 2)
    assert turn.families["mbarrier"] == (3, 3)
    assert turn.families["exp"] == (1, 1)
    assert flow.first_tries == {0x90}


def test_a_jump_through_a_table() -> None:
    text = listing([".L_a: BRX R2 -0x7a0", ".L_b: UTCHMMA gdesc[UR4]", "@P0 BRA .L_b", "EXIT", ".L_c: EXIT", "EXIT"])
    text = text.replace("R2 -0x7a0 ;", 'R2 -0x7a0  (*"BRANCH_TARGETS .L_b,.L_c"*);')
    (found,) = parse(text)
    assert found.instructions[0].targets == (".L_b", ".L_c")
    (loop,) = Flow(found).work
    assert [x.opcode for x in Flow(found).body(loop)] == ["UTCHMMA", "BRA"]


def test_families() -> None:
    code = [
        "HGMMA.64x128x16.F32 R24, gdesc[UR8], R24", "MUFU.EX2 R0, R0", "FFMA R0, R0, R1, R2", "IMAD.MOV.U32 R2, RZ, RZ, RZ",
        "FADD2 R0, R0, R2",
        "F2FP.BF16.F32.PACK_AB R0, R1, R2", "FMNMX R0, R0, R1, !PT", "LOP3.LUT R0, R0, R1, RZ, 0xc0, !PT", "UIADD3 UR4, UR4, UR9, URZ",
        "R2UR UR4, R5", "UTMALDG.4D [UR8], [UR6]", "UTCHMMA gdesc[UR8], gdesc[UR6]", "BAR.SYNC 0x1, 0x80", "WARPGROUP.DEPBAR.LE gsb0, 0x0",
        "LDTM.x32 R4, tmem[UR4]", "STL [R1], R4", "SHFL.BFLY PT, R3, R8, 0x1, 0x1f", "EXIT",
    ]  # fmt: skip
    assert counted(function(code).instructions) == {
        "mma": 2, "fma": 2, "alu": 2, "uniform": 2, "exp": 1, "packed": 1, "convert": 1, "tma": 1, "named barrier": 1, "mma wait": 1,
        "tensor memory": 1, "local": 1, "shuffle": 1, "branch": 1,
    }  # fmt: skip
