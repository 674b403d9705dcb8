"""An emitted kernel by name or path, compiled and ready to run under the emulator."""

from __future__ import annotations

from pathlib import Path

from twill.build.compiler import compiled
from twill.build.kernelfile import ARCHITECTURES, Variant, find, read
from twill.emulate.backward import BackwardKernel
from twill.emulate.errors import EmulationError
from twill.emulate.kernel import AttentionKernel, head_dims
from twill.emulate.numbers import Dtype, Shape

__all__ = ["ready", "shape_of"]


def ready(
    kernel: str | Path, *, causal: bool, dtype: Dtype = "bf16", deterministic: bool = False, cache: str | None = None
) -> AttentionKernel:  # fmt: skip
    """Compile a shipped kernel or a file, forward or backward.

    Raises
    ------
    BuildError, EmulationError : it cannot be compiled, or uses what the emulator does not know.
    """
    file = read(find(str(kernel)))
    if deterministic and "deterministic" not in file.parameters:
        raise EmulationError(f"{file.name} makes no gradients: what it makes is deterministic", "leave --deterministic away")
    made = compiled(file, Variant(dtype, causal, True, deterministic), ARCHITECTURES[file.tiles][0], cache=cache)
    kind = BackwardKernel if "do" in file.parameters else AttentionKernel
    return kind(file.path, made.ptx.read_text(encoding="utf-8"), made.folder / "kernel.o", file.host, file.parameters)


def shape_of(
    kernel: AttentionKernel, seqlen_q: int, seqlen_k: int, *, causal: bool, batch: int = 1, heads: int = 1, kv_heads: int = 1,
    dtype: Dtype = "bf16",
) -> Shape:  # fmt: skip
    """A problem of these lengths for a kernel; head dims are those of the kernel."""
    return Shape(batch, seqlen_q, seqlen_k, heads, kv_heads, *head_dims(kernel.source), causal, dtype)
