"""Hopper, as the emitter needs to know it."""

from __future__ import annotations

from collections.abc import Iterator

from twill.check import CheckedSchedule
from twill.emit.errors import EmitError
from twill.emit.expansion import Expansion
from twill.emit.families import Family
from twill.emit.forward import ForwardArchitecture
from twill.emit.plan import Plan, Ring
from twill.emit.request import AttentionForward
from twill.emit.sm90.roles import HopperRole
from twill.lower import Execute, WaitOwn, WarpProgram

__all__ = ["HOPPER"]


class _Hopper(ForwardArchitecture):
    name = "sm90"
    package = "twill.emit.sm90"
    machines = ("sm90",)
    rows = 64
    kinds = ("tma_load", "mma_qk", "row_max", "exp2", "row_sum", "convert", "rescale", "mma_pv")
    policies = ("always", "old_max", "conditional")
    # scores and their exponentials share registers
    reads = {  # noqa: RUF012
        "row_max": ("mma_qk",),
        "exp2": ("mma_qk", "row_max"),
        "row_sum": ("mma_qk", "row_max"),
        "convert": ("mma_qk",),
        "rescale": ("row_max",),
        "mma_pv": ("convert",),
    }

    def refuse(self, request: AttentionForward, checked: CheckedSchedule, program: WarpProgram) -> None:
        if request.poly_share:
            raise EmitError("exponentials by polynomials are not emitted for sm90 yet", "solve the graph with --set poly_share=0")
        home: dict[int, str] = {}
        for role in program.roles:
            for x in role.body:
                if not isinstance(x, Execute):
                    continue
                subtile = request.subtile.get(x.op)
                if subtile is not None and home.setdefault(subtile, role.name) != role.name:
                    raise EmitError(
                        f"ops of sub-tile {subtile} are in roles {home[subtile]} and {role.name}: handing rows over is not emitted yet",
                        "solve it with --with local-registers",
                    )
                if subtile is not None and role.warps != 4:
                    raise EmitError(f"role {role.name} has {role.warps} warps; an MMA takes 4", "solve it with sub-tiles of 64 rows")
        for b in program.barriers:
            if b.kind != "mbarrier":
                raise EmitError(f"barrier {b.name} is a named one, as for rows handed over", "solve it with --with local-registers")

    def refuse_expansion(self, request: AttentionForward, e: Expansion) -> None:
        self._maxima_follow(request, e)
        self._scores_stay(request, e)
        self._one_p(request, e)

    def _maxima_follow(self, request: AttentionForward, e: Expansion) -> None:
        """Maxima of exponentials are those of the latest: a mask is laid on by these, and what is wrong with them mended in their place."""
        if not request.ahead:
            return
        body = [(request.kinds[x.op], request.subtile.get(x.op), x.stage) for x in e.role.body if isinstance(x, Execute)]
        for at, (kind, subtile, stage) in enumerate(body):
            if kind == "row_max" and ("exp2", subtile, stage) not in body[:at]:
                raise EmitError(
                    f"role {e.role.name} takes the maxima of exponentials of another period", "solve it with --set rescale=conditional"
                )
        reads = [s for s in e.steps if isinstance(s.instruction, Execute)]
        if any(age > 0 and request.kinds[v] in ("row_max", "mma_qk") for s in reads for v, age in s.ages.items()):
            raise EmitError(
                f"role {e.role.name} reads scores or factors of an older iteration, which exponentials ahead of maxima do not keep",
                "solve it with --max-copies 1 or with --set rescale=conditional",
            )

    def _one_p(self, request: AttentionForward, e: Expansion) -> None:
        """There is one copy of P: what is converted is multiplied before the next is converted."""
        for op, kind in request.kinds.items():
            if kind == "convert" and e.age(op):
                raise EmitError(
                    f"role {e.role.name} executes {op} again before its last result is used: two copies of P are not emitted yet",
                    "solve it with --max-copies 2 or a smaller --registers",
                )

    def _scores_stay(self, request: AttentionForward, e: Expansion) -> None:
        """Older scores are moved aside when the next MMA is issued, so the MMA that made them must be over by then."""
        for steps in (e.prologue + e.steady + e.steady, *e.short):
            running: list[str] = []
            for step in steps:
                x = step.instruction
                if isinstance(x, WaitOwn):
                    running = running[len(running) - x.pending :] if x.pending else []
                elif isinstance(x, Execute) and request.kinds[x.op].startswith("mma_"):
                    if request.kinds[x.op] == "mma_qk" and x.op in running:
                        raise EmitError(
                            f"role {e.role.name} issues {x.op} again before the scores of the last one are there",
                            "solve it with --max-copies 2 or a smaller --registers",
                        )
                    running.append(x.op)

    def stores_registers(self, plan: Plan) -> bool:
        return plan.launch.o_offset is None

    def rings(self, plan: Plan) -> Iterator[tuple[str, Ring]]:
        q = plan.request
        yield "Q_full", Ring(q.subtiles, 1, q.rows * q.columns * 2)
        yield "Q_empty", Ring(q.subtiles, 4)

    def text(self, plan: Plan, family: Family) -> Iterator[str]:
        yield from HopperRole(plan, family).text()


HOPPER = _Hopper()
