"""CUTLASS's examples of CuTe DSL under the emulator: other people's kernels must give right values and no error.

    python -m benchmarks.emulate_cutlass compile CHECKOUT FOLDER [CASE ...]   (no GPU; CHECKOUT is one of NVIDIA/cutlass, version 4.8)
    python -m benchmarks.emulate_cutlass run FOLDER [CASE ...]                (prints the table of docs/emulator.md)

Dense GEMM of fp16 into fp16 for both architectures: alone, in clusters with TMA multicast, by pairs of blocks, persistent; and attention
forward. Nothing of CUTLASS is a part of twill: its files are read where they lie.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twill.emulate.errors import EmulationError
from twill.emulate.findings import Finding, Findings
from twill.emulate.host.record import Recorder, TensorArgument, link
from twill.emulate.machine.code import Code
from twill.emulate.machine.memory import Allocation, GlobalMemory
from twill.emulate.machine.names import Names
from twill.emulate.machine.run import run
from twill.emulate.numbers import Shape, attention, from_bits, inputs
from twill.emulate.ptx.inflight import in_flight
from twill.emulate.ptx.parser import parse

EXAMPLES = Path("examples/python/CuTeDSL")
MULTIPROCESSORS = {"sm_90a": 132, "sm_100a": 148}
SCHEDULERS = ("eager", "late", "random")
HOPPER, BLACKWELL = "cute/hopper/kernel", "cute/blackwell/kernel"
GEMM, PERSISTENT = "dense_gemm/dense_gemm.py", "dense_gemm/dense_gemm_persistent.py"
HEAD_DIM = 128


@dataclass(frozen=True, slots=True)
class Case:
    """An example: its file, how its class is made (with F standing for fp32), and what the call gets beside tensors and stream."""

    name: str
    file: str
    made: str
    rest: tuple[int, ...] = ()
    sizes: tuple[int, int, int] = (520, 400, 336)
    """Rows, columns and depth; of attention lengths of Q and K, and 1 if it is causal."""

    @property
    def arch(self) -> str:
        return "sm_90a" if self.file.startswith(HOPPER) else "sm_100a"

    @property
    def attends(self) -> bool:
        return "attention" in self.file


CASES = (
    Case("gemm_sm_90a", f"{HOPPER}/{GEMM}", "HopperWgmmaGemmKernel(F, (128, 256), (1, 1))"),
    Case("gemm_sm_90a_2x1", f"{HOPPER}/{GEMM}", "HopperWgmmaGemmKernel(F, (128, 128), (2, 1))"),
    Case("gemm_sm_90a_2x2", f"{HOPPER}/{GEMM}", "HopperWgmmaGemmKernel(F, (128, 128), (2, 2))"),
    Case("gemm_sm_90a_persistent", f"{HOPPER}/{PERSISTENT}", "HopperWgmmaGemmPersistentKernel(F, (128, 128), (1, 1), 1, True)", (2,)),
    Case("gemm_sm_100a", f"{BLACKWELL}/{GEMM}", "DenseGemmKernel(F, False, (128, 128), (1, 1), True)"),
    Case("gemm_sm_100a_m64", f"{BLACKWELL}/{GEMM}", "DenseGemmKernel(F, False, (64, 128), (1, 1), True)"),
    Case("gemm_sm_100a_pair", f"{BLACKWELL}/{GEMM}", "DenseGemmKernel(F, True, (256, 128), (2, 1), True)"),
    Case("gemm_sm_100a_pair_m128", f"{BLACKWELL}/{GEMM}", "DenseGemmKernel(F, True, (128, 128), (2, 1), False)", sizes=(512, 384, 336)),
    Case("gemm_sm_100a_persistent", f"{BLACKWELL}/{PERSISTENT}", "PersistentDenseGemmKernel(F, False, (128, 128), (1, 1), True)", (2,)),
    Case("gemm_sm_100a_persistent_pair", f"{BLACKWELL}/{PERSISTENT}", "PersistentDenseGemmKernel(F, True, (256, 128), (2, 1), True)", (1,)),
    Case("attention_sm_90a", f"{HOPPER}/attention/fmha.py",
         f"HopperFusedMultiHeadAttentionForward(F, F, (64, 128, {HEAD_DIM}), False, Mask.RESIDUAL_MASK)", sizes=(300, 700, 0)),
    Case("attention_sm_90a_causal", f"{HOPPER}/attention/fmha.py",
         f"HopperFusedMultiHeadAttentionForward(F, F, (64, 128, {HEAD_DIM}), False, Mask.WINDOW_MASK)", sizes=(384, 384, 1)),
    Case("attention_sm_90a_persistent", f"{HOPPER}/attention/fmha.py",
         f"HopperFusedMultiHeadAttentionForward(F, F, (64, 128, {HEAD_DIM}), True, Mask.RESIDUAL_MASK)", sizes=(300, 700, 0)),
    Case("attention_sm_100a", f"{BLACKWELL}/attention/fmha/fmha.py",
         f"BlackwellFusedMultiHeadAttentionForward(F, F, (128, 128), {HEAD_DIM}, False, Mask.RESIDUAL_MASK, False, True)",
         sizes=(300, 700, 0)),
    Case("attention_sm_100a_causal", f"{BLACKWELL}/attention/fmha/fmha.py",
         f"BlackwellFusedMultiHeadAttentionForward(F, F, (128, 128), {HEAD_DIM}, False, Mask.WINDOW_MASK, True, False)",
         sizes=(512, 512, 1)),
)  # fmt: skip


def compile_one(case: Case, checkout: Path, out: Path) -> None:
    """Compile a case in this process, whose environment says for what; leaves k.ptx and k.o."""
    import cutlass
    import cutlass.cute as cute
    from cutlass.cute.runtime import make_fake_stream

    count = MULTIPROCESSORS[case.arch]

    class Hardware:
        def __init__(self, *_: object) -> None: ...
        def get_max_active_clusters(self, size: int) -> int:
            return count // size

        def get_device_multiprocessor_count(self) -> int:
            return count

    cutlass.utils.HardwareInfo = cutlass.utils.hardware_info.HardwareInfo = Hardware
    sys.path.insert(0, str(checkout / EXAMPLES))
    spec = importlib.util.spec_from_file_location("example", checkout / EXAMPLES / case.file)
    if spec is None or spec.loader is None or not Path(str(spec.origin)).is_file():
        raise SystemExit(f"{checkout} has no {EXAMPLES / case.file}: check out NVIDIA/cutlass of the version of the compiler")
    example = importlib.util.module_from_spec(spec)
    sys.modules["example"] = example
    spec.loader.exec_module(example)
    scope = vars(example) | {"F": cutlass.Float32}
    if case.attends:
        scope["Mask"] = example.fmha_utils.MaskEnum
    made = eval(case.made, scope)
    given = _attention_arguments(case) if case.attends else _gemm_arguments()
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    last = (False,) if case.attends and case.arch == "sm_100a" else ()
    compiled = cute.compile(made, *given, *case.rest, stream, *last, options="--enable-tvm-ffi")
    text = compiled.__ptx__
    (out / "k.ptx").write_text(text if "\n" in text else Path(text).read_text(encoding="utf-8"), encoding="utf-8")
    compiled.export_to_c(str(out / "k.o"), function_name="k")


def _gemm_arguments() -> tuple[Any, ...]:
    import cutlass
    import cutlass.cute as cute
    from cutlass.cute.runtime import make_fake_tensor

    m, n, k, batch = (cute.sym_int32() for _ in range(4))

    def tensor(rows: Any, columns: Any) -> Any:
        strides = (cute.sym_int64(divisibility=8), 1, cute.sym_int64(divisibility=8))
        return make_fake_tensor(cutlass.Float16, (rows, columns, batch), strides, assumed_align=16)

    return tensor(m, k), tensor(n, k), tensor(m, n)


def _attention_arguments(case: Case) -> tuple[Any, ...]:
    """One head of one batch; modes as the example has them, head dimension static."""
    import cutlass
    import cutlass.cute as cute
    from cutlass import Float32, Int32
    from cutlass.cute.runtime import make_fake_tensor

    lengths = [cute.sym_int32() for _ in range(2)]

    def tensor(length: Any, dtype: Any = cutlass.Float16, dim: int = HEAD_DIM) -> Any:
        wide = [cute.sym_int64(divisibility=8 if dim > 1 else 1) for _ in range(4)]
        if case.arch == "sm_90a":
            return make_fake_tensor(dtype, (length, dim, 1, 1, 1), (wide[0], 1, *wide[1:]), assumed_align=16 if dim > 1 else 4)
        return make_fake_tensor(dtype, (1, length, 1, 1, dim), (*wide, 1), assumed_align=16)

    q, k, v, o = (tensor(lengths[i]) for i in (0, 1, 1, 0))
    window = Int32(0) if case.sizes[2] else None
    scales = (Float32(1.0),) * 3
    if case.arch == "sm_90a":
        return q, k, v, o, tensor(lengths[0], cutlass.Float32, 1), *scales, None, window
    sizes = tuple(Int32(1) for _ in range(8))
    return q, k, v, o, sizes, None, None, None, None, *scales, None, None, window, None, None


class _Run:
    def __init__(self, folder: Path, scheduler: str) -> None:
        module = parse((folder / "k.ptx").read_text(encoding="utf-8"))
        self.code = Code(module.kernels[0], Names())
        self.host = Recorder(link([folder / "k.o"], folder), [module])
        self.memory, self.findings, self.scheduler, self.seconds = GlobalMemory(), Findings(), scheduler, 0.0
        for finding in in_flight(self.code.flow, self.code):
            self.findings.add(finding, finding.text)

    def tensor(self, name: str, data: Any, shape: tuple[int, ...], strides: tuple[int, ...], *, output: bool = False) -> Any:
        made = self.memory.add(name, data, output=output)
        return made, TensorArgument(made.base, "f32" if data.dtype == np.float32 else "f16", shape, strides)

    def launch(self, arguments: list[Any]) -> None:
        begin = time.perf_counter()
        for launch in self.host.launches("k", arguments):
            run(launch, self.code, self.memory, Names(), self.scheduler, 3, self.findings)
        self.seconds = time.perf_counter() - begin

    def unwritten(self, made: Allocation) -> None:
        if not made.valid[: made.size].all():
            self.findings.add(Finding("not written", f"elements of {made.name} are never written"))


def _gemm(case: Case, folder: Path, scheduler: str) -> tuple[_Run, float]:
    """The largest error over that of rounding the exact product."""
    m, n, k = case.sizes
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((rows, k)).astype(np.float16) for rows in (m, n))
    right = a.astype(np.float64) @ b.astype(np.float64).T
    this = _Run(folder, scheduler)
    given = [this.tensor(x, t, (*t.shape, 1), (k, 1, t.size))[1] for x, t in (("a", a), ("b", b))]
    c, argument = this.tensor("c", np.zeros((m, n), np.float16), (m, n, 1), (n, 1, m * n), output=True)
    this.launch([*given, argument])
    this.unwritten(c)
    got = c.array(np.float16).reshape(m, n).astype(np.float64)
    bound = 2.0**-11 * np.abs(right) + 2.0**-21 * (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)).T)
    return this, float(np.nan_to_num(np.abs(got - right) / bound, nan=np.inf).max())


def _attention(case: Case, folder: Path, scheduler: str) -> tuple[_Run, float]:
    length_q, length_k, causal = case.sizes
    shape = Shape(1, length_q, length_k, 1, 1, HEAD_DIM, HEAD_DIM, bool(causal), "fp16")
    given = inputs(shape, 3)
    right = attention(given, shape)
    this = _Run(folder, scheduler)

    def tensor(name: str, data: Any, length: int, *, output: bool = False) -> Any:
        size = length * HEAD_DIM
        if case.arch == "sm_90a":
            return this.tensor(name, data, (length, HEAD_DIM, 1, 1, 1), (HEAD_DIM, 1, HEAD_DIM, HEAD_DIM, size), output=output)
        return this.tensor(name, data, (1, length, 1, 1, HEAD_DIM), (size, HEAD_DIM, HEAD_DIM, HEAD_DIM, 1), output=output)

    q, k, v = (tensor(n, t, x)[1] for n, t, x in (("q", given.q, length_q), ("k", given.k, length_k), ("v", given.v, length_k)))
    o, argument = tensor("o", np.zeros(right.o.shape, np.uint16), length_q, output=True)
    scales = [given.scale * math.log2(math.e), given.scale, 1.0]
    window = 0 if causal else None
    if case.arch == "sm_90a":
        lse = this.tensor("lse", np.zeros(length_q, np.float32), (length_q, 1, 1, 1, 1), (1, 1, 1, 1, length_q), output=True)[1]
        this.launch([q, k, v, argument, lse, *scales, None, window])
    else:
        sizes = (1, length_q, length_q, length_k, 1, 1, HEAD_DIM, HEAD_DIM)
        this.launch([q, k, v, argument, sizes, None, None, None, None, *scales, None, None, window, None, None, False])
    this.unwritten(o)
    got = from_bits(o.array(np.uint16), "fp16").reshape(right.o.shape)
    return this, float(np.nan_to_num(np.abs(got - right.o) / right.bound, nan=np.inf).max())


def rows(folder: Path, cases: list[Case]) -> Iterator[str]:
    """The table. A run that leaves elements unwritten is among the findings, not in the error."""
    yield "| example | sizes | error, of bound | " + " | ".join(f"{s}, s" for s in SCHEDULERS) + " | findings |"
    yield "|---" * (len(SCHEDULERS) + 4) + "|"
    for case in cases:
        size = " x ".join(str(n) for n in (case.sizes[:2] if case.attends else case.sizes))
        times, worst, kinds = [], 0.0, set[str]()
        try:
            for scheduler in SCHEDULERS:
                this, error = (_attention if case.attends else _gemm)(case, folder / case.name, scheduler)
                times.append(f"{this.seconds:.2f}")
                if not any(f.kind == "not written" for f in this.findings.items):
                    worst = max(worst, error)
                kinds |= {f"{f.severity}: {f.kind}" for f in this.findings.items}
        except (EmulationError, FileNotFoundError) as error:
            yield f"| {case.name} | {size} | not run: {str(error).splitlines()[0][:200]} |" + " |" * (len(SCHEDULERS) + 1)
            continue
        yield f"| {case.name} | {size} | {worst:.2f} | {' | '.join(times)} | {', '.join(sorted(kinds)) or 'none'} |"


def compile_all(checkout: Path, folder: Path, cases: list[Case]) -> None:
    """Each case in a child process: the compiler reads its target from the environment."""
    for case in cases:
        out = folder / case.name
        out.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {
            "CUTE_DSL_ARCH": case.arch, "CUTE_DSL_KEEP": "ptx,cubin", "CUTE_DSL_DUMP_DIR": str(out), "CUTE_DSL_NO_CACHE": "1",
            "CUTE_DSL_LINEINFO": "1",
        }  # fmt: skip
        command = [sys.executable, "-m", "benchmarks.emulate_cutlass", "child", str(checkout.resolve()), str(out.resolve()), case.name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        print(case.name, "compiled" if done.returncode == 0 else done.stderr.strip()[-1500:], flush=True)


def main() -> int:
    """The command."""
    if sys.argv[1:2] == ["child"]:
        checkout, out, name = sys.argv[2:]
        compile_one(next(c for c in CASES if c.name == name), Path(checkout), Path(out))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    compiling, running = what.add_parser("compile"), what.add_parser("run")
    compiling.add_argument("checkout", type=Path)
    for one in (compiling, running):
        one.add_argument("folder", type=Path)
        one.add_argument("cases", nargs="*", help=f"some of {', '.join(c.name for c in CASES)}; all if none is named")
    given = parser.parse_args()
    cases = [c for c in CASES if not given.cases or c.name in given.cases]
    if given.what == "compile":
        compile_all(given.checkout, given.folder, cases)
        return 0
    text = list(rows(given.folder, cases))
    print("\n".join(text))
    return sum("not run" in x for x in text)


if __name__ == "__main__":
    sys.exit(main())
