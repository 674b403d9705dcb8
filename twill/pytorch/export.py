"""Write a folder of libraries for machines that cannot compile: ``python -m twill.pytorch.export -o DIR [KERNEL ...]``.

There, set ``TWILL_LIBRARIES`` to the folder (`twill.pytorch.libraries`). It takes TVM-FFI and a driver, no compiler and no linker.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Literal

from twill.build import Variant, library
from twill.build.kernelfile import ARCHITECTURES
from twill.errors import TwillError
from twill.pytorch.catalogue import KernelFile, kernels, read_kernel
from twill.pytorch.libraries import MANIFEST

__all__ = ["ALL_VARIANTS", "export", "main"]

DTYPES: tuple[Literal["bf16", "fp16"], ...] = ("bf16", "fp16")
ALL_VARIANTS = tuple(Variant(dtype, causal, lse) for dtype in DTYPES for causal in (False, True) for lse in (False, True))


def export(folder: Path, files: Iterable[KernelFile], variants: Sequence[Variant] = ALL_VARIANTS) -> int:
    """Build every variant of every kernel into the folder and list them in its manifest; the number of libraries.

    Entries of other kernels and variants that the folder holds already stay.

    Raises
    ------
    BuildError : a kernel cannot be compiled.
    """
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / MANIFEST
    kept = json.loads(manifest.read_text(encoding="utf-8"))["libraries"] if manifest.exists() else []
    entries = {(e["kernel"], e["variant"]): e for e in kept}
    made = 0
    for kernel, variant in product(files, variants):
        built = library(kernel.path, variant, arch=ARCHITECTURES[kernel.arch][0])
        name = f"{kernel.name}.{variant.name}.so"
        shutil.copyfile(built, folder / name)
        entries[kernel.name, variant.name] = {
            "kernel": kernel.name, "variant": variant.name, "file": name, "schedule": kernel.schedule,
            "kernel_sha256": hashlib.sha256(kernel.path.read_bytes()).hexdigest(),
        }  # fmt: skip
        made += 1
    text = json.dumps({"libraries": [entries[key] for key in sorted(entries)]}, indent=1) + "\n"
    manifest.write_text(text, encoding="utf-8")
    return made


def _named(names: Sequence[str]) -> list[KernelFile]:
    """Kernels by name or path; all shipped ones if nothing is named."""
    there = {k.name: k for k in kernels()}
    return [there[name] if name in there else read_kernel(Path(name)) for name in names] or list(there.values())


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and say how many."""
    parser = argparse.ArgumentParser(prog="python -m twill.pytorch.export", description="build kernels for machines that cannot")
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="names of shipped kernels, or files; default: all shipped ones")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="where to")
    parser.add_argument("--dtype", choices=DTYPES, help="only this element type")
    given = parser.parse_args(arguments)
    variants = [v for v in ALL_VARIANTS if given.dtype in (None, v.dtype)]
    try:
        made = export(given.output, _named(given.kernels), variants)
    except TwillError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{made} libraries in {given.output}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
