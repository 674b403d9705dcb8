"""Roles of a Blackwell kernel: one warp issues the MMAs of all sub-tiles; S, P and O are in tensor memory; the role that rescales O
stores it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from twill.emit.errors import EmitError
from twill.emit.expansion import Step
from twill.emit.families import Family
from twill.emit.plan import Plan
from twill.emit.roles import KEEP_LOG2, RolePrinter, aged, load_call
from twill.lower import Arrive, Execute, Wait

__all__ = ["BlackwellRole", "handed"]

MMAS = frozenset({"mma_qk", "mma_pv"})
MAKER = (("age", "row_max"),)
"""Scores, exponentials and factors are as old as the row maximum that they came with."""


def handed(plan: Plan) -> tuple[int, ...]:
    """Sub-tiles whose row sums are in one role and whose O is stored by another."""
    kinds, home = plan.request.kinds, plan.program.roles

    def role_of(kind: str, subtile: int) -> str:
        for role in home:
            for x in role.body:
                if isinstance(x, Execute) and kinds[x.op] == kind and plan.request.subtile.get(x.op) == subtile:
                    return role.name
        raise EmitError(f"no role executes the {kind} of sub-tile {subtile}", "lower the schedule again")

    return tuple(s for s in range(plan.request.subtiles) if role_of("row_sum", s) != role_of("rescale", s))


class BlackwellRole(RolePrinter):
    """Prints the functions of one family of roles for Blackwell."""

    def __init__(self, plan: Plan, family: Family) -> None:
        super().__init__(plan, family)
        self.handed = handed(plan)
        self.named = {b.name for b in plan.program.barriers if b.kind == "named"}
        self.waits_for = {x.barrier for x in self.role.body if isinstance(x, Wait)}
        self.issues = bool(self.executes & MMAS)

    @property
    def looks_ahead(self) -> bool:
        return False

    def fragments(self) -> Iterator[tuple[str, str]]:
        for s in self.family.subtiles:
            if self.issues:
                yield self.tile(s), f"tiles.issuer(block, subtile={self.place(s)})"
            else:
                yield self.tile(s), f"tiles.rows(block, subtile={self.place(s)}{self.copies(s, (('copies', 'row_max'),))})"

    def begin(self) -> Iterator[str]:
        for t in self.tiles:
            if self.issues:
                yield f'    tiles.wait_slot(ring["Q_full"], {t}.subtile, turn)'
            else:
                yield f"    {t} = tiles.begin_work({t}, work)"
        if self.masking and len(self.tiles) == 1:
            yield "    work = tile.work"

    def end(self) -> Iterator[str]:
        if self.issues and not self.role.stages - 1:
            yield from ("    " + line for line in self.closing(())[0])
        if "row_sum" in self.executes:
            for s in self.family.subtiles:
                if s in self.handed:
                    yield f"    tiles.total({self.tile(s)}, turn)"
        if "rescale" in self.executes:
            for s in self.family.subtiles:
                stores = f", stores={len(self.tiles)}" if len(self.tiles) > 1 else ""
                barrier = f"barrier_id={self.first_barrier} + {self.tile(s)}.subtile"
                yield f"    tiles.finish({self.tile(s)}, turn, {barrier}, handed={s in self.handed}{stores})"
                if self.o_is_q:
                    yield f'    tiles.arrive_slot(ring["Q_empty"], {self.tile(s)}.subtile)'

    def closing(self, steps: Sequence[Step]) -> tuple[list[str], dict[int, list[str]]]:
        """The last MMA of a sub-tile that reads Q is followed by the release of Q, the last that writes O by the news that it is there."""
        before: list[str] = []
        behind: dict[int, list[str]] = {}
        if not self.issues:
            return before, behind
        for ring, kind in (("Q_empty", "mma_qk"), ("O_full", "mma_pv")):
            if ring == "Q_empty" and self.o_is_q:
                continue
            for s in self.family.subtiles:
                lines = [f'tiles.commit_slot(ring["{ring}"], {self.tile(s)}.subtile)']
                if ring == "O_full" and not steps:
                    # without iterations nothing else holds this warp back from the news of one work tile after another
                    lines.insert(0, f'tiles.wait_slot(ring["O_empty"], {self.tile(s)}.subtile, turn - 1)')
                places = [k for k, step in enumerate(steps) if self._is(step, kind, s)]
                (behind.setdefault(_behind_arrivals(steps, places[-1]), []) if places else before).extend(lines)
        return before, behind

    def _is(self, step: Step, kind: str, subtile: int) -> bool:
        x = step.instruction
        return isinstance(x, Execute) and self.request.kinds[x.op] == kind and self.request.subtile.get(x.op) == subtile

    def leave(self) -> Iterator[str]:
        if "rescale" in self.executes:
            yield f"    tiles.leave({', '.join(self.tiles)})"

    def wait(self, x: Wait, at: str, call: str) -> str:
        if x.barrier in self.named:
            return f'tiles.meet(ring["{x.barrier}"], {at})'
        return super().wait(x, at, call)

    def arrive(self, x: Arrive, at: str) -> str | None:
        if x.when == "after":
            return f'tiles.commit(ring["{x.barrier}"], {at})' if self.issues else None
        if x.barrier in self.named:
            return None if x.barrier in self.waits_for else f'tiles.arrive_named(ring["{x.barrier}"], {at})'
        return super().arrive(x, at)

    def execute(self, execute: Execute, step: Step, at: str, after: Sequence[Arrive], masked: str) -> str:
        op, request = execute.op, self.request
        kind = request.kinds[op]
        if kind == "tma_load":
            return load_call(request, op, at, after)
        arguments = [self.tile(request.subtile[op]), at]
        if op in request.chunk and len(request.chunks) > 1:
            arguments.append(f"chunk={request.chunk[op]}")
        if kind == "row_max":
            arguments.append(f"masked={masked}")
            if request.conditional:
                arguments.append(f"keep={KEEP_LOG2}")
        if kind in ("exp2", "row_sum", "rescale"):
            arguments += aged(request, step, MAKER)
        call = "rescale_if_grown" if kind == "rescale" and request.conditional else kind
        return f"tiles.{call}({', '.join(arguments)})"


def _behind_arrivals(steps: Sequence[Step], k: int) -> int:
    """The last of the arrivals at once behind a step, or the step itself."""
    while k + 1 < len(steps) and isinstance(steps[k + 1].instruction, Arrive):
        k += 1
    return k
