"""A part of dQ into SMEM, and from there added to the sum in global memory."""

from __future__ import annotations

import cutlass.cute as cute

from twill.emit.sm90.backward.tiles.fragments import WARPGROUP, Gradient
from twill.emit.tiles.backward.atomics import count_up
from twill.emit.tiles.backward.block import turn_ring
from twill.emit.tiles.backward.bulk import add_to_global
from twill.emit.tiles.barriers import meet, wait
from twill.emit.tiles.iteration import Iteration, index_of, place

__all__ = ["reduce_add", "reductions_over", "reductions_read", "stage_dq"]

FLOAT_BYTES = 4


def stage_dq(x: Gradient, i: Iteration) -> None:
    """The part into SMEM, quad by quad as the threads hold it; adding up does not ask for another order."""
    quads = cute.size(x.sum) // 4
    slot, _ = place(i, cute.size(x.staging, mode=[1]))
    to = cute.make_tensor(x.staging[None, slot].iterator, cute.make_layout((4, quads, WARPGROUP), stride=(1, 4 * WARPGROUP, 4)))
    cute.autovec_copy(cute.make_tensor(x.sum.iterator, cute.make_layout((4, quads))), to[None, None, x.thread])
    cute.arch.fence_view_async_shared()
    meet(x.meeting)


def reduce_add(x: Gradient, i: Iteration) -> None:
    """Issue the addition of a part to the sum of its tile of queries, where these are ordered when its turn has come."""
    b, floats = x.block, cute.size(x.sum) * WARPGROUP
    slot = place(i, cute.size(x.staging, mode=[1]))[0]
    if b.ordered:
        wait(b.rings[turn_ring(x.part)], i)
    to = b.workspace.sum_of(x.work.number + index_of(i)).iterator + x.part * floats
    add_to_global(to, x.staging[None, slot].iterator, floats * FLOAT_BYTES, x.thread == 0)


def reductions_read(x: Gradient) -> None:
    """Wait until the reductions of the part have read what was staged for them. One thread of it issued them; those that issued none
    need not be kept from asking. Where additions are ordered, they are waited for to their end, which is said.
    """
    if not x.block.ordered:
        cute.arch.cp_async_bulk_wait_group(0, read=True)
        meet(x.meeting)
        return
    cute.arch.cp_async_bulk_wait_group(x.others)
    meet(x.meeting)
    # all four warps have seen their turn by now, so that the next one may come
    count_up(x.block.added.iterator + x.part, x.thread == 0)


def reductions_over(x: Gradient) -> None:
    """At the end of a work tile, where additions are ordered: all of the part are over, which is said."""
    if x.block.ordered:
        cute.arch.cp_async_bulk_wait_group(0)
        count_up(x.block.added.iterator + x.part, x.thread == 0)
