"""Machine code that spills, lost a register request or waits after every MMA is refused; other code is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twill.build import LintError
from twill.build.lint import Wanted, lint, refuse, register_requests
from twill.build.ptx import Ptx, read_ptx
from twill.build.tools import Resources

from .listing import function

CODE = (
    ".L_a: USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0",
    "@!P0 BRA .L_a",
    "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], RZ, !UPT",
    "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR12], R24, gsb0",
    "WARPGROUP.DEPBAR.LE gsb0, 0x0",
    "EXIT",
    "USETMAXREG.DEALLOC.CTAPOOL 0x18",
    "EXIT",
)
USED = Resources(registers=168, stack_bytes=0, local_bytes=0, shared_bytes=1024)
WANTED = Wanted((240, 24))
PTX = Ptx(setmaxnreg=(240, 24), groups=((5, 9),), waits=(0,), origin={})


def _kinds(code: tuple[str, ...] = CODE, used: Resources = USED, ptx: Ptx = PTX, wanted: Wanted = WANTED) -> list[str]:
    return [p.kind for p in lint(function(code), used, ptx, wanted)]


def test_nothing_wrong() -> None:
    assert _kinds() == []
    assert register_requests(function(CODE)) == (240, 24)


@pytest.mark.parametrize("used", [replace(USED, stack_bytes=32), replace(USED, local_bytes=8)])
def test_stack_or_local_memory(used: Resources) -> None:
    assert _kinds(used=used) == ["spills"]


@pytest.mark.parametrize("spill", ["STL [R1+0x8], R24", "LDL.64 R24, [R1]"])
def test_a_spill_in_the_code(spill: str) -> None:
    (problem,) = lint(function((spill, *CODE)), USED, PTX, WANTED)
    assert problem.kind == "spills"
    assert "1 local loads and stores at 168 registers a thread" in problem.text
    assert "smaller tiles" in problem.step


def test_a_serialised_mma() -> None:
    serial = tuple(x if "gsb0" in x or "HGMMA" not in x else f"{x}, gsb0" for x in CODE)
    (problem,) = lint(function(serial), USED, PTX, WANTED)
    assert problem.kind == "serialised"
    assert "2 of 2 MMAs end a group, where 1 groups were written" in problem.text
    assert "smaller tiles" in problem.step
    (turns,) = lint(function(serial), USED, PTX, replace(WANTED, turning=("softmax_b",)))
    assert "MMAs of softmax_b run on when the loop turns" in turns.text
    assert "without running MMAs" in turns.step


def test_a_group_that_vanished() -> None:
    assert _kinds(tuple(x for x in CODE if not x.endswith("R24, gsb0"))) == ["order"]


def test_a_dropped_request() -> None:
    dropped = tuple(x for x in CODE if "DEALLOC" not in x)
    (problem,) = lint(function(dropped), USED, PTX, WANTED)
    assert problem.kind == "registers"
    assert "the assembler dropped setmaxnreg 24 (asked for: 240, 24; in the machine code: 240)" in problem.text
    (earlier,) = lint(function(dropped), USED, replace(PTX, setmaxnreg=(240,)), WANTED)
    assert "the compiler dropped setmaxnreg 24" in earlier.text


def test_a_request_of_another_size() -> None:
    assert _kinds(tuple(x.replace("0xf0", "0xe8") for x in CODE)) == ["registers"]


def test_the_first_problem_is_the_error() -> None:
    problems = lint(function(tuple(x.replace("0xf0", "0xe8") for x in CODE)), replace(USED, stack_bytes=8), PTX, WANTED)
    with pytest.raises(LintError, match=r"d128 \(bf16\): kernel spills: 8 bytes[\s\S]*and 1 more[\s\S]*next step: take smaller tiles"):
        refuse("d128 (bf16)", problems)
    refuse("d128 (bf16)", ())


def test_facts_of_ptx() -> None:
    text = "\n".join([
        ".target sm_90a", "\t.loc\t2 31 0", "\tsetmaxnreg.inc.sync.aligned.u32 \t240;", "wgmma.mma_async.sync.aligned {",
        "\twgmma.commit_group.sync.aligned;", "\tcp.async.bulk.commit_group;", "\t.loc\t1 75 8", "\tex2.approx.ftz.f32 \t%r1, %r2;",
        "\tsetmaxnreg.dec.sync.aligned.u32 \t24;", '\t.file\t1 "lib/tiles/softmax.py"', '\t.file\t2 "kernel.py"',
    ])  # fmt: skip
    found = read_ptx(text)
    assert found.setmaxnreg == (240, 24)
    assert found.groups == ((4, 5),)
    assert found.origin[3] == ("kernel.py", 31)
    assert found.origin[8] == ("lib/tiles/softmax.py", 75)
    assert 1 not in found.origin


def test_a_wait_that_is_not_there() -> None:
    assert _kinds(ptx=replace(PTX, waits=(0,))) == []
    (problem,) = lint(function(CODE), USED, replace(PTX, waits=(1, 0)), WANTED)
    assert problem.kind == "order"
    assert "waits for wgmma with 1 pending were written" in problem.text
