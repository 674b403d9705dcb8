"""A lowered schedule as an order, to be simulated like one written by hand.

What a WarpProgram says of waits for a role's own MMAs is kept; waits of other roles are the dependences of the graph, which the
simulation keeps anyway. Roles that only load are left out: loads are taken to be ahead, as they are while the rings are full.
"""

from __future__ import annotations

from twill.check.protocol.order import Order, OrderGraph, OrderRole, Step
from twill.errors import UsageError
from twill.lower.program import Execute, Role, WaitOwn, WarpProgram
from twill.model.schedule import Schedule

__all__ = ["lowered_order"]

SETTINGS = ("rescale", "rescale_rate", "chunks", "poly_share", "ctas")


def lowered_order(schedule: Schedule, program: WarpProgram) -> Order:
    """The order in which the roles of ``program`` issue the ops of ``schedule``.

    Raises
    ------
    UsageError : a graph that is not attention forward; costs beside MMAs and alone are built from its parameters.
    """
    graph, given = schedule.graph, dict(schedule.graph.parameters)
    if graph.name != "attn_fwd":
        raise UsageError(f"the program of {graph.name} cannot be simulated", "schedules of attn_fwd can; others have their cycle ratio")
    settings = {k: str(given[k]) for k in SETTINGS if k in given}
    request = OrderGraph(
        name=graph.name, machine=schedule.machine.name, head_dim=int(str(given["head_dim"])),
        head_dim_v=int(str(given["head_dim_v"])), tile=str(given["tile"]), subtiles=int(str(given["subtiles"])), settings=settings,
    )  # fmt: skip
    ops = {op.name: op for op in graph.ops}
    tma = {op.name for op in graph.ops if op.unit == "tma"}
    asynchronous = {name for name, op in ops.items() if op.asynchronous}
    roles = [OrderRole(name=r.name, steps=steps) for r in program.roles if (steps := _steps(r, tma, asynchronous))]
    return Order(name=f"{graph.name} lowered", description="", graph=request, roles=tuple(roles))


def _steps(role: Role, tma: set[str], asynchronous: set[str]) -> tuple[Step, ...]:
    last = max(x.stage for x in role.body)
    groups = [x for x in role.body if isinstance(x, Execute) and x.op in asynchronous]
    steps, issued = [], 0
    for x in role.body:
        if isinstance(x, Execute):
            issued += x.op in asynchronous
            if x.op not in tma:
                steps.append(Step(op=x.op, ahead=last - x.stage))
        elif isinstance(x, WaitOwn) and groups:
            periods, index = divmod(issued - 1 - x.pending, len(groups))
            steps.append(Step(finish=groups[index].op, ahead=last - groups[index].stage + periods))
    return tuple(steps)
