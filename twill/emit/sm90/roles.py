"""Roles of a Hopper kernel: a consumer warpgroup issues its MMAs itself, keeps S, P and O in registers, and stores its rows of O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from twill.emit.expansion import Step
from twill.emit.roles import KEEP_LOG2, RolePrinter, aged, load_call
from twill.emit.sm90 import joined
from twill.lower import Arrive, Execute

__all__ = ["HopperRole"]

CALLS = {
    "mma_qk": "mma_qk",
    "row_max": "row_max",
    "exp2": "exp2",
    "row_sum": "row_sum",
    "convert": "convert",
    "rescale": "rescale",
    "mma_pv": "mma_pv",
}
AHEAD = {"exp2": "exp2_ahead", "row_max": "row_max_behind"}
AGED = {
    "row_max": (("scores", "mma_qk"),),
    "exp2": (("scores", "mma_qk"), ("factors", "row_max")),
    "row_sum": (("scores", "mma_qk"), ("factors", "row_max")),
    "convert": (("scores", "mma_qk"),),
    "rescale": (("factors", "row_max"),),
}
"""Which register copies an op reads: (argument, kind of the op that makes them)."""


class HopperRole(RolePrinter):
    """Prints the functions of one family of roles for Hopper."""

    @property
    def skips(self) -> bool:
        return len(self.tiles) == 1

    def fragments(self) -> Iterator[tuple[str, str]]:
        for s in self.family.subtiles:
            copies = self.copies(s, (("scores", "mma_qk"), ("factors", "row_max")))
            keep = f", keep={KEEP_LOG2}" if self.request.conditional else ""
            yield self.tile(s), f"tiles.consumer(block, subtile={self.place(s)}{keep}{copies})"

    def begin(self) -> Iterator[str]:
        whole = ", whole=True" if len(self.tiles) > 1 else ""
        for t in self.tiles:
            yield f"    {t} = tiles.begin_work({t}, work{whole})"
        if len(self.tiles) == 1:
            yield "    work = tile.work"
        yield from self.enter("work")

    def enter(self, work: str) -> Iterator[str]:
        """From the wait for Q up to the first iteration in which a row sees a key."""
        for t in self.tiles:
            yield f'    tiles.wait_slot(ring["Q_full"], {t}.subtile, turn)'
        if self.skips:
            yield f"    for _ in cutlass.range(0, {work}.skipped, unroll=1):"
            yield f"        {self.family.name}_skip(ring, i)"

    def finish(self) -> Iterator[str]:
        """Store O: through SMEM where there is room for it, else from registers."""
        for t in self.tiles:
            if self.o_is_q:
                yield f"    tiles.finish_directly({t})"
            else:
                yield f"    tiles.finish({t}, barrier_id={self.first_barrier} + {t}.subtile)"

    @property
    def sections(self) -> Sequence[Callable[[], Iterator[str]]]:
        if not joined.possible(self):
            return super().sections
        return (self.skip, self.period, *(partial(print_it, self) for print_it in joined.SECTIONS))

    def q_is_free(self) -> list[str]:
        return [f'tiles.arrive_slot(ring["Q_empty"], {t}.subtile)' for t in self.tiles]

    def released(self) -> Sequence[str]:
        """Q, so that the next can be loaded while the last PV runs: if nothing multiplies it any more."""
        e = self.expansion
        last = {self.request.kinds[s.instruction.op] for s in e.epilogue if isinstance(s.instruction, Execute)}
        return self.q_is_free() if last and "mma_qk" not in last and not e.short else ()

    def end(self) -> Iterator[str]:
        if not self.released():
            yield from (f"    {line}" for line in self.q_is_free())
        yield from self.finish()

    def is_mma(self, step: Step) -> bool:
        return isinstance(step.instruction, Execute) and self.request.kinds[step.instruction.op].startswith("mma")

    def leave(self) -> Iterator[str]:
        for t in self.tiles:
            yield f"    tiles.leave({t})"

    def execute(self, execute: Execute, step: Step, at: str, after: Sequence[Arrive], masked: str) -> str:
        op, request = execute.op, self.request
        kind = request.kinds[op]
        if kind == "tma_load":
            return load_call(request, op, at, after)
        arguments = [self.tile(request.subtile[op]), at]
        ahead = request.ahead and kind in ("row_max", "exp2")
        if kind == "row_max" or ahead:
            arguments.append(f"masked={masked}")
        if not ahead:
            arguments += aged(request, step, AGED.get(kind, ()))
        call = AHEAD[kind] if ahead else "rescale_if_grown" if kind == "rescale" and request.conditional else CALLS[kind]
        return f"tiles.{call}({', '.join(arguments)})"
