"""Parameters of the attention backward loop, and what they mean in elements, bytes and columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from twill.errors import ParameterError
from twill.model.graphs.parameters import DTYPE_BYTES, Tile, check_head_dim
from twill.model.machine import Machine

__all__ = ["LETTERS", "STATISTIC_BYTES", "AttnBwd", "BwdShape", "padded", "resolve"]

LETTERS = "abcdefgh"
STATISTIC_BYTES = 4
"""Bytes of a row statistic (LSE, dPsum) in fp32."""

WIDE_HEAD_DIM = 128
"""Head dims above this keep neither dK, dV (registers) nor all columns (TMEM) of a 128-key tile in one block."""


@dataclass(frozen=True, slots=True)
class AttnBwd:
    """Parameters of the backward loop; ``None`` means the machine's usual choice for the head dim.

    Attributes
    ----------
    head_dim, head_dim_v : columns of Q and K, of V and O.
    tile : query rows (one iteration) by keys (resident; those of one block).
    subtiles : parts of the element-wise work that are scheduled on their own: with accumulators in registers the keys
        are cut, with TMEM the queries.
    dq_parts : pieces in which dQ leaves the loop; with accumulators in registers each is an MMA of its own.
    ds_from : ``fp32`` keeps P in fp32 until dS is made of it; ``bf16`` makes dS of the converted P, which saves
        registers and costs accuracy (dQ error 0.0017 -> 0.0024).
    ctas : blocks that share one MMA; each owns its own keys, and half of the queries of dQ.
    """

    head_dim: int = 128
    head_dim_v: int | None = None
    tile: Tile | None = None
    subtiles: int | None = None
    dq_parts: int | None = None
    dtype: str = "bf16"
    ds_from: Literal["fp32", "bf16"] = "fp32"
    ctas: int | None = None


@dataclass(frozen=True, slots=True)
class BwdShape:
    """The loop in numbers: ``m`` queries by ``n`` keys, head dims ``d`` and ``dv`` (padded to what an MMA takes)."""

    m: int
    n: int
    d: int
    dv: int
    subtiles: int
    dq_parts: int | None
    element: int
    ds_from_bf16: bool
    ctas: int

    @property
    def letters(self) -> str:
        return LETTERS[: self.subtiles]

    @property
    def statistic_bytes(self) -> int:
        """LSE or dPsum of one tile of queries."""
        return self.m * STATISTIC_BYTES


def padded(value: int, multiple: int) -> int:
    """``value`` rounded up to a multiple."""
    return -(-value // multiple) * multiple


def _register_tile(d: int, dv: int) -> Tile:
    """What 2 x 240 registers and 227 KB leave: FA3's and FA4's choice on Hopper from head dim 96 on.

    At 64 they take 128 queries, for which LSE and dPsum of a thread's rows do not fit its registers beside S and dP: 32 each, which
    they shuffle around. 80 queries take 20, and with dQ in a warpgroup of its own a query takes no longer.
    Narrower ones keep 128: of 80 queries dQ^T needs 64 rows.
    """
    if max(d, dv) > 192 or (max(d, dv) > WIDE_HEAD_DIM and d + dv > 320):
        return Tile(64, 48)
    if max(d, dv) > WIDE_HEAD_DIM:
        return Tile(64, 96)
    if d == 64 and dv <= 64:
        return Tile(80, 128)
    if max(d, dv) <= 64:
        return Tile(128, 128)
    return Tile(80, 128) if d == dv == WIDE_HEAD_DIM else Tile(64, 128)


def _tmem_tile(d: int, dv: int, ctas: int) -> Tile:
    """128x128, or 64 keys where dK and dV of 128 keys and one tile of scores exceed 512 columns."""
    return Tile(128, 64 if ctas > 1 and (d > 192 or dv > WIDE_HEAD_DIM) else 128)


def resolve(p: AttnBwd, machine: Machine) -> BwdShape:
    """Fill in the machine's usual choices and check what can be said without building the graph.

    Raises
    ------
    ParameterError : a parameter out of its range on this machine.
    """
    check_head_dim("head dim", p.head_dim)
    dv = p.head_dim if p.head_dim_v is None else p.head_dim_v
    check_head_dim("head dim of V", dv)
    if p.dtype not in DTYPE_BYTES:
        raise ParameterError(f"dtype {p.dtype!r} is unknown", f"use one of {', '.join(DTYPE_BYTES)}")
    if p.ds_from not in ("fp32", "bf16"):
        raise ParameterError(f"ds_from {p.ds_from!r} is unknown", "use fp32 or bf16")
    in_tmem = machine.accumulator == "tmem"
    ctas = p.ctas
    if ctas is None:
        ctas = min(2, machine.max_ctas) if in_tmem and max(p.head_dim, dv) > WIDE_HEAD_DIM else 1
    if not 1 <= ctas <= machine.max_ctas:
        raise ParameterError(f"{ctas} CTAs cannot share an MMA on {machine.name}", f"use 1 to {machine.max_ctas}")
    tile = p.tile or (_tmem_tile(p.head_dim, dv, ctas) if in_tmem else _register_tile(p.head_dim, dv))
    subtiles = p.subtiles
    if subtiles is None:
        subtiles = 1 if in_tmem and ctas > 1 else 2
    if not 1 <= subtiles <= 4:
        raise ParameterError(f"{subtiles} sub-tiles are not between 1 and 4", "use --subtiles 2")
    if p.dq_parts is not None and not 1 <= p.dq_parts <= 8:
        raise ParameterError(f"dq_parts {p.dq_parts} is not between 1 and 8", "use dq_parts=2")
    multiple = 32 if in_tmem else 16
    return BwdShape(
        tile.m, tile.n, padded(p.head_dim, multiple), padded(dv, multiple), subtiles, p.dq_parts, DTYPE_BYTES[p.dtype],
        p.ds_from == "bf16", ctas,
    )  # fmt: skip
