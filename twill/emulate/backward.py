"""An emitted attention backward kernel, compiled, under the emulator: the kernels before and after its loop run with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from twill.emulate.bits import Beside, Modelled, backward
from twill.emulate.errors import EmulationError
from twill.emulate.findings import Finding, Findings
from twill.emulate.gradients import Gradients, Problem, gradients, problem
from twill.emulate.host.record import Launch, TensorArgument
from twill.emulate.kernel import DLPACK, AttentionKernel, Result, _place, _stopped, compare_bits
from twill.emulate.machine.code import Code
from twill.emulate.machine.memory import Allocation, GlobalMemory
from twill.emulate.machine.names import Names
from twill.emulate.machine.run import Coverage, run
from twill.emulate.machine.schedulers import SCHEDULERS
from twill.emulate.numbers import Shape, from_bits
from twill.emulate.ptx.inflight import in_flight

__all__ = ["BackwardKernel"]

UNWRITTEN = 0x7FC1
"""A NaN, where a kernel has not written yet."""
LARGEST_TILE = 256
"""Rows of Q in a tile are no more."""


class BackwardKernel(AttentionKernel):
    """A compiled backward kernel. ``code`` is that of the loop."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.beside = {k.name: Code(k, Names()) for k in self.module.kernels if k.name != self.code.kernel.name}

    def run(
        self,
        shape: Shape,
        scheduler: str = "eager",
        seed: int = 0,
        sm_count: int = 2,
        progress: Callable[[int, int], None] | None = None,
        findings: Findings | None = None,
    ) -> Result:
        """Run all kernels on random inputs and compare dQ, dK and dV with double precision."""
        if scheduler not in SCHEDULERS:
            raise EmulationError(f"no scheduler is called {scheduler!r}", f"use {', '.join(SCHEDULERS)} or all")
        findings, memory, given = findings or Findings(), GlobalMemory(), problem(shape, seed)
        for finding in in_flight(self.code.flow, self.code):
            findings.add(finding, finding.text)
        launches, results = self._launches(shape, given, sm_count, memory)
        coverage = Coverage()
        for launch in launches:
            code = self.beside.get(launch.kernel.name)
            if code is not None:
                run(launch, code, memory, Names(), scheduler, seed, findings)
            else:
                coverage = run(launch, self.code, memory, self.names, scheduler, seed, findings, progress)
            if _stopped(findings):
                break
        error, near = float("nan"), dict[str, Beside]()
        if not _stopped(findings):
            expected, models = _oracle(shape, seed)
            error = _compare(findings, shape, results, expected)
            near = {name: compare_bits(findings, shape, x, models[name]) for name, x in results.items()}
        return Result(scheduler, findings, coverage, error, {name: x.array(np.uint8).tobytes() for name, x in results.items()}, near)

    def _launches(self, shape: Shape, given: Problem, sm_count: int, memory: GlobalMemory) -> tuple[list[Launch], dict[str, Allocation]]:
        arguments: dict[str, object] = {"softmax_scale": float(given.forward.scale), "sm_count": sm_count}

        def tensor(name: str, data: object, dtype: str, dimensions: tuple[int, ...], output: bool = False) -> Allocation:
            made = memory.add(name, np.asarray(data), output=output)
            strides = [1]
            for n in dimensions[:0:-1]:
                strides.insert(0, strides[0] * n)
            arguments[name] = TensorArgument(made.base, dtype, dimensions, tuple(strides))
            return made

        kind, f = DLPACK[shape.dtype], given.forward
        rows, keys = (shape.batch, shape.seqlen_q, shape.heads), (shape.batch, shape.seqlen_k, shape.kv_heads)
        dims = {"q": (*rows, shape.head_dim), "k": (*keys, shape.head_dim), "v": (*keys, shape.head_dim_v), "o": (*rows, shape.head_dim_v)}
        for name, data in (("q", f.q), ("k", f.k), ("v", f.v), ("o", given.o)):
            tensor(name, data, kind, dims[name])
        tensor("do", given.do, kind, dims["o"])
        tensor("lse", given.lse, "f32", (shape.batch, shape.heads, shape.seqlen_q))
        tensor("counter", np.zeros(1, np.int32), "i32", (1,))
        floats = shape.batch * shape.heads * (shape.seqlen_q + LARGEST_TILE) * (-(-shape.head_dim // 16) * 16 + 3)
        tensor("workspace", np.full(floats, np.nan, np.float32), "f32", (floats,), output=True)
        results = {f"d{x}": tensor(f"d{x}", np.full(dims[x], UNWRITTEN, np.uint16), kind, dims[x], output=True) for x in "qkv"}
        order = [p for p in self.parameters if p not in ("causal", "deterministic", "stream")]
        if missing := [p for p in order if p not in arguments]:
            raise EmulationError(
                f"{self.source.name} takes {', '.join(missing)}, which the emulator cannot supply", "see twill/emulate/backward.py"
            )
        return self.recorder.launches(self.host, [arguments[p] for p in order]), results


@lru_cache(maxsize=4)
def _oracle(shape: Shape, seed: int) -> tuple[Gradients, dict[str, Modelled]]:
    """Gradients in double precision, and bit by bit."""
    given = problem(shape, seed)
    return gradients(given, shape), backward(given, shape)


def _compare(findings: Findings, shape: Shape, results: dict[str, Allocation], expected: Gradients) -> float:
    """Report gradients that were never written or are wrong; gives the largest error in units of what is allowed."""
    worst = 0.0
    for name, made in results.items():
        wanted = expected.values[name]
        missing = np.flatnonzero(~made.valid[: made.size : 2])
        if missing.size:
            text = f"{missing.size} of {wanted.size} elements of {name} are never written, first {_place(int(missing[0]), wanted.shape)}"
            findings.add(Finding("not written", text), name)
        got = from_bits(made.array(np.uint16), shape.dtype).reshape(wanted.shape)
        error = np.abs(got - wanted) / expected.bounds[name]
        error = np.where(np.isnan(error), np.inf, error)
        largest = float(error.max()) if error.size else 0.0
        worst = max(worst, largest)
        if largest > 1:
            place = _place(int(error.argmax()), error.shape)
            text = (
                f"{int((error > 1).sum())} of {error.size} elements of {name} are wrong; worst {place} (batch, row, head, dim): "
                f"{got[place]:.6g}, expected {wanted[place]:.6g}, {largest:.3g} times what rounding allows"
            )
            findings.add(Finding("wrong value", text), name)
    return worst
