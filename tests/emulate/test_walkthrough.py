"""docs/emulator.md, "Plant a bug": the same deletions give the same reports. Line numbers may have moved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("cutlass", reason="kernels are compiled by CuTe DSL: install 'twill-gpu[kernels]'")
pytest.importorskip("filelock")

from twill.build.kernelfile import find
from twill.emulate.ready import ready, shape_of
from twill.view.emulation import report

PAGE = Path(__file__).parents[2] / "docs" / "emulator.md"


def _section() -> str:
    return PAGE.read_text(encoding="utf-8").partition("## Plant a bug")[2].partition("\n## ")[0]


def _blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", _section(), re.DOTALL | re.MULTILINE)
    return [text for kind, text in found if kind == language]


def _without_numbers(text: str) -> str:
    """Lines of PTX and of Python, offsets and counts, which a change of the kernel moves."""
    text = re.sub(r"(PTX line|offset|met) \d+", r"\1 #", text)
    text = re.sub(r"\.py:\d+", ".py:#", text)
    return re.sub(r"wgmma of warps? \d+", "wgmma of warp #", text)


def _report(deleted: str, folder: Path) -> Iterator[str]:
    text = find("sm90_attn_fwd_d64").read_text(encoding="utf-8")
    head, period, rest = text.partition("def softmax_period")
    body, end, tail = rest.partition("\n\n\n")
    assert body.count(deleted) == 1
    broken = folder / "broken.py"
    broken.write_text(head + period + body.replace(deleted, "") + end + tail, encoding="utf-8")
    kernel = ready(broken, causal=False, cache="off")
    result = kernel.run(shape_of(kernel, 200, 1100, causal=False), "late")
    for line in report(result, kernel.code, 0.0):
        yield from line.split("\n")


@pytest.mark.parametrize("which", [0, 1], ids=["a release", "a wait"])
def test_the_report_is_what_the_page_says(which: int, tmp_path: Path) -> None:
    deleted, shown = _blocks("python")[which], _blocks("")[which]
    found = [_without_numbers(line) for line in _report(deleted, tmp_path)]
    for line in shown.splitlines():
        assert any(_without_numbers(line) in x for x in found), "\n".join(["not in the report:", line, "which is:", *found])


def test_the_command_of_the_page_has_these_arguments() -> None:
    assert "--seqlen-q 200 --seqlen-k 1100 --schedulers late" in _section()
    assert len(_blocks("python")) == len(_blocks("")) == 2
