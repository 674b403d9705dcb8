"""Kernels for head dims that do not ship, made by the one command that makes them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["ANOTHER", "HEAD_DIMS", "file_of"]

HEAD_DIMS = (72, 80, 104, 112)
ANOTHER = "regenerated"
"""Instead of the path of a kernel file: the one for the head dim, made when it is needed."""
LIMIT_S = 300


@cache
def file_of(head_dim: int) -> Path:
    """The kernel file: the one in the folder of libraries, if a folder is named and has it; else made anew.

    Raises
    ------
    FileNotFoundError : neither can be.
    """
    name = f"sm90_attn_fwd_d{head_dim}.py"
    folder = os.environ.get("TWILL_LIBRARIES")
    if folder and (Path(folder) / name).is_file():
        return Path(folder) / name
    if importlib.util.find_spec("z3") is None:
        raise FileNotFoundError(f"there is no {name} in the folder of libraries, and no solver to make it")
    made = Path(tempfile.mkdtemp(prefix="twill-")) / name
    command = [sys.executable, "-m", "twill.cli", "emit", "--arch", "sm90", "attn_fwd", "--head-dim", str(head_dim), "-o", str(made)]
    subprocess.run(command, check=True, timeout=LIMIT_S, capture_output=True)
    return made
