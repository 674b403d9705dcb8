"""A kernel from file to callable function, on a machine without a GPU."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest

from twill.build import BuildError, Variant, library, load
from twill.build.kernelfile import find, read

needs_compiler = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("cutlass", "tvm_ffi", "filelock")),
    reason="the extra 'kernels' is not installed",
)
NAME = "sm90_attn_fwd_d64"


@needs_compiler
def test_compiled_once_and_loadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("TWILL_CACHE", str(tmp_path))
    variant = Variant("fp16", True, False)
    path = library(NAME, variant)
    stamp = path.stat().st_mtime_ns
    assert library(find(NAME), variant) == path
    assert path.stat().st_mtime_ns == stamp
    assert (path.parent / "kernel.cubin").read_bytes()[:4] == b"\x7fELF"
    ptx = (path.parent / "kernel.ptx").read_text()
    assert ".target sm_90a" in ptx
    assert "wgmma.mma_async" in ptx

    function = load(NAME, variant)
    q = torch.zeros((2, 3, 4, 64), dtype=torch.float16)
    others = {"counter": torch.zeros(1, dtype=torch.int32), "softmax_scale": 1 / math.sqrt(64), "sm_count": 132}
    given = [others[p] for p in read(find(NAME)).parameters if p in others]
    with pytest.raises(ValueError, match="expected device_type=cuda"):
        function(q, q, q, q, None, *given)


@needs_compiler
def test_a_tile_that_no_mma_has_is_an_error_and_not_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWILL_CACHE", str(tmp_path / "cache"))
    text = find(NAME).read_text()
    keys = read(find(NAME)).text.split("keys=")[1].split(",")[0]
    path = tmp_path / "odd.py"
    path.write_text(text.replace(f"keys={keys}", "keys=72"))
    with pytest.raises(BuildError, match="odd"):
        library(path, Variant("bf16", False, False))
    assert {p.suffix for p in (tmp_path / "cache").iterdir()} == {".lock"}


@needs_compiler
def test_without_a_c_compiler_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("twill.build.link.COMPILERS", ("no-such-compiler",))
    with pytest.raises(BuildError, match=r"no C compiler[\s\S]*apt install gcc"):
        library(NAME, Variant("bf16", False, False))
