"""From the exported object to a library that TVM-FFI loads: where the linker and the libraries are found, and what is missing if not."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

from twill.build.errors import BuildError
from twill.build.tools import cuda_places

__all__ = ["can_link", "cuda_runtime", "link", "linker"]

COMPILERS = ("cc", "gcc", "clang")
SHIM = "void CuteDSLRT_TVMFFISetRaisedCudaError(int error) { (void)error; }\n"
"""The one symbol that neither the object nor its runtime defines: it would note an error that the function returns anyway."""


def linker() -> str:
    """The C compiler that links.

    Raises
    ------
    BuildError : there is none.
    """
    for name in COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise BuildError(
        f"no C compiler: none of {', '.join(COMPILERS)} is on the PATH, and linking a kernel takes one",
        "install one (on Debian: apt install gcc), or build the kernel on another machine",
    )


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise BuildError(f"the package {name} is not installed", "install 'twill-gpu[kernels]'")
    return Path(next(iter(spec.submodule_search_locations)))


def cuda_runtime() -> Path:
    """The CUDA runtime to link with, preferably static: then the library needs nothing but a driver.

    Raises
    ------
    BuildError : there is none.
    """
    for name in ("libcudart_static.a", "libcudart.so.13"):
        for folder in cuda_places("lib"):
            if (folder / name).is_file():
                return folder / name
    raise BuildError(
        "no CUDA 13 runtime library (libcudart) is installed, and a kernel is linked with it",
        "install nvidia-cuda-runtime or 'twill-gpu[kernels]'",
    )


def can_link() -> bool:
    """Whether there is all that linking takes."""
    try:
        return bool(linker() and cuda_runtime())
    except BuildError:
        return False


def link(objects: Path, output: Path) -> None:
    """Link the object of an exported kernel into a shared library.

    Raises
    ------
    BuildError : something is missing, or the linker refuses.
    """
    compiler, cudart = linker(), cuda_runtime()
    support = _package("nvidia_cutlass_dsl") / "cu13" / "lib" / "libcuda_dialect_runtime_static.a"
    ffi = _package("tvm_ffi") / "lib"
    shim = output.with_name("shim.c")
    shim.write_text(SHIM, encoding="utf-8")
    command = [
        compiler, "-shared", "-fPIC", "-o", str(output), str(objects), str(shim), str(support), f"-L{ffi}", "-ltvm_ffi", str(cudart),
        "-ldl", "-lpthread", "-lrt",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    shim.unlink()
    if done.returncode:
        raise BuildError(f"the linker refused: {done.stderr.strip()[-2000:]}", f"the command was {' '.join(command)}")
