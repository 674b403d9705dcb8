"""flash-attn-4's kernels for sm_90a, compiled by `benchmarks.emulate_peers`, as cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from benchmarks.emulate_peers import CASES, Ready, case_name, rows_of
from benchmarks.silicon.cases import Array, Buffer, Call, Case
from benchmarks.silicon.emulated import emulated
from benchmarks.silicon.ours import host_call, outputs
from twill.emulate.numbers import Shape, attention, inputs, to_bits

__all__ = ["peers"]

SEED = 3


def peers(folder: Path, compiled: Path) -> Iterator[Case]:
    """Forward and backward, emulated; ``compiled`` is the folder of `benchmarks.emulate_peers`."""
    for arch, way, dim, causal in CASES:
        if arch != "sm_90a":
            continue
        label = case_name(arch, way, dim, causal)
        place = compiled / label
        ready = [Ready.load(place, f"k{i}") for i in range(1 if way == "fwd" else 3)]
        calls = [
            host_call(folder, f"fa4_{label}_k{i}", place / f"k{i}.o", f"k{i}", (place / f"k{i}.cubin").read_bytes(), r.code.kernel)
            for i, r in enumerate(ready)
        ]
        lengths = (300, 700) if way == "fwd" else (256, 256)
        shape = Shape(1, *lengths, 1, 1, dim, dim, causal, "bf16")
        case = _forward(label, shape, folder, ready, calls) if way == "fwd" else _backward(label, shape, folder, ready, calls)
        yield emulated(case, folder, [(r.code, r.recorder) for r in ready])


def _with(call: Call, ready: Ready, first: list[object], length: int) -> Call:
    return replace(call, arguments=tuple(ready.arguments(first, length)))


def _kept(folder: Path, label: str, tensors: dict[str, Array]) -> tuple[Buffer, ...]:
    file = f"inputs_fa4_{label}.npz"
    np.savez_compressed(folder / file, **tensors)  # type: ignore[arg-type]
    return tuple(Buffer(n, "bf16" if x.dtype == np.uint16 else "f32", x.shape, (file, n)) for n, x in tensors.items())


def _forward(label: str, shape: Shape, folder: Path, ready: Sequence[Ready], calls: Sequence[Call]) -> Case:
    given = inputs(shape, SEED)
    buffers = (*_kept(folder, label, {"q": given.q, "k": given.k, "v": given.v}), *outputs(shape))
    call = _with(calls[0], ready[0], ["q", "k", "v", "o", "lse", float(given.scale)], shape.seqlen_q)
    return Case(f"FA4 {label} {shape.seqlen_q}x{shape.seqlen_k}", "FA4", buffers, (call,), asdict(shape))


def _backward(label: str, shape: Shape, folder: Path, ready: Sequence[Ready], calls: Sequence[Call]) -> Case:
    """Preprocessing, backward, and the conversion of dQ; O and its log-sum-exp are those of double precision."""
    given = inputs(shape, SEED)
    right = attention(given, shape)
    gradient = to_bits(np.asarray(np.random.default_rng(9).standard_normal(right.o.shape)), "bf16")
    tensors = {
        "q": given.q, "k": given.k, "v": given.v, "o": to_bits(right.o, "bf16"), "do": gradient, "lse": right.lse.astype(np.float32),
    }  # fmt: skip
    rows = rows_of("sm_90a", shape.head_dim, shape.causal)
    padded = -(-shape.seqlen_q // rows) * rows
    made = [
        Buffer(n, "f32", (1, shape.heads, size)) for n, size in (("log2", padded), ("sums", padded), ("total", padded * shape.head_dim))
    ]
    made += [Buffer(n, "bf16", tensors[n[1:]].shape, output=True) for n in ("dq", "dk", "dv")]
    scale = float(given.scale)
    before: list[object] = ["o", "do", "sums", "lse", "log2", "total", None, None, None, None, None, 1.0]
    filled = (
        _with(calls[0], ready[0], before, 0),
        _with(calls[1], ready[1], ["q", "k", "v", "do", "log2", "sums", "total", "dk", "dv", scale], 0),
        _with(calls[2], ready[2], ["total", "dq", scale], 0),
    )
    return Case(f"FA4 {label} {shape.seqlen_q}x{shape.seqlen_k}", "FA4", (*_kept(folder, label, tensors), *made), filled)
