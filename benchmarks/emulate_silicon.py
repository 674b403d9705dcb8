"""The emulator against a GPU, bit by bit, on the same inputs.

    python -m benchmarks.emulate_silicon prepare FOLDER    on any machine: compile, emulate, keep inputs, outputs and libraries (no GPU)
    python -m benchmarks.emulate_silicon compare FOLDER    on a machine with an H100 or H200: run the libraries, print the table

Comparing needs numpy, torch and apache-tvm-ffi only. Outputs should differ in last bits: tensor cores sum in another order, and the
emulator computes approximate functions exactly.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["compare", "distance", "main", "prepare"]

CASES = ((193, 700, 2, 1), (130, 1100, 1, 1), (1, 400, 1, 1))
"""Rows of Q, rows of K and V, heads, heads of K and V."""
Array = np.ndarray[Any, Any]


def distance(a: Array, b: Array) -> Array:
    """Units in the last place between 16-bit patterns of one sign-and-magnitude format."""

    def ordered(bits: Array) -> Array:
        wide = bits.astype(np.int64)
        found: Array = np.where(wide & 0x8000, -(wide & 0x7FFF), wide)
        return found

    found: Array = np.abs(ordered(a) - ordered(b))
    return found


def prepare(folder: Path) -> None:
    """Emulate all shipped forward kernels of sm_90a, causal and not."""
    from twill.build import names
    from twill.build.compiler import compiled
    from twill.build.kernelfile import Variant, find, read
    from twill.emulate.kernel import AttentionKernel, head_dims
    from twill.emulate.numbers import Shape, attention, inputs

    folder.mkdir(parents=True, exist_ok=True)
    index = []
    for name in (n for n in names() if n.startswith("sm90_attn_fwd")):
        for causal in (False, True):
            file = read(find(name))
            made = compiled(file, Variant("bf16", causal, True), "sm_90a")
            label = f"{name}{'_causal' if causal else ''}"
            shutil.copy(made.library, folder / f"{label}.so")
            kernel = AttentionKernel(file.path, made.ptx.read_text(encoding="utf-8"), made.folder / "kernel.o", file.host, file.parameters)
            for case, (seqlen_q, seqlen_k, heads, kv_heads) in enumerate(CASES):
                shape = Shape(1, seqlen_q, seqlen_k, heads, kv_heads, *head_dims(file.path), causal, "bf16")
                given, result = inputs(shape, case), kernel.run(shape, "eager", case)
                if result.findings.errors:
                    raise SystemExit(f"{label}: {result.findings.errors[0].text}")
                expected = attention(given, shape)
                data = folder / f"{label}_{case}.npz"
                np.savez_compressed(data, q=given.q, k=given.k, v=given.v, o=result.output.reshape(expected.o.shape), bound=expected.bound)
                order = [p for p in file.parameters if p not in ("causal", "stream")]
                index.append({"label": label, "host": file.host, "data": data.name, "order": order, "scale": given.scale})
                print(label, CASES[case], "emulated", flush=True)
    (folder / "index.json").write_text(json.dumps(index))


def compare(folder: Path) -> int:
    """Print the table; gives the number of cases that differ by more than what rounding allows."""
    import torch
    import tvm_ffi

    bad = 0
    count = torch.cuda.get_device_properties(0).multi_processor_count
    print(f"{torch.cuda.get_device_name(0)}, {time.strftime('%Y-%m-%d')}\n")
    print("| kernel | queries x keys | elements | bit-equal | 1 unit | more | most | of bound, emulator - GPU |")
    print("|---|---|---|---|---|---|---|---|")
    for entry in json.loads((folder / "index.json").read_text()):
        with np.load(folder / entry["data"]) as kept:
            q, k, v, o, bound = (kept[n] for n in ("q", "k", "v", "o", "bound"))
        tensors = {n: torch.from_numpy(x.view(np.int16)).view(torch.bfloat16).cuda() for n, x in (("q", q), ("k", k), ("v", v))}
        tensors["o"] = torch.empty(o.shape, dtype=torch.bfloat16, device="cuda")
        tensors["lse"] = torch.empty((o.shape[0], o.shape[2], o.shape[1]), dtype=torch.float32, device="cuda")
        tensors["counter"] = torch.zeros(1, dtype=torch.int32, device="cuda")
        arguments = tensors | {"softmax_scale": entry["scale"], "sm_count": count}
        tvm_ffi.load_module(str(folder / f"{entry['label']}.so"))[entry["host"]](*(arguments[n] for n in entry["order"]))
        torch.cuda.synchronize()
        got = tensors["o"].view(torch.int16).cpu().numpy().view(np.uint16)
        apart = distance(got, o)
        gap = np.abs(_values(got) - _values(o)) / bound
        bad += bool(gap.max() > 2)
        print(
            f"| {entry['label']} | {q.shape[1]} x {k.shape[1]} | {apart.size} | {(apart == 0).mean():.4%} | {(apart == 1).mean():.4%} | "
            f"{(apart > 1).mean():.4%} | {apart.max()} | {gap.max():.2f} |", flush=True,
        )  # fmt: skip
    return bad


def _values(bits: Array) -> Array:
    found: Array = (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "compare"])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.what == "prepare":
        prepare(given.folder)
        return 0
    return compare(given.folder)


if __name__ == "__main__":
    sys.exit(main())
