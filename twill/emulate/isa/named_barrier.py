"""Named barriers of a block. PTX ISA 9.7.13.1 (bar, barrier). A warp counts with all its 32 threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twill.emulate.isa.emitter import Emitter
from twill.emulate.isa.registry import rule, runtime
from twill.emulate.ptx.syntax import Instruction

if TYPE_CHECKING:
    from twill.emulate.machine.warp import Warp

__all__: list[str] = []


@rule(r"(bar|barrier)(\.cta)?\.sync(\.aligned)?", waits=True)
def _sync(e: Emitter, x: Instruction) -> None:
    count = e.scalar(str(e.get(x.operands[1], "u32"))) if len(x.operands) > 1 else None
    e.line(f"if not bar_sync(w, {x.line}, {e.scalar(str(e.get(x.operands[0], 'u32')))}, {count}): return -2")


@rule(r"(bar|barrier)(\.cta)?\.arrive(\.aligned)?")
def _arrive(e: Emitter, x: Instruction) -> None:
    number, count = (e.scalar(str(e.get(o, "u32"))) for o in x.operands)
    e.line(f"bar_arrive(w, {x.line}, {number}, {count})")


def _count(w: Warp, count: int | None) -> int:
    return 32 * len(w.block.warps) if count is None else int(count)


@runtime
def bar_arrive(w: Warp, line: int, number: int, count: int | None) -> int:
    """Arrive without waiting; gives the generation that the arrival belongs to."""
    barrier = w.block.named_barrier(int(number))
    if not 0 <= int(number) < 16:
        w.find("barrier", line, f"named barrier {int(number)} does not exist: a block has 16")
    generation = barrier.generation
    trouble = barrier.arrive(32, _count(w, count), w.release(), w.name)
    if trouble is not None:
        w.find("barrier", line, f"named barrier {int(number)}: {trouble}", key=trouble[:12])
    return generation


@runtime
def bar_sync(w: Warp, line: int, number: int, count: int | None) -> bool:
    """Arrive once, then wait until the generation is over."""
    barrier = w.block.named_barrier(int(number))
    if w.token is None:
        w.token = (line, bar_arrive(w, line, number, count))
    if barrier.generation == w.token[1]:
        name = w.block.cluster.names.named_barrier(int(number))
        w.wait(barrier, f"PTX line {line}: waits at {name}: {barrier}")
        return False
    w.token = None
    w.acquire(barrier.done, line)
    return True
