"""A GPU out of the emulator: the compiled kernel's host code and PTX, run on the CPU on tensors that lie there."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any, Literal

from twill.emulate.backward import BackwardKernel
from twill.emulate.findings import Findings
from twill.emulate.host.record import Launch, TensorArgument
from twill.emulate.kernel import AttentionKernel
from twill.emulate.machine.memory import Allocation, GlobalMemory
from twill.emulate.machine.names import Names
from twill.emulate.machine.run import run

__all__ = ["MISSING", "Emulated", "EmulatedBackward"]

NEEDED = ("torch", "cutlass", "tvm_ffi", "filelock")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None] + (["a C compiler"] if shutil.which("cc") is None else [])
KINDS = {"torch.bfloat16": "bf16", "torch.float16": "f16", "torch.float32": "f32", "torch.int32": "i32"}


class Emulated:
    """A kernel with the signature of its host function. Every call runs the scheduler that comes next in turn and fails on findings."""

    schedulers = ("eager", "late", "random")

    def __init__(self, path: Path, dtype: Literal["bf16", "fp16"], causal: bool, lse: bool, cache: Path) -> None:
        from twill.build.compiler import compiled
        from twill.build.kernelfile import Variant, read

        made = compiled(read(path), Variant(dtype, causal, lse), "sm_90a", cache=cache)
        ptx = made.ptx.read_text(encoding="utf-8")
        self.kernel = AttentionKernel(path, ptx, made.folder / "kernel.o", made.kernel.host, made.kernel.parameters)
        self.calls = 0

    def launch(self, **given: Any) -> Launch:
        """What the host code launches for these arguments; tensors as `TensorArgument`."""
        order = [given[name] for name in self.kernel.parameters if name not in ("causal", "stream")]
        (found,) = self.kernel.recorder.launches(self.kernel.host, order)
        return found

    def __call__(self, q: Any, k: Any, v: Any, o: Any, lse: Any, counter: Any, softmax_scale: float, sm_count: int) -> None:
        memory, findings = GlobalMemory(), Findings()
        tensors = {"q": q, "k": k, "v": v, "o": o, "lse": lse, "counter": counter}
        places = {name: _place(memory, name, x, name in ("o", "lse")) for name, x in tensors.items() if x is not None}
        arguments = {name: places[name][1] if name in places else None for name in tensors}
        launch = self.launch(**arguments, softmax_scale=softmax_scale, sm_count=sm_count)
        scheduler = self.schedulers[self.calls % len(self.schedulers)]
        self.calls += 1
        run(launch, self.kernel.code, memory, self.kernel.names, scheduler, self.calls, findings, None)
        assert not findings.errors, "\n".join(str(f) for f in findings.errors)
        for name in ("o", "lse", "counter"):
            if name in places:
                _copy_back(places[name][0], tensors[name])


class EmulatedBackward:
    """A kernel of gradients with the signature of its host function, the kernels before and after its loop included."""

    schedulers = Emulated.schedulers

    def __init__(self, path: Path, dtype: Literal["bf16", "fp16"], causal: bool, deterministic: bool, cache: Path) -> None:
        from twill.build.compiler import compiled
        from twill.build.kernelfile import Variant, read

        made = compiled(read(path), Variant(dtype, causal, False, deterministic), "sm_90a", cache=cache)
        ptx = made.ptx.read_text(encoding="utf-8")
        self.ptx = ptx
        self.kernel = BackwardKernel(path, ptx, made.folder / "kernel.o", made.kernel.host, made.kernel.parameters)
        self.calls = 0

    def __call__(
        self, q: Any, k: Any, v: Any, o: Any, do: Any, lse: Any, dq: Any, dk: Any, dv: Any, workspace: Any, counter: Any,
        softmax_scale: float, sm_count: int,
    ) -> None:  # fmt: skip
        memory, findings, kernel = GlobalMemory(), Findings(), self.kernel
        tensors = {
            "q": q, "k": k, "v": v, "o": o, "do": do, "lse": lse, "dq": dq, "dk": dk, "dv": dv, "workspace": workspace, "counter": counter,
        }  # fmt: skip
        places = {name: _place(memory, name, x, name in ("dq", "dk", "dv", "workspace")) for name, x in tensors.items()}
        arguments: dict[str, Any] = {name: place[1] for name, place in places.items()}
        arguments |= {"softmax_scale": softmax_scale, "sm_count": sm_count}
        order = [arguments[name] for name in kernel.parameters if name not in ("causal", "deterministic", "stream")]
        scheduler = self.schedulers[self.calls % len(self.schedulers)]
        self.calls += 1
        for launch in kernel.recorder.launches(kernel.host, order):
            code = kernel.beside.get(launch.kernel.name)
            run(launch, code or kernel.code, memory, Names() if code else kernel.names, scheduler, self.calls, findings, None)
            assert not findings.errors, "\n".join(str(f) for f in findings.errors)
        for name in ("dq", "dk", "dv", "counter"):
            _copy_back(places[name][0], tensors[name])


def _extent(x: Any) -> Any:
    """All elements from the first to the last that strides reach, in a row."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return x.as_strided((reach,), (1,))


def _bits(x: Any) -> Any:
    import torch

    return x.view({2: torch.int16, 4: torch.int32}[x.element_size()]).numpy()


def _place(memory: GlobalMemory, name: str, x: Any, output: bool) -> tuple[Allocation, TensorArgument]:
    made = memory.add(name, _bits(_extent(x)), output=output)
    return made, TensorArgument(made.base, KINDS[str(x.dtype)], tuple(x.shape), tuple(x.stride()))


def _copy_back(made: Allocation, x: Any) -> None:
    bits = _bits(_extent(x))
    assert made.valid[: made.size].all(), f"{made.name} is not all written"
    bits[:] = made.array(bits.dtype)[: bits.size]
