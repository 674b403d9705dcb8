"""An emitted attention kernel, compiled, under the emulator: inputs in, findings and coverage out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from twill.build.kernelfile import read
from twill.emulate.bits import Algorithm, Beside, Modelled, beside, forward
from twill.emulate.bits import of_kernel as algorithm_of
from twill.emulate.errors import EmulationError
from twill.emulate.findings import Finding, Findings
from twill.emulate.host.record import Launch, Recorder, TensorArgument, link
from twill.emulate.machine.code import Code
from twill.emulate.machine.memory import Allocation, GlobalMemory
from twill.emulate.machine.names import of_kernel
from twill.emulate.machine.run import Coverage, run
from twill.emulate.machine.schedulers import SCHEDULERS
from twill.emulate.numbers import Expected, Shape, attention, from_bits, inputs
from twill.emulate.ptx.inflight import in_flight
from twill.emulate.ptx.parser import parse
from twill.emulate.ptx.syntax import Kernel, Module

__all__ = ["AttentionKernel", "Result", "compare_bits", "head_dims"]

DLPACK = {"bf16": "bf16", "fp16": "f16"}
LSE_TOLERANCE = 2e-4


@dataclass(frozen=True, slots=True)
class Result:
    """One run under one scheduler."""

    scheduler: str
    findings: Findings
    coverage: Coverage
    largest_error: float
    """Of the output, in units of what is allowed."""
    outputs: dict[str, bytes]
    """What is left in memory, by name."""
    beside: dict[str, Beside]
    """Each output of the type beside the bit-level model; empty if the run stopped before its end."""


def head_dims(kernel: Path) -> tuple[int, int]:
    """Head dimensions of an emitted kernel, from its constant TILES."""
    sizes = read(kernel).sizes
    if not {"head_dim", "head_dim_v"} <= sizes.keys():
        raise EmulationError(f"{kernel} has no TILES: it is no emitted attention kernel", "write one with `twill emit SCHEDULE -o FILE.py`")
    return sizes["head_dim"], sizes["head_dim_v"]


class AttentionKernel:
    """A compiled forward kernel: its PTX, its host code, the names that its file gives to warps and barriers.

    ``parameters`` are those of the host function, as in the file.
    """

    def __init__(self, source: Path, ptx: str, objects: Path, host: str, parameters: Sequence[str]) -> None:
        self.source, self.host, self.parameters = source, host, tuple(parameters)
        self.module: Module = parse(ptx)
        self.names = of_kernel(source)
        self.algorithm = algorithm_of(source)
        self.code = Code(self._own(read(source).prefix), self.names)
        with tempfile.TemporaryDirectory(prefix="twill-emulate-") as folder:
            # once loaded, the file is no longer needed
            self.recorder = Recorder(link([objects], Path(folder)), [self.module])

    def _own(self, prefix: str) -> Kernel:
        """The kernel of the file, of those that are launched with it."""
        return next((k for k in self.module.kernels if k.name.startswith(prefix)), self.module.kernels[0])

    def changed(self, kernel: Kernel) -> AttentionKernel:
        """The same launch with other code: a mutant."""
        other = copy(self)
        other.code = Code(kernel, self.names)
        return other

    def run(
        self,
        shape: Shape,
        scheduler: str = "eager",
        seed: int = 0,
        sm_count: int = 2,
        progress: Callable[[int, int], None] | None = None,
        findings: Findings | None = None,
    ) -> Result:
        """Run the kernel on random inputs and compare with double precision.

        ``sm_count`` is what a persistent kernel is told: few, so that its blocks take several tiles each. ``findings`` are taken where
        the caller wants to have them even if the run does not come to its end.
        """
        if scheduler not in SCHEDULERS:
            raise EmulationError(f"no scheduler is called {scheduler!r}", f"use {', '.join(SCHEDULERS)} or all")
        findings, memory = findings or Findings(), GlobalMemory()
        for finding in in_flight(self.code.flow, self.code):
            findings.add(finding, finding.text)
        given, oracle = inputs(shape, seed), _oracle(shape, seed, self.algorithm)
        launch, o, lse = self._launch(shape, given.q, given.k, given.v, given.scale, sm_count, memory)
        coverage = run(launch, self.code, memory, self.names, scheduler, seed, findings, progress)
        error, near = float("nan"), dict[str, Beside]()
        if not _stopped(findings):
            error = _compare(findings, shape, o, lse, oracle)
            near = {"o": compare_bits(findings, shape, o, oracle.o)}
        return Result(scheduler, findings, coverage, error, {x.name: x.array(np.uint8).tobytes() for x in (o, lse)}, near)

    def _launch(
        self, shape: Shape, q: object, k: object, v: object, scale: float, sm_count: int, memory: GlobalMemory
    ) -> tuple[Launch, Allocation, Allocation]:
        def argument(name: str, data: object, output: bool, dtype: str, dimensions: tuple[int, ...]) -> tuple[Allocation, TensorArgument]:
            made = memory.add(name, np.asarray(data), output=output)
            strides = [1]
            for n in dimensions[:0:-1]:
                strides.insert(0, strides[0] * n)
            return made, TensorArgument(made.base, dtype, dimensions, tuple(strides))

        kind = DLPACK[shape.dtype]
        wide = (shape.batch, shape.seqlen_q, shape.heads, shape.head_dim_v)
        rows = (shape.batch, shape.heads, shape.seqlen_q)
        arguments: dict[str, object] = {"softmax_scale": float(scale), "sm_count": sm_count}
        for name, data, seqlen, heads, dim in (
            ("q", q, shape.seqlen_q, shape.heads, shape.head_dim), ("k", k, shape.seqlen_k, shape.kv_heads, shape.head_dim),
            ("v", v, shape.seqlen_k, shape.kv_heads, shape.head_dim_v),
        ):  # fmt: skip
            arguments[name] = argument(name, data, False, kind, (shape.batch, seqlen, heads, dim))[1]
        o, arguments["o"] = argument("o", np.full(wide, 0x7FC1, np.uint16), True, kind, wide)
        lse, arguments["lse"] = argument("lse", np.full(rows, np.nan, np.float32), True, "f32", rows)
        arguments["counter"] = argument("counter", np.zeros(1, np.int32), False, "i32", (1,))[1]
        order = [p for p in self.parameters if p not in ("causal", "stream")]
        missing = [p for p in order if p not in arguments]
        if missing:
            raise EmulationError(
                f"{self.source.name} takes {', '.join(missing)}, which the emulator cannot supply", "see twill/emulate/kernel.py"
            )
        launches = self.recorder.launches(self.host, [arguments[p] for p in order])
        if len(launches) != 1:
            raise EmulationError(f"{self.source.name} launches {len(launches)} kernels, one was expected", "see twill/emulate/kernel.py")
        return launches[0], o, lse


@dataclass(frozen=True, slots=True)
class _Oracle:
    """What a forward kernel has to compute: in double precision, and bit by bit."""

    expected: Expected
    o: Modelled
    lse: Modelled


@lru_cache(maxsize=4)
def _oracle(shape: Shape, seed: int, how: Algorithm) -> _Oracle:
    given = inputs(shape, seed)
    return _Oracle(attention(given, shape), *forward(given, shape, how))


def compare_bits(findings: Findings, shape: Shape, made: Allocation, model: Modelled) -> Beside:
    """Report elements that are no number which the model's interval rounds to; gives how near the output is."""
    got = made.array(np.uint16).reshape(model.value.shape)
    found = beside(got, model, shape.dtype)
    if found.outside.any():
        place = _place(int(np.flatnonzero(found.outside)[0]), model.value.shape)
        values = f"{from_bits(got[place], shape.dtype):.6g}, the algorithm gives {model.value[place]:.6g} to {model.off[place]:.1g}"
        text = (
            f"{int(found.outside.sum())} of {found.size} elements of {made.name} are not what the algorithm gives bit by bit, "
            f"first {place} (batch, row, head, dim): {values}"
        )
        findings.add(Finding("wrong value", text), f"{made.name}, bits")
    return found


def _stopped(findings: Findings) -> bool:
    return any(f.kind in ("deadlock", "limit") for f in findings.items)


def _place(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(index, shape))


def _compare(findings: Findings, shape: Shape, o: Allocation, lse: Allocation, oracle: _Oracle) -> float:
    """Report outputs that were never written or are wrong; gives the largest error in units of what is allowed."""
    expected = oracle.expected
    for made, size in ((o, 2), (lse, 4)):
        missing = np.flatnonzero(~made.valid[: made.size : size])
        if missing.size:
            first = _place(int(missing[0]), expected.o.shape if made is o else expected.lse.shape)
            text = f"{missing.size} of {made.size // size} elements of {made.name} are never written, first {first}"
            findings.add(Finding("not written", text), made.name)
    got = from_bits(o.array(np.uint16), shape.dtype).reshape(expected.o.shape)
    error = np.abs(got - expected.o) / expected.bound
    error = np.where(np.isnan(error), np.inf, error)
    worst = float(error.max()) if error.size else 0.0
    if worst > 1:
        place = _place(int(error.argmax()), error.shape)
        count = int((error > 1).sum())
        text = (
            f"{count} of {error.size} elements of o are wrong; worst {place} (batch, row, head, dim): {got[place]:.6g}, "
            f"expected {expected.o[place]:.6g}, {worst:.3g} times what rounding allows"
        )
        findings.add(Finding("wrong value", text), "o")
    found = lse.array(np.float32).reshape(expected.lse.shape).astype(np.float64)
    same = found == expected.lse
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0.0, np.abs(found - expected.lse))
    bad = ~(off <= LSE_TOLERANCE * np.maximum(1, np.abs(np.where(np.isfinite(expected.lse), expected.lse, 0))))
    with np.errstate(invalid="ignore"):
        bad |= ~((found == oracle.lse.value) | (np.abs(found - oracle.lse.value) <= oracle.lse.off))
    if bad.any():
        place = _place(int(bad.argmax()), bad.shape)
        values = f"{found[place]:.6g}, expected {expected.lse[place]:.6g}"
        text = f"{int(bad.sum())} of {bad.size} elements of lse are wrong, first {place}: {values}"
        findings.add(Finding("wrong value", text), "lse")
    return worst
