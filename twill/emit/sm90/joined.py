"""Work tiles that run into one another: the first QK of the next flies beside the last PV of the one before, and while O is stored.

Between two work tiles a warpgroup would otherwise issue no MMA from its last PV on until O is stored, the next work tile is known and
its Q and K are there. That is time of the tensor cores: where they are not what bounds the loop, nothing is won by it, and the second
way into a work tile costs the loop a few instructions an iteration (2 % of the time at head dim 64, measured).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from twill.emit.expansion import Step
from twill.lower import Arrive, WaitOwn

if TYPE_CHECKING:
    from twill.emit.sm90.roles import HopperRole

__all__ = ["SECTIONS", "possible"]


def possible(role: HopperRole) -> bool:
    """Whether tensor cores bound the loop and work tiles can be joined.

    One iteration must be peeled off either end, each with one wait for the role's own MMAs, behind which the last iteration only gives
    back what it used.
    """
    e = role.expansion
    if role.request.busiest != "tensor" or not role.released() or not role.skips or role.role.stages != 2:
        return False
    _, end = _parted(e.epilogue)
    before, begin = _parted(e.prologue)
    return (
        bool(begin and end)
        and all(isinstance(s.instruction, Arrive) for s in end[1:])
        and not any(isinstance(s.instruction, WaitOwn) for s in begin[1:])
        and sum(role.is_mma(s) for s in before) == 1
    )


def _parted(steps: Sequence[Step]) -> tuple[Sequence[Step], Sequence[Step]]:
    """What comes before the first wait for the role's own MMAs, and that wait with what follows."""
    for k, step in enumerate(steps):
        if isinstance(step.instruction, WaitOwn):
            return steps[:k], steps[k:]
    return steps, ()


def _with_one_behind(steps: Sequence[Step]) -> Sequence[Step]:
    """The same with one more MMA in flight at the wait that they begin with."""
    wait, *rest = steps
    assert isinstance(wait.instruction, WaitOwn)
    return [replace(wait, instruction=replace(wait.instruction, pending=wait.instruction.pending + 1)), *rest]


def _signature(role: HopperRole, name: str, *rest: str, gives: str = "None") -> Iterator[str]:
    parameters = ["block", role.tiles[0], "i", *rest]
    given = ", ".join(f"{p}: cutlass.{'Int32' if p == 'number' else 'Constexpr'}" for p in parameters)
    yield "@cute.jit"
    yield f"def {role.family.name}_{name}("
    yield f"    {given},"
    yield f") -> {gives}:  # fmt: skip"


def _first(role: HopperRole) -> Iterator[str]:
    yield from _signature(role, "first", "turn")
    yield f'    """The first iteration of a work tile of {role.family.name} that begins by itself."""'
    yield f"    ring, work = block.rings, {role.tiles[0]}.work"
    yield "    tiles.begin(i)"
    yield from role.enter("work")
    yield "    if work.trips > 0:"
    yield from role.steps(role.expansion.prologue, "        ", "True")
    yield "        tiles.advance(i)"


def _last(role: HopperRole) -> Iterator[str]:
    yield from _signature(role, "last")
    yield f'    """The last iteration of a work tile of {role.family.name} that ends by itself."""'
    yield f"    ring, work = block.rings, {role.tiles[0]}.work"
    yield "    if work.trips > 0:"
    yield from role.steps(role.expansion.epilogue, "        ", "True")
    yield from role.finish()


def _join(role: HopperRole) -> Iterator[str]:
    tile = role.tiles[0]
    last, end = _parted(role.expansion.epilogue)
    first, rest = _parted(role.expansion.prologue)
    yield from _signature(role, "join", "turn", "coming")
    yield f'    """The last iteration of a work tile of {role.family.name} and the first of the next."""'
    yield "    ring, before = block.rings, tiles.here(i)"
    yield from role.steps(last, "    ", "True", cursor="before")
    yield "    tiles.begin(i)"
    yield from role.enter("coming")
    yield from role.steps(first, "    ", "True")
    yield from role.steps(_with_one_behind(end), "    ", "True", cursor="before")
    yield from role.finish()
    yield f"    tiles.take({tile}, coming)"
    yield from role.steps(rest, "    ", "True")
    yield "    tiles.advance(i)"


def _work(role: HopperRole) -> Iterator[str]:
    name, tile = role.family.name, role.tiles[0]
    yield from _signature(role, "work", "turn", "number", gives="cutlass.Int32")
    yield f'    """A work tile of {name} behind its first exponentials, and the first of the next, whose number it returns."""'
    yield f"    ring, work = block.rings, {tile}.work"
    yield from role.periods(1, "    ")
    yield from ("    " + line for line in role.q_is_free())
    yield "    number = tiles.following(block, turn, number)"
    yield f"    coming = tiles.coming({tile}, turn, number)"
    yield f"    if tiles.joins({tile}, coming):"
    yield f"        {name}_join(block, {tile}, i, turn, coming)"
    yield "    else:"
    yield f"        {name}_last(block, {tile}, i)"
    yield f"        tiles.take({tile}, coming)"
    yield "        if number < block.work_tiles:"
    yield f"            {name}_first(block, {tile}, i, turn)"
    yield "    return number"


def _walk(role: HopperRole) -> Iterator[str]:
    name, tile = role.family.name, role.tiles[0]
    yield from role.start()
    yield "    number = tiles.first(block, turn)"
    yield f"    tiles.take({tile}, tiles.coming({tile}, turn, number))"
    yield "    if number < block.work_tiles:"
    yield f"        {name}_first(block, {tile}, i, turn)"
    yield "    while number < block.work_tiles:"
    yield f"        number = {name}_work(block, {tile}, i, turn, number)"
    yield from role.leave()


SECTIONS: tuple[Callable[[HopperRole], Iterator[str]], ...] = (_first, _last, _join, _work, _walk)
"""What prints the functions of such a role, but for its period and what it passes over."""
