"""Tile operations for Hopper, each saying how one op of an attention loop is done. Roles, order and waits are not decided here.

Needs ``nvidia-cutlass-dsl``. All functions are called while a kernel is traced.
"""

from twill.emit.sm90.tiles.barriers import Ring, arrive, wait
from twill.emit.sm90.tiles.block import Block, Buffer, Operands, RingShape, Tiles, enter, operands, smem_bytes
from twill.emit.sm90.tiles.epilogue import finish
from twill.emit.sm90.tiles.loads import load_k, load_q, load_v, loader
from twill.emit.sm90.tiles.mma import consumer, mma_pv, mma_qk, wait_mma
from twill.emit.sm90.tiles.softmax import convert, exp2, rescale, rescale_if_grown, row_max, row_sum

__all__ = [
    "Block", "Buffer", "Operands", "Ring", "RingShape", "Tiles", "arrive", "consumer", "convert", "enter", "exp2", "finish", "load_k",
    "load_q", "load_v", "loader", "mma_pv", "mma_qk", "operands", "rescale", "rescale_if_grown", "row_max", "row_sum", "smem_bytes",
    "wait", "wait_mma",
]  # fmt: skip
