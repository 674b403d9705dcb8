"""The solver and the command line do without PyTorch, and the functions that need it say so."""

from __future__ import annotations

import subprocess
import sys

import pytest

import twill

BLOCKED = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Missing())
import twill
try:
    twill.attention
except ModuleNotFoundError as error:
    print(error)
"""


def test_the_solver_needs_no_pytorch() -> None:
    code = "import sys, twill, twill.solver.solve, twill.cli; assert 'torch' not in sys.modules; assert 'attention' in dir(twill)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_what_needs_it_says_so() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout == "twill.attention needs PyTorch: install 'twill-gpu[kernels]'\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'twill' has no attribute 'atention'"):
        twill.atention  # type: ignore[attr-defined]  # noqa: B018
