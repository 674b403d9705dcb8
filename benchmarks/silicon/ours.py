"""The shipped kernels of sm_90a as cases."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.silicon.cases import Buffer, Call, Case, pack
from benchmarks.silicon.emulated import emulated
from twill.build import names
from twill.build.compiler import compiled
from twill.build.kernelfile import Variant, find, read
from twill.emulate.host.record import link
from twill.emulate.kernel import AttentionKernel, head_dims
from twill.emulate.numbers import Shape, inputs
from twill.emulate.ptx.syntax import Kernel

__all__ = ["Ours", "host_call", "ours", "outputs"]

SHAPES = ((193, 700, 2, 1), (130, 1100, 1, 1), (1, 400, 1, 1))
"""Rows of Q, rows of K and V, heads, heads of K and V."""
UNWRITTEN = {"bf16": 0x7FC1, "f32": 0x7FC00000}
"""Not a number."""


@dataclass(frozen=True, slots=True)
class Ours:
    """A shipped kernel, compiled: its files in the folder of the cases, and what the emulator runs."""

    label: str
    source: Path
    causal: bool
    call: Call
    ptx: str
    kernel: AttentionKernel
    order: tuple[str, ...]

    @classmethod
    def make(cls, name: str, causal: bool, folder: Path) -> Ours:
        file = read(find(name))
        made = compiled(file, Variant("bf16", causal, True), "sm_90a")
        label = f"{name}{'_causal' if causal else ''}"
        ptx = made.ptx.read_text(encoding="utf-8")
        kernel = AttentionKernel(file.path, ptx, made.folder / "kernel.o", file.host, file.parameters)
        call = host_call(folder, label, made.object, file.host, made.cubin.read_bytes(), kernel.code.kernel)
        order = tuple(p for p in file.parameters if p not in ("causal", "stream"))
        return cls(label, file.path, causal, call, ptx, kernel, order)

    def case(self, rows: tuple[int, int, int, int], folder: Path, seed: int, sm_count: int) -> Case:
        """A problem for it; ``rows`` as in `SHAPES`."""
        seqlen_q, seqlen_k, heads, kv_heads = rows
        shape = Shape(1, seqlen_q, seqlen_k, heads, kv_heads, *head_dims(self.source), self.causal, "bf16")
        buffers = (*_given(shape, seed, folder), *outputs(shape), Buffer("counter", "i32", (1,)))
        known = {b.name: b.name for b in buffers} | {"softmax_scale": shape.head_dim**-0.5, "sm_count": sm_count}
        call = replace(self.call, arguments=tuple(known[p] for p in self.order))
        return Case(f"{self.label} {seqlen_q}x{seqlen_k}", "ours", buffers, (call,), asdict(shape))


def host_call(folder: Path, label: str, objects: Path, function: str, cubin: bytes, kernel: Kernel) -> Call:
    """A call, with no arguments yet, of an exported host function; its library and its code are kept in ``folder``."""
    library = folder / f"{label}.so"
    shutil.move(link([objects], folder), library)
    parameters = tuple((p.offset, p.size) for p in kernel.parameters)
    return Call(library.name, function, pack(cubin, folder / f"{label}.cubin.xz"), kernel.name, parameters, ())


def _given(shape: Shape, seed: int, folder: Path) -> tuple[Buffer, ...]:
    """Q, K and V, in a file that kernels of the same shape share."""
    sizes = (shape.seqlen_q, shape.seqlen_k, shape.heads, shape.kv_heads, shape.head_dim, shape.head_dim_v)
    file = folder / f"inputs_{'_'.join(map(str, sizes))}_{seed}.npz"
    made = inputs(shape, seed)
    tensors: dict[str, Any] = {"q": made.q, "k": made.k, "v": made.v}
    if not file.exists():
        np.savez_compressed(file, **tensors)
    return tuple(Buffer(n, "bf16", x.shape, (file.name, n)) for n, x in tensors.items())


def outputs(shape: Shape) -> tuple[Buffer, Buffer]:
    """O and the log-sum-exp, filled with what is no number."""
    wide = (shape.batch, shape.seqlen_q, shape.heads, shape.head_dim_v)
    rows = (shape.batch, shape.heads, shape.seqlen_q)
    return (
        Buffer("o", "bf16", wide, fill=UNWRITTEN["bf16"], output=True), Buffer("lse", "f32", rows, fill=UNWRITTEN["f32"], output=True)
    )  # fmt: skip


def ours(folder: Path) -> Iterator[Case]:
    """All shipped forward kernels of sm_90a, causal and not."""
    for name in (n for n in names() if n.startswith("sm90_attn_fwd")):
        for causal in (False, True):
            this = Ours.make(name, causal, folder)
            for seed, rows in enumerate(SHAPES):
                yield emulated(this.case(rows, folder, seed, 2), folder, [(this.kernel.code, this.kernel.recorder)])
