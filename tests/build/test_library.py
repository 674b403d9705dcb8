"""A kernel from file to callable function, on a machine without a GPU."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from twill.build import BuildError, Variant, library, load
from twill.build.compiler import compiled, sources
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
    made = compiled(read(find(NAME)), variant, "sm_90a")
    assert made.cubin.read_bytes()[:4] == b"\x7fELF"
    ptx = made.ptx.read_text()
    assert ".target sm_90a" in ptx
    assert "wgmma.mma_async" in ptx

    function = load(NAME, variant)
    q = torch.zeros((2, 3, 4, 64), dtype=torch.float16)
    others = {"counter": torch.zeros(1, dtype=torch.int32), "softmax_scale": 1 / math.sqrt(64), "sm_count": 132}
    given = [others[p] for p in read(find(NAME)).parameters if p in others]
    with pytest.raises(ValueError, match="expected device_type=cuda"):
        function(q, q, q, q, None, *given)


def test_the_cache_would_notice_a_change_of_any_tile_operation() -> None:
    found = {"/".join(p.parts[-3:]) for p in sources(read(find(NAME)))}
    assert {"emit/tiles/barriers.py", "sm90/tiles/softmax.py", "sm90/tiles/__init__.py", "twill/emit/__init__.py"} <= found
    assert not any(p.startswith("twill/build") for p in found)


@needs_compiler
def test_an_import_that_the_cache_would_not_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWILL_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "nosy.py"
    path.write_text(
        find(NAME).read_text().replace("from twill.emit.sm90 import tiles\n", "import twill.errors\nfrom twill.emit.sm90 import tiles\n")
    )
    with pytest.raises(BuildError, match=r"nosy imports \S*errors\.py, a change of which the kernel cache would not notice"):
        library(path, Variant("bf16", False, False))


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


WITHOUT_COMPILER = """
import sys, torch
import twill.build.link
from twill.build import BuildError, Variant, library, load
twill.build.link.COMPILERS = ("no-such-compiler",)
variant = Variant("fp16", False, False)
try:
    library(sys.argv[1], variant)
except BuildError as error:
    print(error)
function = load(sys.argv[1], variant)
q = torch.zeros((2, 3, 4, 64), dtype=torch.float16)
try:
    function(q, q, q, q, None, torch.zeros(1, dtype=torch.int32), 0.125, 132)
except ValueError as error:
    print(error)
"""


@needs_compiler
def test_without_a_c_compiler_there_is_no_library_but_it_loads(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    environment = {**os.environ, "TWILL_CACHE": str(tmp_path)}
    child = [sys.executable, "-c", WITHOUT_COMPILER, NAME]
    done = subprocess.run(child, capture_output=True, text=True, timeout=240, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "no C compiler: none of no-such-compiler is on the PATH" in done.stdout
    assert "apt install gcc" in done.stdout
    assert "expected device_type=cuda" in done.stdout
