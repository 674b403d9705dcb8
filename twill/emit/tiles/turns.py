"""How the warps of a block come to know which work tiles it does: one warp claims their numbers and announces them, the others hear.

What a number means is worked out once, by the announcing warp and ahead of time: the divisions would hold up every warp between two
work tiles. Without a counter in global memory the numbers go up by the size of the grid, and every warp works them out itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cutlass
import cutlass.cute as cute

from twill.emit.tiles.block import ANNOUNCED, WORDS
from twill.emit.tiles.iteration import Iteration, advance, place

__all__ = ["announced", "claim", "first", "following", "hear", "hear_all", "say"]


def announced(b: Any) -> bool:
    """Whether one warp says what the work tiles are; else every warp works them out. The blocks of a pair each say the same."""
    return b.counter is not None or b.tiles.ctas > 1


def _of_those_with_work(b: Any, blocks: Any) -> Any:
    """Those that take work tiles of their own: blocks, or pairs of them."""
    return blocks // b.tiles.ctas if b.tiles.ctas > 1 else blocks


def _blocks(b: Any) -> Any:
    return _of_those_with_work(b, cute.arch.grid_dim()[0])


def _block(b: Any) -> Any:
    return _of_those_with_work(b, cute.arch.block_idx()[0])


@cute.jit
def _count(counter: cute.Tensor, last: cutlass.Int32) -> cutlass.Int32:
    """The next number of the counter, which starts again at 0 once ``last`` has been given out."""
    number = cutlass.Int32(0)
    if cute.arch.lane_idx() == 0:
        number = cute.arch.atomic_add(counter.iterator, cutlass.Int32(1))
        if number == last:
            counter[0] = cutlass.Int32(0)
    return cutlass.Int32(cute.arch.shuffle_sync(number, 0))


def claim(b: Any, before: Any = None) -> Any:
    """Number of the block's next work tile after ``before``, for the warp that announces them; past the last there is none."""
    if b.counter is not None:
        return _count(b.counter, b.work_tiles + _blocks(b) - 1)
    return cutlass.Int32(_block(b) if before is None else before + _blocks(b))


def say(b: Any, turn: Iteration, number: Any, meaning: Callable[[], Sequence[Any]]) -> None:
    """Let the other warps of the block know the number of their ``turn``-th work tile and the words that say what it means."""
    if not announced(b):
        return
    heard, said, words = b.rings["work_empty"], b.rings["work_full"], meaning()
    slot, parity = place(turn - ANNOUNCED, ANNOUNCED)
    cute.arch.mbarrier_wait(heard.pointer + slot, parity)
    with cute.arch.elect_one():
        for k, word in enumerate((number, *words)):
            b.announced[slot * WORDS + k] = cutlass.Int32(word)
        cute.arch.mbarrier_arrive(said.pointer + slot)


def _number(b: Any, turn: Iteration) -> Any:
    slot, parity = place(turn, ANNOUNCED)
    cute.arch.mbarrier_wait(b.rings["work_full"].pointer + slot, parity)
    return b.announced[slot * WORDS]


def hear(b: Any, turn: Iteration, count: int) -> tuple[Any, ...]:
    """The ``count`` words said of the ``turn``-th work tile, whose number is known; called once a turn by every warp."""
    slot, _ = place(turn, ANNOUNCED)
    words = tuple(b.announced[slot * WORDS + k] for k in range(1, 1 + count))
    cute.arch.sync_warp()
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive(b.rings["work_empty"].pointer + slot)
    return words


@cute.jit
def hear_all(b: cutlass.Constexpr, turn: cutlass.Constexpr, count: cutlass.Constexpr) -> None:
    """Hear of all work tiles and do nothing: a warp that is counted among those who listen."""
    number = first(b, turn)
    while number < b.work_tiles:
        hear(b, turn, count)
        number = following(b, turn, number)


def first(b: Any, turn: Iteration) -> Any:
    """Number of the block's first work tile."""
    return _number(b, turn) if announced(b) else claim(b)


def following(b: Any, turn: Iteration, number: Any) -> Any:
    """Number of the work tile after the ``turn``-th, which was ``number``; goes on to the next turn."""
    advance(turn)
    return _number(b, turn) if announced(b) else claim(b, number)
