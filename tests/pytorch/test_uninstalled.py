"""A GPU machine may have nothing but PyTorch and TVM-FFI: no compiler, no solver, no command line, and no installation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "gpu" / "uninstalled.sh"

CODE = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"z3", "pydantic", "networkx", "typer", "rich", "cutlass", "cuda", "filelock", "numpy"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import twill, torch
from twill.pytorch import kernels, libraries
print(twill.__file__, len(kernels()), libraries.libraries())
q = torch.zeros(1, 1, 1, 64, dtype=torch.bfloat16)
try:
    twill.attention(q, q, q)
except ValueError as error:
    print(error)
from twill.pytorch.libraries import function_of
try:
    function_of(kernels()[0], "bf16", False, False)
except Exception as error:
    print(error)
import benchmarks.attention, benchmarks.attention_child, tests.gpu.__main__, tests.gpu.checks
"""


def test_a_checkout_that_is_not_installed(tmp_path: Path) -> None:
    command = [str(SCRIPT), str(tmp_path), sys.executable, "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    file, kernels, libraries = first.split()
    assert Path(file).is_relative_to(tmp_path)
    assert int(kernels) == len(list((SCRIPT.parents[2] / "kernels").glob("*_attn_fwd_*.py")))
    assert libraries == str(tmp_path)
    assert "these are on cpu" in rest[0]
    assert any(f"{tmp_path} is not a folder of libraries" in line or "TVM-FFI" in line for line in rest)
    assert not list(tmp_path.glob("tmp.*")), "the script left something behind"


def test_libraries_may_come_in_an_archive(tmp_path: Path) -> None:
    (tmp_path / "libraries.json").write_text("this one")
    archive = tmp_path / "libraries.tar.xz"
    subprocess.run(["tar", "cJf", str(archive), "-C", str(tmp_path), "libraries.json"], check=True)
    done = subprocess.run(
        [str(SCRIPT), str(archive), "bash", "-c", 'cat "$TWILL_LIBRARIES/libraries.json"'],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "this one"
