"""The main loop of a matrix product C = A B: one iteration multiplies one slice of the inner dimension.

Two loads feed one MMA a sub-tile; the accumulator stays for the whole loop. Nothing but the tensor core and the memory
bound it, so its best schedule has I = MMA time and as many prefetch stages as fit.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from twill.errors import ParameterError
from twill.model.builder import GraphBuilder
from twill.model.graph import LoopGraph
from twill.model.graphs.parameters import DTYPE_BYTES, Tile
from twill.model.machine import Machine

__all__ = ["Gemm", "gemm"]

LETTERS = "abcd"


@dataclass(frozen=True, slots=True)
class Gemm:
    """Parameters of the product; ``None`` means the machine's usual choice.

    Attributes
    ----------
    tile : rows of A by columns of B in one block.
    k : inner dimension handled by one iteration.
    subtiles : parts of the rows with an MMA of their own (one consumer warpgroup each on Hopper).
    ctas : blocks that share one MMA (each loads half of B).
    """

    tile: Tile | None = None
    k: int = 64
    subtiles: int | None = None
    dtype: str = "bf16"
    ctas: int = 1


def gemm(machine: Machine, parameters: Gemm | None = None) -> LoopGraph:
    """Build the product for a machine.

    Raises
    ------
    ParameterError : a tile or dtype that the machine's matrix instructions cannot take.
    """
    p = parameters or Gemm()
    if p.dtype not in DTYPE_BYTES:
        raise ParameterError(f"dtype {p.dtype!r} is unknown", f"use one of {', '.join(DTYPE_BYTES)}")
    if not 1 <= p.ctas <= machine.max_ctas:
        raise ParameterError(f"{p.ctas} CTAs cannot share an MMA on {machine.name}", f"use 1 to {machine.max_ctas}")
    if not 16 <= p.k <= 512 or p.k % 16:
        raise ParameterError(f"k {p.k} is not a multiple of 16 from 16 to 512", "use k=64")
    height = int(machine.cost("mma_tile_m"))
    tile = p.tile or Tile(128, 256)
    subtiles = max(1, min(len(LETTERS), tile.m // height)) if p.subtiles is None else p.subtiles
    if not 1 <= subtiles <= len(LETTERS) or tile.m % (subtiles * height):
        raise ParameterError(
            f"{subtiles} sub-tiles of a tile of {tile.m} rows are not multiples of {height} rows",
            f"use --tile {height * min(max(1, subtiles), len(LETTERS))}x{tile.n} or other --subtiles",
        )
    element, rows = DTYPE_BYTES[p.dtype], tile.m // subtiles
    recorded: dict[str, int | float | str] = {
        "tile": str(tile), "k": p.k, "subtiles": subtiles, "dtype": p.dtype, "ctas": p.ctas
    }  # fmt: skip
    b = GraphBuilder("gemm", machine, recorded)
    cluster = int(machine.cost("handover_cluster") - machine.cost("handover_mbarrier")) if p.ctas > 1 else 0
    b.load("LA", "A", tile.m * p.k * element, ctas=p.ctas)
    b.load("LB", "B", tile.n * p.k * element // p.ctas, ctas=p.ctas)
    b.reserve("smem", 1024)
    names = []
    for i in range(subtiles):
        suffix = f"_{LETTERS[i]}" if subtiles > 1 else ""
        mma, accumulator = f"MMA{suffix}", f"C{suffix}"
        b.mma(mma, "mma", rows, tile.n, p.k, smem_operands="ab", ctas=p.ctas, subtile=i)
        b.read("LA", mma, "A", hold_cycles=b.latency_cycles(mma) + cluster)
        b.read("LB", mma, "B", hold_cycles=b.latency_cycles(mma) + cluster)
        b.order(mma, mma, latency_cycles=b.occupancy_cycles(mma), distance=1)
        if machine.accumulator == "tmem":
            b.buffer(accumulator, "tmem", rows * tile.n // height, persistent=True)
        else:
            b.value(accumulator, mma, rows * tile.n // 128, persistent=True)
        names.append((mma,))
    for first, second in itertools.pairwise(names):
        b.symmetric(first, second)
    return b.finish()
