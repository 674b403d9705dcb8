"""Hopper, as the emitter of the backward needs to know it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from twill.check import CheckedSchedule
from twill.emit.backward.request import AttentionBackward, attention_backward
from twill.emit.backward.wording import BACKWARD
from twill.emit.errors import EmitError
from twill.emit.expansion import Expansion
from twill.emit.families import Family
from twill.emit.launch import Launch, launch
from twill.emit.plan import Architecture, Named, Plan, Ring
from twill.emit.sm90.backward.roles import HopperBackwardRole, readers_of_keys, readers_of_values, released_by_own_reduction
from twill.lower import Barrier, Execute, WarpProgram

__all__ = ["HOPPER_BACKWARD"]

STATISTIC_BYTES = 4
MOST_PARTS = 4


class _HopperBackward(Architecture):
    wording = BACKWARD
    name = "sm90"
    package = "twill.emit.sm90.backward"
    machines = ("sm90",)
    rows = 64
    kinds = (
        "tma_load", "mma_qk", "mma_dp", "exp2", "convert", "dscore", "store_ds", "mma_dv", "mma_dk", "mma_dq", "stage_dq", "reduce_add",
    )  # fmt: skip
    # scores and their exponentials share registers, so do dP and dS
    reads = {  # noqa: RUF012
        "exp2": ("mma_qk",),
        "convert": ("mma_qk", "exp2"),
        "dscore": ("mma_qk", "exp2", "mma_dp"),
        "store_ds": ("dscore",),
        "mma_dv": ("convert",),
        "mma_dk": ("dscore",),
        "stage_dq": ("mma_dq",),
        "reduce_add": ("stage_dq",),
    }

    def request(self, checked: CheckedSchedule, program: WarpProgram) -> AttentionBackward:
        return attention_backward(checked, self.name, self.kinds)

    def place(self, request: AttentionBackward, program: WarpProgram, checked: CheckedSchedule) -> Launch:
        return launch(program, checked.machine, 1 + sum(r.warps == 4 for r in program.roles), None, len(self.wording.helpers))

    def refuse(self, request: AttentionBackward, checked: CheckedSchedule, program: WarpProgram) -> None:
        if request.ds_from_bf16:
            raise EmitError("dS of the converted P cannot be emitted yet", "solve the graph with --set ds_from=fp32")
        if not request.keys_are_rows:
            raise EmitError("P and dS through SMEM cannot be emitted yet", "solve the graph for a head dim up to 128")
        if request.divides == "columns":
            raise EmitError("parts of dQ that divide its columns cannot be emitted yet", "solve the graph with --set dq_parts=1")
        if len(released_by_own_reduction(program, request)) != request.parts:
            text = "a part of dQ is staged by one role and added by another: nobody could say when that is over"
            raise EmitError(text, "solve it with --registers 216 or another limit, or other --groups")
        if request.parts > MOST_PARTS:
            raise EmitError(f"dQ has {request.parts} parts; up to {MOST_PARTS} are counted", "solve it with fewer --set dq_parts")
        for role in program.roles:
            of = {
                k: {request.subtile[x.op] for x in role.body if isinstance(x, Execute) and request.kinds[x.op] == k}
                for k in ("mma_dp", "mma_dv")
            }
            if of["mma_dp"] != of["mma_dv"]:
                text = f"role {role.name} makes dP and dV of different sub-tiles: the place of V would be taken while others read it"
                raise EmitError(text, "solve it with other --groups")
            kinds = {request.kinds[x.op] for x in role.body if isinstance(x, Execute)}
            if kinds != {"tma_load"} and role.warps != 4:
                raise EmitError(f"role {role.name} has {role.warps} warps; its operations take 4", "solve it with --with local-registers")
        for subtile in range(request.subtiles):
            homes = {r.name for r in program.roles for x in r.body if isinstance(x, Execute) and request.subtile.get(x.op) == subtile}
            if len(homes) > 1:
                raise EmitError(
                    f"sub-tile {subtile} is split between roles {', '.join(sorted(homes))}", "solve it with --with local-registers"
                )
        for b in program.barriers:
            if b.kind != "mbarrier":
                raise EmitError(f"barrier {b.name} is a named one, as for rows handed over", "solve it with --with local-registers")

    def refuse_expansion(self, request: AttentionBackward, e: Expansion) -> None:
        """There is one copy of every fragment: results are read before the op is executed again."""
        for op in request.kinds:
            if e.age(op):
                raise EmitError(
                    f"role {e.role.name} executes {op} again before its last result is used: two copies are not emitted yet",
                    "solve it with --max-copies 2 or a smaller --registers",
                )

    def barriers(self, plan: Plan) -> Sequence[Barrier]:
        own = released_by_own_reduction(plan.program, plan.request)
        return [b for b in plan.program.barriers if b.name not in own]

    def storage(self, plan: Plan) -> Iterator[tuple[str, tuple[int, int, int]]]:
        """LSE and dPsum of a tile of queries, with as many slots as Q and dO, behind the program's buffers."""
        q, buffers = plan.request, {s.name: s for s in plan.program.storage if s.memory == "smem"}
        end = max(s.offset + s.stride * s.stages for s in buffers.values())
        stride = STATISTIC_BYTES * q.queries
        yield "LSE", (end, stride, buffers["Q"].stages)
        yield "dPsum", (end + stride * buffers["Q"].stages, stride, buffers["dO"].stages)

    def rings(self, plan: Plan) -> Iterator[tuple[str, Ring | Named]]:
        q = plan.request
        of_keys, of_values = (sum(r.warps for r in f(plan.program, q)) for f in (readers_of_keys, readers_of_values))
        yield "keys_full", Ring(1, 1, q.keys * q.columns * 2)
        yield "keys_empty", Ring(1, of_keys)
        yield "values_full", Ring(1, 1, q.keys * q.columns_v * 2)
        yield "values_empty", Ring(1, of_values)
        holders = [r for r in plan.program.roles if r.warps == 4]
        for n, role in enumerate(holders):
            yield role.name, Named(plan.launch.first_barrier + n, 32 * role.warps)

    def text(self, plan: Plan, family: Family) -> Iterator[str]:
        yield from HopperBackwardRole(plan, family).text()


HOPPER_BACKWARD = _HopperBackward()
