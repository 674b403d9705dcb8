"""`emit`: from a checked schedule and its program to the text of a kernel."""

from __future__ import annotations

from collections.abc import Mapping

from twill.check import CheckedSchedule
from twill.emit.errors import EmitError
from twill.emit.expansion import Expansion, expand
from twill.emit.families import families
from twill.emit.launch import launch
from twill.emit.request import AttentionForward, attention_forward
from twill.emit.rotation import rotated
from twill.emit.sm90.printer import Plan, text
from twill.lower import Execute, WaitOwn, WarpProgram

__all__ = ["emit"]

READS = {
    "row_max": ("mma_qk",),
    "exp2": ("mma_qk", "row_max"),
    "row_sum": ("mma_qk", "row_max"),
    "convert": ("mma_qk",),
    "rescale": ("row_max",),
    "mma_pv": ("convert",),
}
"""Kinds of ops whose register results an op reads; scores and their exponentials share registers."""


def emit(checked: CheckedSchedule, program: WarpProgram, command: str) -> str:
    """The kernel as a Python file for CuTe DSL; ``command`` is what its header says made it. Same input, same bytes.

    Raises
    ------
    EmitError : the schedule asks for something that no kernel of ours does.
    """
    request = attention_forward(checked, program)
    mmas = frozenset(v for v, kind in request.kinds.items() if kind.startswith("mma_"))
    reads = _reads(request)
    expansions = {role.name: expand(rotated(role, mmas), reads) for role in program.roles}
    for e in expansions.values():
        _scores_stay(request, e, mmas)
        _one_p(request, e)
    seats = launch(program, checked.machine, request.subtiles, 64 * request.subtiles * request.columns_v * 2)
    return text(Plan(checked, program, request, families(request, expansions, seats.seats), seats, command))


def _reads(request: AttentionForward) -> Mapping[str, frozenset[str]]:
    def same(v: str, kind: str) -> bool:
        return request.kinds[v] == kind

    return {
        v: frozenset(u for u in request.kinds if request.subtile.get(u) == request.subtile.get(v) and any(same(u, k) for k in READS[kind]))
        for v, kind in request.kinds.items()
        if kind in READS
    }


def _one_p(request: AttentionForward, e: Expansion) -> None:
    """There is one copy of P: what is converted is multiplied before the next is converted."""
    for op, kind in request.kinds.items():
        if kind == "convert" and e.age(op):
            raise EmitError(
                f"role {e.role.name} executes {op} again before its last result is used: two copies of P are not emitted yet",
                "solve it with --max-copies 2 or a smaller --registers",
            )


def _scores_stay(request: AttentionForward, e: Expansion, mmas: frozenset[str]) -> None:
    """Older scores are moved aside when the next MMA is issued, so the MMA that made them must be over by then."""
    for steps in (e.prologue + e.steady + e.steady, *e.short):
        running: list[str] = []
        for step in steps:
            x = step.instruction
            if isinstance(x, WaitOwn):
                running = running[len(running) - x.pending :] if x.pending else []
            elif isinstance(x, Execute) and x.op in mmas:
                if request.kinds[x.op] == "mma_qk" and x.op in running:
                    raise EmitError(
                        f"role {e.role.name} issues {x.op} again before the scores of the last one are there",
                        "solve it with --max-copies 2 or a smaller --registers",
                    )
                running.append(x.op)
