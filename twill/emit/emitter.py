"""`emit`: from a checked schedule and its program to the text of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twill.check import CheckedSchedule
from twill.emit.errors import EmitError
from twill.emit.expansion import expand
from twill.emit.families import families
from twill.emit.plan import Architecture, Plan
from twill.emit.printer import text
from twill.emit.rotation import rotated
from twill.emit.sm90.architecture import HOPPER
from twill.emit.sm90.backward.architecture import HOPPER_BACKWARD
from twill.emit.sm100.architecture import BLACKWELL, BLACKWELL_ULTRA
from twill.lower import WarpProgram

__all__ = ["ARCHITECTURES", "emit", "request_of"]

ARCHITECTURES: tuple[Architecture, ...] = (HOPPER, HOPPER_BACKWARD, BLACKWELL, BLACKWELL_ULTRA)
"""All loops and machines for which kernels are emitted."""


def request_of(checked: CheckedSchedule, program: WarpProgram) -> tuple[Architecture, Any]:
    """What kernel a schedule asks for.

    Raises
    ------
    EmitError : anything that no kernel of ours can honour, with its reason.
    """
    graph, machine = checked.schedule.graph, checked.machine
    arch = next((a for a in ARCHITECTURES if machine.arch in a.machines and a.wording.graph == graph.name), None)
    if arch is None:
        known = ", ".join(f"{a.wording.graph} for {m}" for a in ARCHITECTURES for m in a.machines)
        raise EmitError(f"no emitter for graph {graph.name} on {machine.name}", f"what can be emitted so far is {known}")
    if program.schedule_hash != checked.schedule.hash:
        raise EmitError(
            f"the program is of schedule {program.schedule_hash[:12]}, not of {checked.schedule.hash[:12]}", "lower the schedule again"
        )
    request = arch.request(checked, program)
    arch.refuse(request, checked, program)
    return arch, request


def emit(checked: CheckedSchedule, program: WarpProgram, command: str) -> str:
    """The kernel as a Python file for CuTe DSL; ``command`` is what its header says made it. Same input, same bytes.

    Raises
    ------
    EmitError : the schedule asks for something that no kernel of ours does.
    """
    arch, request = request_of(checked, program)
    mmas = frozenset(v for v, kind in request.kinds.items() if kind.startswith("mma_"))
    reads = _reads(arch, request)
    expansions = {role.name: expand(rotated(role, mmas), reads) for role in program.roles}
    for e in expansions.values():
        arch.refuse_expansion(request, e)
    seats = arch.place(request, program, checked)
    return text(Plan(arch, checked, program, request, families(request, expansions, seats.seats), seats, command))


def _reads(arch: Architecture, request: Any) -> Mapping[str, frozenset[str]]:
    """For every op the ops of its sub-tile whose register results it reads."""

    def same(v: str, kind: str) -> bool:
        return bool(request.kinds[v] == kind)

    return {
        v: frozenset(
            u for u in request.kinds if request.subtile.get(u) == request.subtile.get(v) and any(same(u, k) for k in arch.reads[kind])
        )
        for v, kind in request.kinds.items()
        if kind in arch.reads
    }
