"""NVIDIA's binary tools: where they are, and what is asked of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from twill.build.errors import BuildError

__all__ = ["Resources", "cuda_places", "disassembled", "resources"]

USAGE = re.compile(r"Function (\S+):\s*\n\s*(REG:.*)")
FIELD = re.compile(r"([A-Z]+):(\d+)")


@dataclass(frozen=True, slots=True)
class Resources:
    """What a kernel takes: registers a thread at launch; stack, spilled and static shared bytes."""

    registers: int
    stack_bytes: int
    local_bytes: int
    shared_bytes: int


def cuda_places(folder: str) -> tuple[Path, ...]:
    """Where files of CUDA 13 may be: in NVIDIA's wheels (``bin`` or ``lib``), then in a toolkit (where ``lib`` is ``lib64``)."""
    wheels = [Path(entry) / "nvidia" / "cu13" / folder for entry in sys.path]
    roots = [Path(root) for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if root]
    return (*wheels, *(root / (folder if folder == "bin" else f"{folder}64") for root in roots))


def _tool(name: str) -> str:
    for folder in cuda_places("bin"):
        if (folder / name).is_file():
            return str(folder / name)
    found = shutil.which(name)
    if found is None:
        raise BuildError(f"{name}, which reads machine code, is not installed", "install 'twill-gpu[kernels]', or the CUDA 13 toolkit")
    return found


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{Path(command[0]).name} failed: {done.stderr.strip()[-1000:]}", f"the command was {' '.join(command)}")
    return done.stdout


def disassembled(cubin: Path) -> str:
    """Machine code as text, each instruction with its line of PTX where the cubin knows it."""
    return _run(_tool("nvdisasm"), "-c", "-gp", str(cubin))


def resources(cubin: Path) -> dict[str, Resources]:
    """What each kernel of a cubin takes."""
    text = _run(_tool("cuobjdump"), "--dump-resource-usage", str(cubin))
    found = {}
    for name, fields in USAGE.findall(text):
        values = {key: int(value) for key, value in FIELD.findall(fields)}
        found[name] = Resources(values["REG"], values["STACK"], values["LOCAL"], values["SHARED"])
    return found
