"""The shipped kernels are what ``twill emit`` prints, byte for byte, and compile where CuTe DSL is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from twill.cli.emit import kernel_of

ROOT = Path(__file__).parents[2]
BACKWARD = ("sm90_attn_bwd_d64", "sm90_attn_bwd_d96", "sm90_attn_bwd_d128", "sm90_attn_bwd_d128_q64")
"""Those of the backward that can be emitted and do not spill so far."""
KERNELS = sorted((ROOT / "kernels").glob("sm*_attn_*.py"))


def test_there_is_one_for_every_shipped_schedule() -> None:
    forward = [p.stem for arch in ("sm90", "sm100", "sm103") for p in (ROOT / "schedules").glob(f"{arch}_attn_fwd_*.json")]
    assert [p.stem for p in KERNELS] == sorted([*forward, *BACKWARD])


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)
def test_emitted_again_it_is_the_same(path: Path) -> None:
    assert kernel_of(path.stem) == path.read_text(encoding="utf-8")


@pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="CuTe DSL is not installed")
@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)
def test_it_compiles_without_a_gpu(path: Path) -> None:
    """In a child process: the compiler reads its target from the environment before it is imported."""
    child = [sys.executable, str(Path(__file__).with_name("compile_kernel.py")), str(path)]
    done = subprocess.run(child, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "setmaxnreg.inc" in done.stdout
    assert ("wgmma.mma_async" if path.stem.startswith("sm90") else "tcgen05.mma") in done.stdout
