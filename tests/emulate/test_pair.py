"""A kernel for pairs of blocks: right under the emulator, and not without what holds the pair together."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cutlass", reason="kernels are compiled by CuTe DSL: install 'twill-gpu[kernels]'")
pytest.importorskip("filelock")

from twill.cli.app import run
from twill.emulate.shapes import SHAPES, outcome, prepared

BY_PURPOSE = {s.purpose: s for s in SHAPES}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("pair") / "pair.py"
    assert run(["emit", "--arch", "sm100", "attn_fwd", "--head-dim", "128", "--set", "ctas=2", "-o", str(to)]) == 0
    return to


@pytest.mark.timeout(900)
def test_right_and_without_a_finding(pair: Path) -> None:
    plain = prepared(str(pair), False, "bf16")
    for purpose, schedulers in (("one row, one key", ("late",)), ("rescaled in every tile", ("eager", "newest")), ("no keys", ("random",))):
        found = outcome(plain, BY_PURPOSE[purpose], schedulers)
        assert found.findings == ()
        assert found.largest_error <= 1
    causal = prepared(str(pair), True, "fp16")
    found = outcome(causal, BY_PURPOSE["several tiles a block, causal"], ("late", "random"))
    assert found.findings == ()
    assert found.largest_error <= 1
    assert found.rounds >= 2


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("what", "instead", "kinds"),
    [
        ('"EXP_a0_to_PV_a0": tiles.RingShape(slots=1, arrivals=8, pair="gathered")',
         '"EXP_a0_to_PV_a0": tiles.RingShape(slots=1, arrivals=4, pair="gathered")', {"race", "barrier", "deadlock", "uninitialised read"}),
        ('tx_bytes=32768, pair="gathered"', 'tx_bytes=16384, pair="gathered"', {"bytes", "race", "deadlock"}),
    ],
)  # fmt: skip
def test_what_holds_the_pair_together_is_needed(pair: Path, tmp_path: Path, what: str, instead: str, kinds: set[str]) -> None:
    text = pair.read_text(encoding="utf-8")
    assert what in text
    broken = tmp_path / "broken.py"
    broken.write_text(text.replace(what, instead), encoding="utf-8")
    kernel = prepared(str(broken), False, "bf16")
    found: set[str] = set()
    for scheduler in ("late", "newest", "random"):
        if not found & kinds:
            found |= {text.split(": ")[1] for text in outcome(kernel, BY_PURPOSE["rescaled in every tile"], (scheduler,)).findings}
    assert found & kinds, found
