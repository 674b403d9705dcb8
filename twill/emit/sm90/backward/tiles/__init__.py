"""Tile operations of the backward for Hopper, each saying how one op of the loop is done. Roles, order and waits are not decided here.

Needs ``nvidia-cutlass-dsl``. All functions are called while a kernel is traced.
"""

from twill.emit.sm90.backward.tiles.block import Tiles
from twill.emit.sm90.backward.tiles.elementwise import convert, dscore, exp2, read_dpsum, read_lse, store_ds
from twill.emit.sm90.backward.tiles.epilogue import finish_dk, finish_dv, stored
from twill.emit.sm90.backward.tiles.fragments import begin_work, dk, dq, dv, scores
from twill.emit.sm90.backward.tiles.mma import mma_dk, mma_dp, mma_dq, mma_dv, mma_qk, wait_mma
from twill.emit.sm90.backward.tiles.reduction import reduce_add, reductions_over, reductions_read, stage_dq
from twill.emit.sm90.backward.tiles.settled import settle
from twill.emit.tiles.backward.before_and_after import postprocess, preprocess
from twill.emit.tiles.backward.block import Block, Operands, enter, grid, operands, smem_bytes, workspace_words
from twill.emit.tiles.backward.loads import load_do, load_keys, load_q, loader, prefetch
from twill.emit.tiles.backward.ordered import count_work, counting, keep_turns, start_turns
from twill.emit.tiles.backward.work import announce, locate
from twill.emit.tiles.barriers import (
    NamedBarrier,
    Ring,
    RingShape,
    arrive,
    arrive_slot,
    meet,
    peek,
    wait,
    wait_peeked,
    wait_slot,
)
from twill.emit.tiles.block import Buffer
from twill.emit.tiles.iteration import advance, begin, start
from twill.emit.tiles.turns import claim, first, following

__all__ = [
    "Block", "Buffer", "NamedBarrier", "Operands", "Ring", "RingShape", "Tiles", "advance", "announce", "arrive", "arrive_slot", "begin",
    "begin_work", "claim", "convert", "count_work", "counting", "dk", "dq", "dscore", "dv", "enter", "exp2", "finish_dk", "finish_dv",
    "first", "following", "grid", "keep_turns", "load_do", "load_keys", "load_q", "loader", "locate", "meet", "mma_dk", "mma_dp", "mma_dq",
    "mma_dv", "mma_qk", "operands", "peek", "postprocess", "prefetch", "preprocess", "read_dpsum", "read_lse", "reduce_add",
    "reductions_over", "reductions_read", "scores", "settle", "smem_bytes", "stage_dq", "start", "start_turns", "store_ds", "stored",
    "wait", "wait_mma", "wait_peeked", "wait_slot", "workspace_words",
]  # fmt: skip
