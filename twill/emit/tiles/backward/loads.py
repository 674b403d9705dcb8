"""Loads of the backward: K and V once a work tile, Q with LSE and dO with dPsum tile by tile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync

from twill.emit.tiles.backward.block import Block
from twill.emit.tiles.backward.bulk import load_bytes
from twill.emit.tiles.backward.work import Work, place_of
from twill.emit.tiles.barriers import Ring
from twill.emit.tiles.block import partition
from twill.emit.tiles.iteration import Iteration, index_of, place

__all__ = ["Loader", "load_do", "load_keys", "load_q", "loader", "prefetch"]

FLOAT_BYTES = 4


@dataclass(frozen=True, eq=False)
class Loader:
    """The loading warp's view of a work tile."""

    block: Block
    work: Work


def prefetch(b: Block) -> None:
    """Fetch the descriptors of all operands."""
    given = b.operands
    for atom, _ in (given.q, given.k, given.v, given.do, given.dv):
        cpasync.prefetch_descriptor(atom)


def loader(b: Block, work: Work) -> Loader:
    """What Q and dO of a work tile are loaded with."""
    return Loader(b, work)


def _load_keys(b: Block, work: Work, name: str, operand: tuple[Any, Any], columns: int, full: Ring) -> None:
    t = b.tiles
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(full.pointer, full.tx_bytes)
    tiled = cute.local_tile(operand[1][None, None, work.kv_head, work.batch], (t.sub_keys, columns), (None, 0))
    to, source = partition(operand[0], b.smem[name], tiled)
    for s in range(t.subtiles):
        cute.copy(operand[0], source[None, work.key_tile * t.subtiles + s], to[None, s], tma_bar_ptr=full.pointer)


def load_keys(b: Block, turn: Iteration, number: Any) -> None:
    """K and V of a work tile: K once all MMAs with that of the one before are over, V once dV has been stored from its place."""
    work, last = place_of(b, number), place(turn - 1, 1)[1]
    cute.arch.mbarrier_wait(b.rings["keys_empty"].pointer, last)
    _load_keys(b, work, "K", b.operands.k, b.tiles.columns, b.rings["keys_full"])
    cute.arch.mbarrier_wait(b.rings["values_empty"].pointer, last)
    _load_keys(b, work, "V", b.operands.v, b.tiles.columns_v, b.rings["values_full"])
    if b.ordered:
        # who takes a work tile begins it now: others wait for it
        cute.arch.mbarrier_wait(b.rings["keys_empty"].pointer, place(turn, 1)[1])


def _load(x: Loader, name: str, operand: tuple[Any, Any], columns: int, statistic: str, values: Any, i: Iteration, full: Ring) -> None:
    b, index = x.block, index_of(i)
    slot, barrier = place(i, cute.size(b.smem[name], mode=[2]))[0], full.pointer + place(i, full.slots)[0]
    rows = b.tiles.queries
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(barrier, full.tx_bytes + rows * FLOAT_BYTES)
        load_bytes(b.smem[statistic][None, slot].iterator, values[None, x.work.number + index].iterator, rows * FLOAT_BYTES, barrier)
    row_tile, head = x.work.place(index)
    tiled = cute.local_tile(operand[1][None, None, head, x.work.batch], (rows, columns), (None, 0))
    to, source = partition(operand[0], b.smem[name], tiled)
    cute.copy(operand[0], source[None, row_tile], to[None, slot], tma_bar_ptr=barrier)


def load_q(x: Loader, i: Iteration, full: Ring) -> None:
    """The tile of Q of an iteration, with LSE of its rows, into its slot; completes ``full``."""
    b = x.block
    _load(x, "Q", b.operands.q, b.tiles.columns, "LSE", b.workspace.lse, i, full)


def load_do(x: Loader, i: Iteration, full: Ring) -> None:
    """The tile of dO of an iteration, with dPsum of its rows, into its slot; completes ``full``."""
    b = x.block
    _load(x, "dO", b.operands.do, b.tiles.columns_v, "dPsum", b.workspace.dpsum, i, full)
