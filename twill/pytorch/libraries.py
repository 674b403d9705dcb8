"""Compiled kernels: built when first needed, or taken from a folder of libraries that were built elsewhere.

Such a folder is what ``twill build --all -o DIR`` writes: a machine that has neither the compiler nor a linker needs only that folder and
TVM-FFI. It is named by the environment variable ``TWILL_LIBRARIES``, or with `twill.pytorch.use_libraries`. Where a folder is named,
nothing is compiled: a kernel that it lacks, or holds as made from another text, is an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch

from twill.pytorch.catalogue import KernelFile
from twill.pytorch.errors import AttentionError

__all__ = ["VARIABLE", "function_of", "libraries", "set_libraries"]

VARIABLE = "TWILL_LIBRARIES"

_folder: Path | None = None


def set_libraries(folder: Path | None) -> None:
    """Name the folder, whatever the environment says; with ``None``, do as the environment says again. Loaded kernels are forgotten."""
    global _folder
    _folder = folder
    function_of.cache_clear()


def libraries() -> Path | None:
    """The folder of libraries in use, if any."""
    named = os.environ.get(VARIABLE)
    return _folder or (Path(named) if named else None)


@cache
def function_of(
    kernel: KernelFile, dtype: Literal["bf16", "fp16"], causal: bool, lse: bool, deterministic: bool = False
) -> Callable[..., Any]:
    """The host function of a kernel: ``attn_fwd(q, k, v, o, lse or None, counter, softmax_scale, sm_count)``, or
    ``attn_bwd(q, k, v, o, do, lse, dq, dk, dv, workspace, counter, softmax_scale, sm_count)``, of which there are no variants with and
    without log-sum-exp, ``lse`` is false, but with and without an order of additions to dQ.

    Raises
    ------
    AttentionError : TVM-FFI is not installed, or a CUDA graph is being captured.
    BuildError : the folder in use does not have it, or it cannot be compiled.
    """
    from twill.build import Variant
    from twill.build.kernelfile import ARCHITECTURES
    from twill.build.libraries import library_in

    try:
        import tvm_ffi
    except ModuleNotFoundError:
        raise AttentionError("TVM-FFI, through which kernels are called, is not installed", "install 'twill-gpu[kernels]'") from None
    if _capturing():
        raise AttentionError(
            f"{kernel.name} is not loaded yet, and cannot be while a CUDA graph is captured", "call it once before, with the same types"
        )
    variant, arch = Variant(dtype, causal, lse, deterministic), ARCHITECTURES[kernel.arch][0]
    folder = libraries()
    if folder is None:
        from twill.build import load

        return load(kernel.path, variant, arch=arch)
    library = library_in(folder, kernel.path, variant, arch)
    function: Callable[..., Any] = tvm_ffi.load_module(str(library))[kernel.makes]
    return function


def _capturing() -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())
