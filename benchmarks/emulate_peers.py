"""flash-attn-4's kernels under the emulator: known-good code must give right values and no finding.

    python benchmarks/emulate_peers.py compile FOLDER     (needs flash-attn-4 and quack-kernels importable; no GPU)
    python benchmarks/emulate_peers.py run FOLDER         (prints the table of docs/emulator.md)
    python benchmarks/emulate_peers.py speed FOLDER       (seconds and memory for the lengths that docs/emulator.md names)

flash-attn-4 is no dependency of twill: install it elsewhere, without its dependencies, and put that folder on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
import types
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twill.emulate.findings import Finding, Findings
from twill.emulate.host.record import Recorder, TensorArgument, link
from twill.emulate.machine.code import Code
from twill.emulate.machine.memory import Allocation, GlobalMemory
from twill.emulate.machine.names import Names
from twill.emulate.machine.run import run
from twill.emulate.numbers import Shape, attention, from_bits, inputs, to_bits
from twill.emulate.ptx.inflight import in_flight
from twill.emulate.ptx.parser import parse

ARCHITECTURES = {"sm_90a": 132, "sm_100a": 148}
CASES = [(arch, way, dim, causal) for arch in ARCHITECTURES for way in ("fwd", "bwd") for dim in (64, 128) for causal in (False, True)]
SCHEDULERS = ("eager", "late", "newest", "random", "held")
AUXILIARY = "AuxData(tensors=None, scalars=None)"


def case_name(arch: str, way: str, dim: int, causal: bool) -> str:
    """The folder of a case, and what tables call it."""
    return f"{way}_{arch}_d{dim}{'_causal' if causal else ''}"


def compile_all(folder: Path, architectures: Collection[str]) -> None:
    """Each case in a child process: the compiler reads its target from the environment."""
    for arch, way, dim, causal in CASES:
        if arch not in architectures:
            continue
        out = folder / case_name(arch, way, dim, causal)
        out.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {
            "CUTE_DSL_ARCH": arch, "FLASH_ATTENTION_ARCH": arch.rstrip("a"), "CUTE_DSL_KEEP": "ptx,cubin", "CUTE_DSL_DUMP_DIR": str(out),
            "CUTE_DSL_NO_CACHE": "1", "CUTE_DSL_LINEINFO": "1", "FLASH_ATTENTION_NUM_SMS": str(ARCHITECTURES[arch]),
        }  # fmt: skip
        command = [sys.executable, __file__, "child", str(out), arch, way, str(dim), str(int(causal))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        print(out.name, "compiled" if done.returncode == 0 else done.stderr.strip()[-400:], flush=True)


def compile_one(out: Path, arch: str, way: str, dim: int, causal: bool) -> None:
    """Compile a case with tensors that have no data, and export every kernel that is compiled on the way."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    tuner: Any = types.ModuleType("quack.autotuner")
    tuner.autotune = lambda *_, **__: lambda f: f
    tuner.AutotuneConfig = tuner.Autotuner = types.SimpleNamespace
    sys.modules["quack.autotuner"] = tuner
    import cutlass
    import cutlass.cute as cute

    count = ARCHITECTURES[arch]

    class Hardware:
        def __init__(self, *_: object) -> None: ...
        def get_max_active_clusters(self, size: int) -> int:
            return count // size

        def get_device_multiprocessor_count(self) -> int:
            return count

    cutlass.utils.HardwareInfo = Hardware
    real = cute.compile
    made: list[str] = []

    class Keeping:
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            compiled = real(*arguments, **options)
            name = f"k{len(made)}"
            made.append(name)
            text = compiled.__ptx__
            (out / f"{name}.ptx").write_text(Path(text).read_text() if "\n" not in text else text)
            code = compiled.__cubin__
            (out / f"{name}.cubin").write_bytes(code if isinstance(code, bytes) else Path(code).read_bytes())
            compiled.export_to_c(str(out / f"{name}.o"), function_name=name)
            (out / f"{name}.json").write_text(json.dumps([str(a) for a in arguments[1:]]))
            return compiled

    cute.compile = Keeping()
    import flash_attn.cute.interface as interface

    with FakeTensorMode(allow_non_fake_inputs=True):
        q, k, v = (torch.empty(1, 1024, 2, dim, dtype=torch.bfloat16, device="cuda") for _ in range(3))
        if way == "fwd":
            interface._flash_attn_fwd(q, k, v, causal=causal, return_lse=True)
        else:
            lse = torch.empty(1, 2, 1024, dtype=torch.float32, device="cuda")
            interface._flash_attn_bwd(q, k, v, torch.empty_like(q), torch.empty_like(q), lse, dim**-0.5, causal)


def rows_of(arch: str, dim: int, causal: bool) -> int:
    """Rows of Q in a tile of the backward kernel, to which its accumulators are padded."""
    if (arch, dim) == ("sm_90a", 128):
        return 64 if causal else 80
    return 128


@dataclass
class Ready:
    """A compiled kernel: its code, its host function, and what it was compiled with."""

    code: Code
    recorder: Recorder
    given: list[str]

    @classmethod
    def load(cls, folder: Path, name: str) -> Ready:
        module = parse((folder / f"{name}.ptx").read_text())
        library = link([folder / f"{name}.o"], folder)
        return cls(Code(module.kernels[0], Names()), Recorder(library, [module]), json.loads((folder / f"{name}.json").read_text()))

    def arguments(self, first: list[Any], length: int) -> list[Any]:
        """The tensors and numbers of the call; what was None when compiled stays None, lengths are ``length``; the stream is left out."""
        rest: list[Any] = []
        for text in self.given[len(first) : -1]:
            if text == AUXILIARY:
                rest.append((None, None))
            else:
                rest.append(length if text.isdigit() else None)
        return first + rest


class _Run:
    """Tensors of one run, and the findings of its kernels."""

    def __init__(self, scheduler: str) -> None:
        self.memory, self.findings, self.scheduler, self.seconds = GlobalMemory(), Findings(), scheduler, 0.0
        self.processor_seconds = 0.0
        """Of one core, which is what an idle machine takes."""
        self.blocks = 1
        """In a cluster, at most."""

    def tensor(self, name: str, data: Any, *, output: bool = False) -> tuple[Allocation, TensorArgument]:
        made = self.memory.add(name, data, output=output)
        strides = [1]
        for n in data.shape[:0:-1]:
            strides.insert(0, strides[0] * n)
        kind = "bf16" if data.dtype == np.uint16 else "f32"
        return made, TensorArgument(made.base, kind, data.shape, tuple(strides))

    def launch(self, kernel: Ready, arguments: list[Any], function: str, length: int) -> None:
        for finding in in_flight(kernel.code.flow, kernel.code):
            self.findings.add(finding, finding.text)
        begin, processor = time.perf_counter(), time.process_time()
        for launch in kernel.recorder.launches(function, kernel.arguments(arguments, length)):
            self.blocks = max(self.blocks, math.prod(launch.cluster))
            run(launch, kernel.code, self.memory, Names(), self.scheduler, 5, self.findings)
        self.seconds += time.perf_counter() - begin
        self.processor_seconds += time.process_time() - processor


def _forward(folder: Path, shape: Shape, scheduler: str) -> tuple[_Run, float]:
    given = inputs(shape, 3)
    expected = attention(given, shape)
    this = _Run(scheduler)
    q, k, v = (this.tensor(n, t)[1] for n, t in (("q", given.q), ("k", given.k), ("v", given.v)))
    o, o_argument = this.tensor("o", np.zeros(expected.o.shape, np.uint16), output=True)
    _, lse = this.tensor("lse", np.zeros(expected.lse.shape, np.float32), output=True)
    this.launch(Ready.load(folder, "k0"), [q, k, v, o_argument, lse, given.scale], "k0", shape.seqlen_q)
    error = np.abs(from_bits(o.array(np.uint16), "bf16").reshape(expected.o.shape) - expected.o) / expected.bound
    if not o.valid[: o.size].all():
        this.findings.add(Finding("not written", "elements of o are never written"))
    return this, float(np.nan_to_num(error, nan=np.inf).max())


def _backward(folder: Path, shape: Shape, scheduler: str, rows: int) -> tuple[_Run, float]:
    """Largest error of dq, dk and dv in relation to the norm of each: P and dS are rounded to bf16, which gives about 0.003."""
    given = inputs(shape, 3)
    expected = attention(given, shape)
    random = np.random.default_rng(9)
    gradient = to_bits(np.asarray(random.standard_normal(expected.o.shape)), "bf16")
    q, k, v, do = (from_bits(x, "bf16").transpose(0, 2, 1, 3)[0] for x in (given.q, given.k, given.v, gradient))
    s = q @ k.transpose(0, 2, 1) * given.scale
    if shape.causal:
        row, key = np.arange(shape.seqlen_q)[:, None], np.arange(shape.seqlen_k)[None]
        s = np.where(key > row + shape.seqlen_k - shape.seqlen_q, -np.inf, s)
    p = np.exp(s - expected.lse[0][:, :, None])
    o = p @ v
    ds = p * (do @ v.transpose(0, 2, 1) - (do * o).sum(-1, keepdims=True))
    right = {"dq": ds @ k * given.scale, "dk": ds.transpose(0, 2, 1) @ q * given.scale, "dv": p.transpose(0, 2, 1) @ do}
    this = _Run(scheduler)
    tq, tk, tv, tdo = (this.tensor(n, t)[1] for n, t in (("q", given.q), ("k", given.k), ("v", given.v), ("do", gradient)))
    to = this.tensor("o", to_bits(o.transpose(1, 0, 2)[None], "bf16"))[1]
    lse = this.tensor("lse", expected.lse.astype(np.float32))[1]
    padded = -(-shape.seqlen_q // rows) * rows
    log2, sums, total = (
        this.tensor(n, np.zeros((1, shape.heads, size), np.float32), output=True)[1]
        for n, size in (("lse_log2", padded), ("dpsum", padded), ("dq_accumulator", padded * shape.head_dim))
    )
    outs = {n: this.tensor(n, np.zeros(t.shape, np.uint16), output=True) for n, t in (("dq", given.q), ("dk", given.k), ("dv", given.v))}
    scale = float(given.scale)
    this.launch(Ready.load(folder, "k0"), [to, tdo, sums, lse, log2, total, None, None, None, None, None, 1.0], "k0", 0)
    this.launch(Ready.load(folder, "k1"), [tq, tk, tv, tdo, log2, sums, total, outs["dk"][1], outs["dv"][1], scale], "k1", 0)
    this.launch(Ready.load(folder, "k2"), [total, outs["dq"][1], scale], "k2", 0)
    worst = 0.0
    for name, (made, _) in outs.items():
        reference = right[name].transpose(1, 0, 2)[None]
        got = from_bits(made.array(np.uint16), "bf16").reshape(reference.shape)
        worst = max(worst, float(np.linalg.norm(got - reference) / np.linalg.norm(reference)))
    return this, worst


def run_all(folder: Path, schedulers: tuple[str, ...]) -> int:
    """Print the table; gives the number of runs with wrong values or with errors other than those that docs/emulator.md explains."""
    bad = 0
    print("| kernel | blocks of a cluster | queries x keys | error | " + " | ".join(f"{s}, s" for s in schedulers) + " | findings |")
    print("|---" * (len(schedulers) + 5) + "|")
    for arch, way, dim, causal in CASES:
        case = folder / case_name(arch, way, dim, causal)
        lengths = (300, 700) if way == "fwd" and arch == "sm_90a" else (512, 512) if way == "fwd" else (256, 256)
        shape = Shape(1, *lengths, 1, 1, dim, dim, causal, "bf16")
        rows = rows_of(arch, dim, causal)
        times, kinds, worst = [], set[str](), 0.0
        for scheduler in schedulers:
            this, error = _forward(case, shape, scheduler) if way == "fwd" else _backward(case, shape, scheduler, rows)
            worst = max(worst, error)
            times.append(f"{this.seconds:.2f}")
            kinds |= {f"{f.severity}: {f.kind}" for f in this.findings.items}
        wrong = worst > (1 if way == "fwd" else 0.005)
        bad += wrong
        shown = f"{worst:.2f} of bound" if way == "fwd" else f"{worst:.4f} of norm"
        print(f"| {case.name} | {this.blocks} | {lengths[0]} x {lengths[1]} | {shown}{' WRONG' if wrong else ''} | {' | '.join(times)} | "
              f"{', '.join(sorted(kinds)) or 'none'} |", flush=True)  # fmt: skip
    return bad


SPEED = (("sm_100a", "fwd", 128, False, 256), ("sm_100a", "fwd", 128, True, 256), ("sm_90a", "fwd", 128, False, 256),
         ("sm_100a", "bwd", 128, False, 1024), ("sm_90a", "bwd", 128, False, 1024))  # fmt: skip


def speed(folder: Path) -> None:
    """Print seconds of reading and compiling the PTX, of running under ``eager`` with race detection, and the largest memory so far."""
    print("| kernel | queries x keys | reading the PTX, s | running, s | wrong | memory of the process, MB |")
    print("|---" * 6 + "|")
    for arch, way, dim, causal, length in SPEED:
        name = case_name(arch, way, dim, causal)
        begin = time.process_time()
        for i in range(1 if way == "fwd" else 3):
            Ready.load(folder / name, f"k{i}")
        reading = time.process_time() - begin
        shape = Shape(1, length, length, 1, 1, dim, dim, causal, "bf16")
        rows, place = rows_of(arch, dim, causal), folder / name
        this, error = _forward(place, shape, "eager") if way == "fwd" else _backward(place, shape, "eager", rows)
        wrong = error > (1 if way == "fwd" else 0.005)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        print(
            f"| {name} | {length} x {length} | {reading:.1f} | {this.processor_seconds:.2f} | {'yes' if wrong else 'no'} | {memory:.0f} |",
            flush=True,
        )


def main() -> int:
    """The command."""
    if sys.argv[1:2] == ["child"]:
        out, arch, way, dim, causal = sys.argv[2:]
        compile_one(Path(out), arch, way, int(dim), causal == "1")
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["compile", "run", "speed"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--schedulers", default=",".join(SCHEDULERS))
    parser.add_argument("--arch", default=",".join(ARCHITECTURES), help="what is compiled")
    given = parser.parse_args()
    if given.what == "compile":
        compile_all(given.folder, given.arch.split(","))
        return 0
    if given.what == "speed":
        speed(given.folder)
        return 0
    return run_all(given.folder, tuple(given.schedulers.split(",")))


if __name__ == "__main__":
    sys.exit(main())
