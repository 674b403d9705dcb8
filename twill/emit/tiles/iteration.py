"""Where a role stands in its loop: which iteration, and for every ring depth which slot and which parity that is.

Slot and parity are carried rather than divided out of a running number: a division by a depth that is no power of two, and the
uniform-register latencies behind it, would sit between a barrier and the MMA that waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cutlass
import cutlass.cute as cute

__all__ = ["Iteration", "advance", "begin", "here", "index_of", "place", "start", "start_counted"]


@dataclass(frozen=True, eq=False)
class Iteration:
    """An iteration ``offset`` after the one where the role stands. ``i - 1`` is the one before ``i``.

    ``state`` holds the number of the iteration within the work tile, then slot and parity for each of ``depths``; these two go on
    from tile to tile. With ``toggles`` a ring of two goes on by flipping bits: two instructions instead of a comparison and two choices.
    With ``divides`` it holds the number alone, which then goes on too: slot and parity are bits of it, as all depths are powers of two.
    """

    state: Any
    depths: tuple[int, ...]
    peeked: tuple[str, ...] = ()
    answers: Any = None
    offset: int = 0
    toggles: bool = False
    divides: bool = False

    def __add__(self, by: int) -> Iteration:
        return replace(self, offset=self.offset + by)

    def __sub__(self, by: int) -> Iteration:
        return self + -by


def start_counted() -> Iteration:
    """Turn 0 of the rings of one and two slots around the loop, in a single register instead of five."""
    made = Iteration(cute.make_rmem_tensor(1, cutlass.Int32), (), divides=True)
    made.state[0] = cutlass.Int32(0)
    return made


def start(depths: tuple[int, ...], peeked: tuple[str, ...] = (), toggles: bool = False) -> Iteration:
    """Iteration 0 of the first work tile, for rings of these depths; ``peeked`` names those that the role looks at ahead of its waits."""
    answers: Any = cute.make_rmem_tensor(len(peeked), cutlass.Int32) if peeked else None
    made = Iteration(cute.make_rmem_tensor(1 + 2 * len(depths), cutlass.Int32), depths, peeked, answers, toggles=toggles)
    for k in range(1 + 2 * len(depths)):
        made.state[k] = cutlass.Int32(0)
    for k in range(len(peeked)):
        answers[k] = cutlass.Int32(0)
    return made


def begin(i: Iteration) -> None:
    """Begin a work tile: its iterations count from 0 again, and nothing has been seen of its barriers."""
    i.state[0] = cutlass.Int32(0)
    for k in range(len(i.peeked)):
        i.answers[k] = cutlass.Int32(0)


def here(i: Iteration) -> Iteration:
    """The iteration at which the role stands, for use once it has gone on."""
    state = cute.make_rmem_tensor(1 + 2 * len(i.depths), cutlass.Int32)
    state.store(i.state.load())
    return Iteration(state, i.depths)


def index_of(i: Iteration) -> Any:
    """Number of the iteration within its tile."""
    return i.state[0] + i.offset


def place(i: Iteration, depth: int) -> tuple[Any, Any]:
    """Slot and parity of an iteration's completion in a ring of ``depth`` slots. Those before the first have parity 1, as a fresh
    mbarrier's preceding phase has."""
    if i.divides:
        number = index_of(i)
        return number & (depth - 1), number >> (depth.bit_length() - 1) & 1
    turns, ahead = divmod(i.offset, depth)
    at = 1 + 2 * i.depths.index(depth)
    slot, parity = i.state[at], i.state[at + 1]
    if depth == 1:
        return cutlass.Int32(0), parity ^ (turns & 1)
    if ahead and i.toggles and depth == 2:
        slot, parity = slot ^ 1, parity ^ slot
    elif ahead:
        moved = slot + ahead
        wraps = moved >= depth
        slot = cutlass.Int32(cutlass.select_(wraps, moved - depth, moved))
        parity = cutlass.Int32(cutlass.select_(wraps, parity ^ 1, parity))
    return slot, parity ^ (turns & 1)


def advance(i: Iteration, by: int = 1) -> None:
    """Go on by that many iterations."""
    there = i + by
    for k, depth in enumerate(i.depths):
        i.state[1 + 2 * k], i.state[2 + 2 * k] = place(there, depth)
    i.state[0] = i.state[0] + by
