"""A pin holds the place of a wait: without it the assembler may let the wait rise past exponentials, with it none."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from twill.build import Variant
from twill.build.compiler import compiled
from twill.build.kernelfile import find, read
from twill.build.report import reported
from twill.build.sass import parse
from twill.build.tools import disassembled

INSTALLED = all(importlib.util.find_spec(name) is not None for name in ("cutlass", "tvm_ffi", "filelock"))
WAIT = re.compile(r"    tiles\.wait_mma\(0\)")


def _late(path: Path, cache: Path) -> tuple[dict[str, int], int]:
    """For each consumer, how many exponentials of a turn come after the wait for all MMAs; and how many pins the machine code has."""
    made = compiled(read(path), Variant("bf16", False, False), "sm_90a", cache=cache)
    found = reported(made, None, "itself")
    assert found.problems == ()
    late = {x.role: 0 for x in found.loops if x.role != "load"}
    for loop in found.loops:
        for move in loop.moves:
            if move.op.startswith("EXP") and (move.side, move.of) == ("after", "wait own MMAs, 0 pending"):
                late[loop.role] += move.count
    (code,) = parse(disassembled(made.cubin))
    return late, sum(x.opcode == "NANOSLEEP" for x in code.instructions)


@pytest.mark.skipif(not INSTALLED, reason="the extra 'kernels' is not installed")
def test_a_pin_holds_the_exponentials_before_a_wait(tmp_path: Path) -> None:
    lines = [x for x in find("sm90_attn_fwd_d128").read_text().splitlines() if "tiles.pin(" not in x]
    free, pinned = [], []
    period = exponentials = False
    for line in lines:
        if line.startswith(("@", "def ")):
            period, exponentials = line.startswith("def softmax") and "_period(" in line, False
        exponentials |= "tiles.exp2(" in line
        if period and exponentials and WAIT.match(line):
            pinned.append("    tiles.pin(tile)")
        free.append(line)
        pinned.append(line)
    added = len(pinned) - len(free)
    assert added
    for name, text in (("free", free), ("pinned", pinned)):
        (tmp_path / f"{name}.py").write_text("\n".join(text) + "\n")
    (early, none), (held, pins) = (_late(tmp_path / f"{name}.py", tmp_path / "cache") for name in ("free", "pinned"))
    assert (none, pins) == (0, added), "the assembler removed a pin"
    assert set(held.values()) == {0}
    assert early.keys() == held.keys()
