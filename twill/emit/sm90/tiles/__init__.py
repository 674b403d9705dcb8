"""Tile operations for Hopper, each saying how one op of an attention loop is done. Roles, order and waits are not decided here.

Needs ``nvidia-cutlass-dsl``. All functions are called while a kernel is traced.
"""

from twill.emit.sm90.tiles.ahead import exp2_ahead, row_max_behind
from twill.emit.sm90.tiles.block import Tiles
from twill.emit.sm90.tiles.epilogue import finish, finish_directly, leave
from twill.emit.sm90.tiles.maximum import row_max
from twill.emit.sm90.tiles.mma import begin_work, coming, consumer, joins, mma_pv, mma_qk, take, wait_mma
from twill.emit.sm90.tiles.pins import pin
from twill.emit.sm90.tiles.softmax import convert, exp2, rescale, rescale_if_grown, row_sum
from twill.emit.tiles.barriers import Ring, RingShape, arrive, arrive_slot, peek, wait, wait_peeked, wait_slot
from twill.emit.tiles.block import Block, Buffer, Operands, enter, grid, operands, smem_bytes
from twill.emit.tiles.iteration import advance, begin, here, start
from twill.emit.tiles.loads import load_k, load_q, load_v, loader, prefetch
from twill.emit.tiles.turns import claim, first, following
from twill.emit.tiles.work import announce, locate

__all__ = [
    "Block", "Buffer", "Operands", "Ring", "RingShape", "Tiles", "advance", "announce", "arrive", "arrive_slot", "begin", "begin_work",
    "claim", "coming", "consumer", "convert", "enter", "exp2", "exp2_ahead", "finish", "finish_directly", "first", "following", "grid",
    "here", "joins", "leave", "load_k", "load_q", "load_v", "loader", "locate", "mma_pv", "mma_qk", "operands", "peek", "pin", "prefetch",
    "rescale", "rescale_if_grown", "row_max", "row_max_behind", "row_sum", "smem_bytes", "start", "take", "wait", "wait_mma", "wait_peeked",
    "wait_slot",
]  # fmt: skip
