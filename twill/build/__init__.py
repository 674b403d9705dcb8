"""Compile emitted kernels, keep them, load them, and say what their machine code is.

`library` and `load` need the extra ``kernels``, and `library` a C compiler to link with, but no GPU; calling what `load` returns needs one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twill.build.errors import BuildError, LintError
from twill.build.kernelfile import Variant, find, names, read

if TYPE_CHECKING:
    from twill.build.compiler import Compiled

__all__ = ["BuildError", "LintError", "Variant", "library", "load", "names"]


def library(kernel: str | Path, variant: Variant, *, arch: str = "sm_90a", check: bool = True) -> Path:
    """The shared library of a kernel, given by path or by the name of a shipped one; compiled unless the cache has it.

    Without ``check`` machine code that is right but bad is not refused, as for measuring how bad it is.

    Raises
    ------
    BuildError : no such kernel, something is not installed, or compiler or linker gave up.
    LintError : it compiles, but spills, lost a register request, or its MMAs wait for each other (`twill build` says more).
    """
    return _judged(kernel, variant, arch, check).library


def _judged(kernel: str | Path, variant: Variant, arch: str, check: bool) -> Compiled:
    from twill.build.compiler import compiled
    from twill.build.lint import refuse

    found = compiled(read(find(kernel)), variant, arch)
    if check:
        refuse(f"{found.kernel.name} ({variant.name})", found.problems)
    return found


def load(kernel: str | Path, variant: Variant, *, arch: str = "sm_90a", check: bool = True) -> Callable[..., Any]:
    """The compiled host function of a kernel, loaded through TVM-FFI; where nothing can link, by CuTe DSL from the object.

    It takes what the file's host function takes, except constants of the variant and the stream, which is that of the caller's
    framework: ``f(q, k, v, o, lse or None, counter, softmax_scale, sm_count)``. Tensors are (batch, seq, heads, dim) with dim
    contiguous, other strides multiples of 8 elements and data aligned to 16 bytes; lse is (batch, heads, seq) in fp32; counter is one
    int32 in global memory, 0 before and after, that belongs to one launch at a time.

    Raises
    ------
    BuildError, LintError : as `library`.
    """
    from twill.build.link import can_link

    found = _judged(kernel, variant, arch, check)
    return _loaded(found.library if can_link() else found.object, found.kernel.host)


@cache
def _loaded(path: Path, host: str) -> Callable[..., Any]:
    if path.suffix == ".o":
        from cutlass.runtime import load_module

        from_object: Callable[..., Any] = getattr(load_module(str(path), enable_tvm_ffi=True), host)
        return from_object
    import tvm_ffi

    function: Callable[..., Any] = tvm_ffi.load_module(str(path))[host]
    return function
