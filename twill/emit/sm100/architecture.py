"""Blackwell, as the emitter needs to know it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from twill.check import CheckedSchedule
from twill.check.protocol import check_pair
from twill.emit.errors import EmitError
from twill.emit.expansion import Expansion
from twill.emit.families import Family
from twill.emit.forward import ForwardArchitecture
from twill.emit.launch import FRAME_BYTES
from twill.emit.plan import Plan, Ring
from twill.emit.request import AttentionForward
from twill.emit.sm100.roles import MMAS, BlackwellRole, handed
from twill.lower import Arrive, Barrier, Execute, Role, Wait, WarpProgram

__all__ = ["BLACKWELL", "BLACKWELL_ULTRA"]

FLOAT_BYTES = 4


class _Blackwell(ForwardArchitecture):
    name = "sm100"
    package = "twill.emit.sm100"
    machines = ("sm100",)
    rows = 128
    kinds = ("tma_load", "mma_qk", "row_max", "exp2", "row_sum", "rescale", "mma_pv")
    note = "No Blackwell GPU has run it: it is right under `twill emulate`."
    reads: Mapping[str, tuple[str, ...]] = {
        "exp2": ("row_max",),
        "row_sum": ("row_max",),
        "rescale": ("row_max",),
    }

    def refuse(self, request: AttentionForward, checked: CheckedSchedule, program: WarpProgram) -> None:
        d, dv = request.head_dim, request.head_dim_v
        if dv > d and all(b.name != "O_staging" for b in checked.schedule.graph.buffers):
            raise EmitError(f"head dim of V {dv} is larger than that of Q {d}: O is staged in the SMEM of Q", "use a smaller --tile")
        if request.ctas > 1 and request.columns_v % 32:
            raise EmitError(f"half of {request.columns_v} columns of V is no operand", "solve the graph with --set ctas=1")
        if request.ctas > 1 and not (report := check_pair(program, checked.schedule.graph)).ok:
            raise EmitError(f"the program of two blocks is not safe: {report.findings[0]}", "lower the schedule again, or use --set ctas=1")
        together = ("row_max", "exp2", "row_sum")
        for role in program.roles:
            kinds = {request.kinds[x.op] for x in role.body if isinstance(x, Execute)}
            if kinds & MMAS and kinds - MMAS:
                raise EmitError(f"role {role.name} issues MMAs and does other work beside", "solve it with the rule exposed-wait in force")
            if kinds & {*together, "rescale"} and role.warps != 4:
                raise EmitError(f"role {role.name} has {role.warps} warps; 128 rows take 4", "solve it with sub-tiles of 128 rows")
            _named_barriers_are_met(role, {b.name for b in program.barriers if b.kind == "named"})
        for subtile in range(request.subtiles):
            homes = {kind: _homes(request, program, kind, subtile) for kind in (*together, "rescale", "mma_qk", "mma_pv")}
            if len({h for kind in together for h in homes[kind]}) > 1:
                raise EmitError(
                    f"the softmax of sub-tile {subtile} is split between roles", "solve it with the rule register-tiles in force"
                )
            if homes["mma_qk"] != homes["mma_pv"]:
                raise EmitError(f"the MMAs of sub-tile {subtile} are issued by two roles", "solve it with fewer --groups")

    def refuse_expansion(self, request: AttentionForward, e: Expansion) -> None:
        """Anything: registers of which older iterations are read have copies."""

    def tile_arguments(self, request: AttentionForward) -> str:
        chunks = f"({request.chunks[0]},)" if len(request.chunks) == 1 else str(request.chunks)
        pair = f", ctas={request.ctas}" if request.ctas > 1 else ""
        return f", chunks={chunks}, poly_share={request.poly_share}{pair}"

    def storage(self, plan: Plan) -> Iterator[tuple[str, tuple[int, int, int]]]:
        """Barriers and announced work tiles in the first of the reserved SMEM, inverse row sums behind the program's slots."""
        capacity = int(plan.checked.machine.memory_size("smem"))
        frame = capacity - plan.checked.schedule.graph.reserved["smem"]
        yield "frame", (frame, FRAME_BYTES, 1)
        if handed(plan):
            end = max((s.offset + s.stride * s.stages for s in plan.program.storage if s.memory == "smem" and s.offset > frame), default=0)
            begin, stride = max(end, frame + FRAME_BYTES), FLOAT_BYTES * plan.request.rows
            if begin + stride * plan.request.subtiles > capacity:
                raise EmitError("no SMEM is left for row sums on their way to the role that stores O", "solve it with --max-copies 2")
            yield "totals", (begin, stride, plan.request.subtiles)

    def enter_arguments(self, plan: Plan) -> str:
        return f", allocator={plan.launch.queries}"

    def launch_arguments(self) -> tuple[str, ...]:
        """Without it the assembler does not know how many registers there are at first, and ignores what roles ask for."""
        return ("min_blocks_per_mp=1",)

    def at_last(self) -> Iterator[str]:
        yield "release"

    def ring(self, plan: Plan, b: Barrier) -> Ring:
        """Of a pair of blocks the leader waits for what both do, and what its MMAs have done both hear."""
        if plan.request.ctas == 1:
            return super().ring(plan, b)
        issuer = _issuer(plan)
        if any(isinstance(x, Wait) and x.barrier == b.name for x in issuer.body):
            return _gathered(Ring(b.slots, b.arrivals, b.tx_bytes), plan.request.ctas)
        commits = any(isinstance(x, Arrive) and x.barrier == b.name for x in issuer.body)
        return Ring(b.slots, b.arrivals, b.tx_bytes, "spread" if commits else "")

    def leads(self, plan: Plan, role: str) -> bool:
        return bool(plan.request.ctas > 1 and role == _issuer(plan).name)

    def parting(self, plan: Plan) -> Iterator[str]:
        if plan.request.ctas > 1:
            yield "part"

    def rings(self, plan: Plan) -> Iterator[tuple[str, Ring]]:
        for name, ring in self._around(plan):
            if plan.request.ctas > 1 and name in ("Q_full", "O_empty"):
                yield name, _gathered(ring, plan.request.ctas)
            elif plan.request.ctas > 1 and (name == "O_full" or (name == "Q_empty" and plan.launch.o_offset is not None)):
                yield name, replace(ring, pair="spread")
            else:
                yield name, ring

    def _around(self, plan: Plan) -> Iterator[tuple[str, Ring]]:
        q, roles = plan.request, plan.program.roles
        finishing = sum(any(q.kinds[x.op] == "rescale" for x in r.body if isinstance(x, Execute)) for r in roles)
        yield "Q_full", Ring(q.subtiles, 1, q.rows * q.columns * 2)
        yield "Q_empty", Ring(q.subtiles, 4 if plan.launch.o_offset is None else 1)
        yield "O_full", Ring(q.subtiles, 1)
        yield "O_empty", Ring(q.subtiles, 4)
        if handed(plan):
            yield "totals_full", Ring(q.subtiles, 4)
            yield "totals_empty", Ring(q.subtiles, 4)
        yield "tmem_empty", Ring(1, 4 * finishing)

    def text(self, plan: Plan, family: Family) -> Iterator[str]:
        yield from BlackwellRole(plan, family).text()


def _issuer(plan: Plan) -> Role:
    """The role that issues MMAs."""
    kinds = plan.request.kinds
    return next(r for r in plan.program.roles if any(kinds[x.op] in MMAS for x in r.body if isinstance(x, Execute)))


def _gathered(ring: Ring, blocks: int) -> Ring:
    """A load arrives once, for all blocks; warps arrive from each."""
    arrivals = ring.arrivals if ring.tx_bytes else ring.arrivals * blocks
    return Ring(ring.slots, arrivals, ring.tx_bytes * blocks, "gathered")


def _homes(request: AttentionForward, program: WarpProgram, kind: str, subtile: int) -> set[str]:
    return {
        role.name
        for role in program.roles
        for x in role.body
        if isinstance(x, Execute) and request.kinds[x.op] == kind and request.subtile.get(x.op) == subtile
    }


def _named_barriers_are_met(role: Role, named: set[str]) -> None:
    """Who waits at a named barrier arrives there just before: the hardware does both in one instruction."""
    waited = {x.barrier for x in role.body if isinstance(x, Wait)} & named
    for k, x in enumerate(role.body):
        if isinstance(x, Arrive) and x.barrier in waited:
            following = role.body[k + 1 : k + 2]
            if not (following and isinstance(following[0], Wait) and following[0].barrier == x.barrier and following[0].stage == x.stage):
                raise EmitError(f"role {role.name} arrives at {x.barrier} long before it waits there", "lower the schedule again")


class _BlackwellUltra(_Blackwell):
    """The same roles; the row maximum comes out of the load of tensor memory."""

    name = "sm103"
    package = "twill.emit.sm103"
    machines = ("sm103",)


BLACKWELL, BLACKWELL_ULTRA = _Blackwell(), _BlackwellUltra()
