"""Small tiles of real attention: what the ops of an ``attn_fwd`` graph compute, in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from twill.check.protocol.interpreter import Outputs
from twill.model.graph import LoopGraph, Op

Array = npt.NDArray[np.float64]
ROWS, KEYS, DIM = 4, 16, 4


class AttentionTiles:
    """Q, K, V of ``trip_count`` tiles of keys, and the semantics of every op kind; missing inputs are NaN."""

    def __init__(self, graph: LoopGraph, trip_count: int, seed: int = 0) -> None:
        source = np.random.default_rng(seed)
        self.subtiles = int(graph.parameters["subtiles"])
        self.q = source.normal(size=(self.subtiles, ROWS, DIM))
        # later keys are larger, so that the maximum keeps growing and O is really rescaled
        self.k = source.normal(size=(trip_count, KEYS, DIM)) * np.linspace(0.5, 2, max(1, trip_count))[:trip_count, None, None]
        self.v = source.normal(size=(trip_count, KEYS, DIM))
        widths = [float(w) for w in str(graph.parameters["chunks"]).split("+")]
        ends = np.cumsum(widths) / sum(widths) * KEYS
        self.parts = [slice(round(e - w / sum(widths) * KEYS), round(e)) for e, w in zip(ends, widths, strict=True)]

    def execute(self, op: Op, iteration: int, inputs: Mapping[str, Outputs | None]) -> Outputs:
        return getattr(self, f"_{op.kind}")(op, iteration, _Inputs(inputs))

    def _tma_load(self, op: Op, i: int, x: _Inputs) -> Outputs:
        return {"tile": {"LK": self.k, "LV": self.v}[op.name][i].copy()}

    def _mma_qk(self, op: Op, i: int, x: _Inputs) -> Outputs:
        return {"S": self.q[op.subtile or 0] @ x.get("LK", "tile", (KEYS, DIM)).T}

    def _row_max(self, op: Op, i: int, x: _Inputs) -> Outputs:
        scores = x.get("QK", "S", (ROWS, KEYS))
        old = x.get("MAX", "m", (ROWS,)) if i else np.full(ROWS, -np.inf)
        new = np.maximum(old, scores.max(axis=1))
        return {"m": new, "factor": np.exp2(old - new), "S": scores}

    def _exp2(self, op: Op, i: int, x: _Inputs) -> Outputs:
        scores = x.get("MAX" if not x.has("QK") else "QK", "S", (ROWS, KEYS))
        part = self.parts[op.chunk or 0]
        return {"P": np.exp2(scores - x.get("MAX", "m", (ROWS,))[:, None])[:, part], "part": part}

    def _row_sum(self, op: Op, i: int, x: _Inputs) -> Outputs:
        old = x.get("SUM", "l", (ROWS,)) if i else np.zeros(ROWS)
        total = sum((np.sum(p, axis=1) for p in x.all("EXP", "P", (ROWS, KEYS))), start=np.zeros(ROWS))
        return {"l": old * x.get("MAX", "factor", (ROWS,)) + total}

    def _convert(self, op: Op, i: int, x: _Inputs) -> Outputs:
        return {"P": x.get("EXP", "P", (ROWS, KEYS)), "part": slice(None)}

    def _rescale(self, op: Op, i: int, x: _Inputs) -> Outputs:
        old = x.get("PV", "O", (ROWS, DIM)) if i else np.zeros((ROWS, DIM))
        return {"O": old * x.get("MAX", "factor", (ROWS,))[:, None]}

    def _mma_pv(self, op: Op, i: int, x: _Inputs) -> Outputs:
        part = self.parts[op.chunk or 0]
        p = x.get("CVT" if x.has("CVT") else "EXP", "P", (ROWS, part.stop - part.start))
        old = x.get("RESC" if x.has("RESC") else "PV", "O", (ROWS, DIM))
        return {"O": old + p @ x.get("LV", "tile", (KEYS, DIM))[part]}

    def result(self, graph: LoopGraph, registers: Mapping[tuple[str, int], Outputs], trip_count: int) -> Array:
        """O / l of every sub-tile."""
        last = {op.subtile: op.name for op in graph.ops if op.kind == "mma_pv"}
        total = {op.subtile: op.name for op in graph.ops if op.kind == "row_sum"}
        return np.array(
            [registers[last[s], trip_count - 1]["O"] / registers[total[s], trip_count - 1]["l"][:, None] for s in sorted(last)]
        )  # fmt: skip

    def reference(self) -> Array:
        """Attention in one piece."""
        scores = self.q @ self.k.reshape(-1, DIM).T
        p = np.exp2(scores - scores.max(axis=2, keepdims=True))
        return p / p.sum(axis=2, keepdims=True) @ self.v.reshape(-1, DIM)


class _Inputs:
    """Inputs by the name of the op without its sub-tile."""

    def __init__(self, found: Mapping[str, Outputs | None]) -> None:
        self.found = found

    def has(self, stem: str) -> bool:
        return any(name.split("_")[0] == stem for name in self.found)

    def all(self, stem: str, key: str, shape: tuple[int, ...]) -> list[Any]:
        return [np.full(shape, np.nan) if v is None else v[key] for n, v in self.found.items() if n.split("_")[0] == stem]

    def get(self, stem: str, key: str, shape: tuple[int, ...]) -> Any:
        return next(iter(self.all(stem, key, shape)), np.full(shape, np.nan))
