"""Which planted faults are taken to a GPU, and how they get there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("filelock")

from benchmarks.silicon.faults import assembled, spread
from tests.emulate.test_plant import HEAD
from twill.emulate.campaign import Verdict
from twill.emulate.mutants import mutants
from twill.emulate.ptx.parser import parse

BODY = "mov.b32 %r1, 1;\n" + "sub.f32 %f1, %f2, %f3;\n" * 7 + "bar.sync 0;\n" * 2 + "wgmma.wait_group.sync.aligned 0;\nret;\n}\n"


def test_every_family_before_a_second_of_any() -> None:
    verdicts = [Verdict(m, ("race",), "late") for m in mutants(parse(HEAD + BODY).kernels[0])]
    assert len(verdicts) == 11
    first = spread(verdicts, 4)
    assert sorted(v.mutant.family for v in first) == ["barrier dropped", "operands swapped", "wgmma wait dropped", "wgmma wait weakened"]
    assert [v.mutant.family for v in spread(verdicts, 6)][4:] == ["operands swapped", "barrier dropped"]
    everything = spread(verdicts, 99)
    assert sorted(v.mutant.line for v in everything) == sorted(v.mutant.line for v in verdicts)
    swapped = [v.mutant.line for v in everything if v.mutant.family == "operands swapped"]
    assert abs(swapped[1] - swapped[0]) > 1


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas of CUDA 13 is not on the PATH")
def test_assembling(tmp_path: Path) -> None:
    """The version is lowered to what ptxas knows; what ptxas refuses otherwise is told; nothing is left behind."""
    text = '.version 99.9\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n.loc 1 2 3\nret;\n}\n.file 1 "a.py"\n'
    code, remarks = assembled(text, tmp_path)
    assert code.startswith(b"\x7fELF")
    assert remarks == ""
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SystemExit, match="ptxas refuses"):
        assembled(text.replace("ret;", "return;"), tmp_path)
