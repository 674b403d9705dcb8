"""Run the role functions of an emitted file as plain Python, with tile operations that only write down that they were called.

What they write down is compared with `Role.trace` of the WarpProgram, which knows nothing of cuts, prologues and epilogues.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

Event = tuple[Any, ...]
OPS = {
    "load_k": "LK", "load_v": "LV", "mma_qk": "QK", "mma_pv": "PV", "row_max": "MAX", "exp2": "EXP", "row_sum": "SUM", "convert": "CVT",
    "rescale": "RESC", "rescale_if_grown": "RESC", "exp2_ahead": "EXP", "row_max_behind": "MAX",
}  # fmt: skip
LETTERS = "abcdefgh"


class Cursor:
    """Where a role stands, as a plain number."""

    def __init__(self, state: list[int], offset: int = 0) -> None:
        self.state, self.offset = state, offset

    @property
    def number(self) -> int:
        return self.state[0] + self.offset

    def __add__(self, by: int) -> Cursor:
        return Cursor(self.state, self.offset + by)

    def __sub__(self, by: int) -> Cursor:
        return self + -by


def _advance(i: Cursor, by: int = 1) -> None:
    i.state[0] += by


@dataclass
class Recorder:
    """The tile operations. Each op says which iteration it is for, and which copies of its inputs it reads."""

    events: list[Event] = field(default_factory=list)
    latest: dict[str, int] = field(default_factory=dict)
    masked: list[tuple[int, bool]] = field(default_factory=list)
    peeked: dict[str, int] = field(default_factory=dict)

    def wait(self, ring: str, i: Cursor, distance: int = 0) -> None:
        self.events.append(("wait", ring, i.number - distance))

    def peek(self, ring: str, i: Cursor) -> None:
        self.peeked[ring] = i.number

    def wait_peeked(self, ring: str, i: Cursor) -> None:
        """A look ahead must have been at the completion that is now waited for, and at no other."""
        assert self.peeked.pop(ring, i.number) == i.number, (ring, i.number)
        self.wait(ring, i)

    def arrive(self, ring: str, i: Cursor) -> None:
        self.events.append(("arrive", ring, i.number))

    def meet(self, ring: str, i: Cursor) -> None:
        self.arrive(ring, i)
        self.wait(ring, i)

    def commit_slot(self, ring: str, slot: int) -> None:
        self.events.append(("commit_slot", ring, slot))

    def wait_mma(self, pending: int) -> None:
        self.events.append(("wait_mma", pending))

    def op(self, name: str) -> Callable[..., None]:
        def call(
            x: Any, i: Cursor, *rest: Any, scores: int = 0, factors: int = 0, age: int = 0, chunk: int | None = None, **o: Any
        ) -> None:
            iteration = i.number
            letter = "" if x == "source" else f"_{LETTERS[x.subtile]}"
            self.events.append(("op", OPS[name] + letter + ("" if chunk is None else str(chunk)), iteration))
            kind = "row_max" if name == "row_max_behind" else name
            self.latest[kind + letter] = iteration
            if name in ("row_max", "exp2", "row_sum", "convert") and f"mma_qk{letter}" in self.latest:
                assert self.latest[f"mma_qk{letter}"] - scores == iteration, (name, iteration, scores)
            if name in ("exp2", "row_sum") or (name.startswith("rescale") and f"row_max{letter}" in self.latest):
                assert self.latest[f"row_max{letter}"] - max(factors, age) == iteration, (name, iteration, factors, age)
            if name == "exp2_ahead":
                assert scores == factors == 0
            if kind == "row_max":
                self.masked.append((iteration, o["masked"]))
            if name.startswith("load_"):
                self.events.append(("arrive", rest[0], iteration))

        return call


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _kernel(function: Callable[..., Any]) -> SimpleNamespace:
    return SimpleNamespace(body=function, set_name_prefix=lambda *a, **k: None)


@contextmanager
def _stand_ins(tiles: Any, arch: str) -> Iterator[None]:
    """Modules in place of CuTe DSL and of the tile operations."""
    cute = ModuleType("cutlass.cute")
    cutlass = ModuleType("cutlass")
    for name in ("CopyAtom", "Tensor"):
        setattr(cute, name, SimpleNamespace)
    cute.__dict__.update(jit=_same, kernel=_kernel)
    cutlass.__dict__.update(
        cute=cute, Constexpr=Any, Int32=Any, Float32=Any, const_expr=bool, min=min, max=max,
        range=lambda start, stop, unroll: range(start, stop),
    )  # fmt: skip
    driver = ModuleType("cuda.bindings.driver")
    driver.__dict__["CUstream"] = Any
    bindings, cuda = ModuleType("cuda.bindings"), ModuleType("cuda")
    bindings.__dict__["driver"], cuda.__dict__["bindings"] = driver, bindings
    package = sys.modules.get(f"twill.emit.{arch}") or __import__(f"twill.emit.{arch}", fromlist=["x"])
    given = {
        "cutlass": cutlass, "cutlass.cute": cute, "cuda": cuda, "cuda.bindings": bindings, "cuda.bindings.driver": driver,
        f"twill.emit.{arch}.tiles": tiles,
    }  # fmt: skip
    kept = {name: sys.modules.get(name) for name in given}
    attribute = package.__dict__.get("tiles")
    sys.modules.update(given)
    package.__dict__["tiles"] = tiles
    try:
        yield
    finally:
        for name, module in kept.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
        if attribute is None:
            del package.__dict__["tiles"]
        else:
            package.__dict__["tiles"] = attribute


@dataclass
class Emitted:
    """An emitted file, ready to be run."""

    names: dict[str, Any]
    tiles: ModuleType

    def run(self, role: str, trips: int, masked: int = 1, causal: bool = False, skipped: int = 0) -> Recorder:
        """What a role does for one work tile of ``trips`` iterations, the first ``masked`` of them masked, behind ``skipped`` ones."""
        return self.run_all(role, [SimpleNamespace(trips=trips, masked=masked, skipped=skipped)], causal)

    def run_all(self, role: str, works: list[SimpleNamespace], causal: bool = False) -> Recorder:
        """What a role does for work tiles in turn, each with its ``trips``, ``masked`` and ``skipped``."""
        recorder = Recorder()
        none = SimpleNamespace(trips=0, masked=1, skipped=0)
        tiles = [*works, none]
        rings, stages = {name: name for name in self.names["BARRIERS"]}, self.names["STORAGE"]["V"].stages
        block = SimpleNamespace(rings=rings, causal=causal, work_tiles=len(works))
        self.tiles.__dict__.update(
            wait=recorder.wait, arrive=recorder.arrive, wait_mma=recorder.wait_mma, peek=recorder.peek, wait_peeked=recorder.wait_peeked,
            commit=recorder.arrive, arrive_named=recorder.arrive, meet=recorder.meet, commit_slot=recorder.commit_slot,
            start=lambda *a, **k: Cursor([0]), advance=_advance, begin=lambda i: recorder.peeked.clear(),
            locate=lambda block, turn, number: tiles[number],
            first=lambda *a: 0, following=lambda block, turn, number: number + 1, coming=lambda x, turn, number: tiles[number],
            here=lambda i: Cursor(list(i.state)), joins=lambda x, work: x.work.trips > 0 and work.trips > 0 and work.skipped < stages,
            finish=lambda *a, **k: recorder.events.append(("finish",)), finish_directly=lambda x: recorder.events.append(("finish",)),
        )  # fmt: skip
        self.tiles.__dict__.update({name: recorder.op(name) for name in OPS})
        function, warp = self.names["ROLES"][role]
        alone = sum(f == function for f, _ in self.names["ROLES"].values()) == 1
        self.names[function](*((block,) if alone else (block, warp // 4)))
        return recorder


def _at_work(x: Any, work: Any, whole: bool = False) -> Any:
    x.work = work
    return x


def _take(x: Any, work: Any) -> None:
    x.work = work


def load(text: str) -> Emitted:
    """Execute an emitted file's definitions."""
    found = re.search(r"^from twill\.emit\.(sm\d+) import tiles$", text, re.MULTILINE)
    assert found is not None
    tiles = ModuleType(f"twill.emit.{found[1]}.tiles")
    tiles.__dict__.update(
        Tiles=SimpleNamespace, Buffer=SimpleNamespace, RingShape=SimpleNamespace, Operands=SimpleNamespace,
        loader=lambda block, work: "source", leave=lambda *x: None, NamedBarrier=SimpleNamespace,
        total=lambda *a: None, issuer=lambda block, subtile: SimpleNamespace(subtile=subtile),
        rows=lambda block, subtile, copies=1: SimpleNamespace(subtile=subtile),
        consumer=lambda block, subtile, **copies: SimpleNamespace(subtile=subtile), begin_work=_at_work, take=_take,
        wait_slot=lambda *a: None, arrive_slot=lambda *a: None,
    )  # fmt: skip
    names: dict[str, Any] = {}
    with _stand_ins(tiles, found[1]):
        exec(compile(text, "emitted", "exec"), names)
    return Emitted(names, tiles)
