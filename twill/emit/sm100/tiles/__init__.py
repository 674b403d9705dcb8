"""Tile operations for Blackwell, each saying how one op of an attention loop is done. Roles, order and waits are not decided here.

Needs ``nvidia-cutlass-dsl``. All functions are called while a kernel is traced.
"""

from twill.emit.sm100.tiles.barriers import arrive, arrive_named, arrive_slot, commit, commit_slot, meet, wait, wait_slot
from twill.emit.sm100.tiles.block import Block, Tiles, enter, listen, part, release
from twill.emit.sm100.tiles.epilogue import finish, leave, total
from twill.emit.sm100.tiles.iteration import start
from twill.emit.sm100.tiles.mma import issuer, mma_pv, mma_qk
from twill.emit.sm100.tiles.rows import begin_work, rows
from twill.emit.sm100.tiles.softmax import exp2, rescale, rescale_if_grown, row_max, row_sum
from twill.emit.tiles.barriers import NamedBarrier, Ring, RingShape
from twill.emit.tiles.block import Buffer, Operands, grid, operands, smem_bytes
from twill.emit.tiles.iteration import advance, begin
from twill.emit.tiles.loads import load_k, load_q, load_v, loader, prefetch
from twill.emit.tiles.turns import claim, first, following
from twill.emit.tiles.work import announce, locate

__all__ = [
    "Block", "Buffer", "NamedBarrier", "Operands", "Ring", "RingShape", "Tiles", "advance", "announce", "arrive", "arrive_named",
    "arrive_slot", "begin", "begin_work", "claim", "commit", "commit_slot", "enter", "exp2", "finish", "first", "following", "grid",
    "issuer", "leave", "listen", "load_k", "load_q", "load_v", "loader", "locate", "meet", "mma_pv", "mma_qk", "operands", "part",
    "prefetch", "release", "rescale", "rescale_if_grown", "row_max", "row_sum", "rows", "smem_bytes", "start", "total", "wait", "wait_slot",
]  # fmt: skip
