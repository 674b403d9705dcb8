"""``python -m benchmarks.silicon.child``: runs cases on the GPU, in the process that `benchmarks.silicon.compare` watches over."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.silicon.cases import Array, Case, launches, load_cases, recorder, unpack
from benchmarks.silicon.driver import Device, Function
from twill.bench.watchdog import serve
from twill.emulate.host.record import Recorder
from twill.emulate.numbers import Expected, Inputs, Shape, attention, from_bits

__all__ = ["LSE_TOLERANCE", "Hang", "answer", "compared", "outcome", "units_apart"]

CROWD = (8, 6)
"""Batch and heads of a crowded run: with a few tiles of queries each, more work than multiprocessors."""
LSE_TOLERANCE = 2e-4
WORST_FIRST = ("fault", "wrong", "differs", "same")


class Hang(Exception):
    """A kernel that does not end."""


def units_apart(a: Array, b: Array) -> Array:
    """Units in the last place between bit patterns, 16 or 32 wide, of one sign-and-magnitude format."""
    magnitude = (1 << (8 * a.dtype.itemsize - 1)) - 1

    def ordered(bits: Array) -> Array:
        wide = bits.astype(np.int64)
        found: Array = np.where(wide > magnitude, -(wide & magnitude), wide)
        return found

    found: Array = np.abs(ordered(a) - ordered(b))
    return found


@dataclass
class _Loaded:
    """A case on the GPU: memory, contents before the launches, kernels and host code."""

    case: Case
    places: dict[str, int]
    before: dict[str, Array]
    functions: list[Function]
    hosts: list[Recorder]


class _Runner:
    def __init__(self, folder: Path, device: Device) -> None:
        self._folder, self._device = folder, device

    def load(self, case: Case) -> _Loaded:
        before = {b.name: np.ascontiguousarray(b.contents(self._folder)) for b in case.buffers}
        places = {name: self._device.memory(x.nbytes) for name, x in before.items()}
        functions = [self._device.function(unpack(self._folder / c.code), c.kernel, c.parameters) for c in case.calls]
        return _Loaded(case, places, before, functions, [recorder(self._folder, c) for c in case.calls])

    def run(self, this: _Loaded, timeout_s: float) -> dict[str, Array]:
        """Launch once, from the same contents; the outputs."""
        for b in this.case.buffers:
            self._device.write(this.places[b.name], this.before[b.name])
        for call, function, host in zip(this.case.calls, this.functions, this.hosts, strict=True):
            for launch in launches(host, call, this.case, this.places.__getitem__):
                self._device.launch(function, launch)
        if not self._device.finished(timeout_s):
            raise Hang
        found = {b.name: np.empty_like(this.before[b.name]) for b in this.case.buffers if b.output}
        for name, into in found.items():
            self._device.read(this.places[name], into)
        return found

    def drop(self, this: _Loaded) -> None:
        for place in this.places.values():
            self._device.free(place)


def compared(got: Array, wanted: Array) -> dict[str, Any]:
    """How far two arrays of one type are apart."""
    bits = f"u{got.dtype.itemsize}"
    apart = units_apart(got.view(bits), wanted.view(bits))
    a, b = (from_bits(x, "bf16") if x.dtype == np.uint16 else x.astype(np.float64) for x in (got, wanted))
    finite = np.isfinite(a) & np.isfinite(b)
    return {
        "elements": apart.size, "equal": int((apart == 0).sum()), "one": int((apart == 1).sum()), "most": int(apart.max()),
        "largest": float(np.abs(a - b)[finite].max(initial=0.0)), "not_finite": int((~finite & (apart != 0)).sum()),
        "norm": float(np.linalg.norm((a - b)[finite]) / max(float(np.linalg.norm(b[finite])), 1e-30)),
    }  # fmt: skip


def outcome(got: dict[str, Array], right: dict[str, Array], expected: Expected) -> str:
    """What became of a planted fault: the bits of the kernel itself, others within what rounding allows, or wrong values.

    ``expected`` has the batch and heads of one problem, of which the outputs hold many copies.
    """
    if all(np.array_equal(got[n].view(np.uint8), right[n].view(np.uint8)) for n in right):
        return "same"
    values = from_bits(got["o"], "bf16")
    times = (values.shape[0] // expected.o.shape[0], 1, values.shape[2] // expected.o.shape[2], 1)
    good = np.abs(values - np.tile(expected.o, times)) <= np.tile(expected.bound, times)
    lse, wanted = got["lse"].astype(np.float64), np.tile(expected.lse, (times[0], times[2], 1))
    with np.errstate(invalid="ignore"):
        close = (lse == wanted) | (np.abs(lse - wanted) <= LSE_TOLERANCE * np.maximum(1, np.abs(wanted)))
    return "differs" if good.all() and close.all() else "wrong"


def expected_of(case: Case, folder: Path) -> Expected:
    """Attention in double precision, of a forward case."""
    one = {b.name: b.contents(folder) for b in case.buffers if b.name in ("q", "k", "v")}
    shape = Shape(**case.shape)
    return attention(Inputs(one["q"], one["k"], one["v"], shape.head_dim**-0.5), shape)


class _Answers:
    def __init__(self, folder: Path) -> None:
        self.folder, self.cases, self.device = folder, load_cases(folder), Device()
        self.runner = _Runner(folder, self.device)
        self._controls: dict[tuple[str, bool], tuple[dict[str, Array], Expected]] = {}

    def compare(self, case: Case, timeout_s: float) -> dict[str, Any]:
        """Outputs beside those of the emulator."""
        this = self.runner.load(case)
        got = self.runner.run(this, timeout_s)
        again = self.runner.run(this, timeout_s)
        self.runner.drop(this)
        with np.load(self.folder / case.emulated) as kept:
            found: dict[str, Any] = {n: compared(x, kept[n].view(x.dtype).reshape(x.shape)) for n, x in got.items()}
            found = {n: x | {"repeats": bool(np.array_equal(again[n].view(np.uint8), got[n].view(np.uint8)))} for n, x in found.items()}
            if case.shape:
                bound = expected_of(case, self.folder)
                emulated = from_bits(kept["o"], "bf16").reshape(bound.o.shape)
                values = from_bits(got["o"], "bf16")
                for name, gap in (("apart", values - emulated), ("silicon", values - bound.o), ("emulator", emulated - bound.o)):
                    found["o"][f"{name}_of_bound"] = float(np.nan_to_num(np.abs(gap) / bound.bound, nan=np.inf).max())
        return found

    def fault(self, case: Case, repeats: int, timeout_s: float) -> dict[str, Any]:
        """What a planted fault does: as it was emulated, then crowded, each ``repeats`` times; stops at the first that is wrong."""
        found: dict[str, str] = {}
        for way in ("alone", "crowded"):
            right, expected = self._control(case, way == "crowded", timeout_s)
            this = self.runner.load(self._as(case, way == "crowded"))
            seen = []
            try:
                for _ in range(repeats):
                    seen.append(outcome(self.runner.run(this, timeout_s), right, expected))
                    if seen[-1] == "wrong":
                        break
            except Hang:
                return {"ways": found | {way: "hang"}, "after": len(seen)}
            self.runner.drop(this)
            found[way] = min(seen, key=WORST_FIRST.index)
            if found[way] == "wrong":
                return {"ways": found, "after": len(seen) - 1}
        return {"ways": found, "after": repeats}

    def _as(self, case: Case, crowded: bool) -> Case:
        return case.crowded(*CROWD, self.device.sm_count) if crowded else case

    def _control(self, case: Case, crowded: bool, timeout_s: float) -> tuple[dict[str, Array], Expected]:
        """Outputs of the kernel without the fault, as its compiler assembled it."""
        name = case.fault["of"]
        if (name, crowded) not in self._controls:
            original = next(c for c in self.cases if c.name == name)
            this = self.runner.load(self._as(original, crowded))
            self._controls[name, crowded] = self.runner.run(this, timeout_s), expected_of(original, self.folder)
            self.runner.drop(this)
        return self._controls[name, crowded]


@cache
def _answers(folder: str) -> _Answers:
    return _Answers(Path(folder))


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Run a case; asked for none, say what the GPU is."""
    this = _answers(question["folder"])
    if "case" not in question:
        return {"device": this.device.name, "sm_count": this.device.sm_count}
    case = this.cases[question["case"]]
    try:
        if case.fault:
            return this.fault(case, question["repeats"], question["timeout_s"])
        return {"outputs": this.compare(case, question["timeout_s"])}
    except Hang:
        return {"ways": {"alone": "hang"}, "after": 0}


if __name__ == "__main__":
    serve(answer)
