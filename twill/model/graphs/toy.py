"""The textbook example of joint pipelining: S = QK, P = exp(S), O += PV, one cycle each.

In program order an iteration takes three cycles. With one tensor core and one exponential unit the optimum is one
iteration every two cycles: I = 2, L = 4, starts 0, 2, 3, so that QK of the next iteration runs beside exp of this one.
"""

from __future__ import annotations

from twill.errors import UsageError
from twill.model.builder import GraphBuilder
from twill.model.graph import LoopGraph, Op, Reservation
from twill.model.machine import Machine

__all__ = ["toy"]


def toy(machine: Machine) -> LoopGraph:
    """Build the example.

    Raises
    ------
    UsageError : the machine has no units ``tensor`` and ``exp``.
    """
    if not {"tensor", "exp"} <= set(machine.units):
        raise UsageError(f"graph 'toy' needs a machine with the units tensor and exp, which {machine.name} lacks", "use the machine 'toy'")
    b = GraphBuilder("toy", machine)
    for name, kind, unit in (("S", "mma_qk", "tensor"), ("P", "exp2", "exp"), ("O", "mma_pv", "tensor")):
        reservation = Reservation(unit=unit, cycles=1, amount=1)
        b.add(
            Op(name=name, kind=kind, unit=unit, latency_cycles=1, issue_cycles=0, asynchronous=True, warps=1, reservations=(reservation,))
        )
    b.edge("S", "P", "smem", value="S")
    b.edge("P", "O", "smem", value="P")
    b.edge("O", "O", "smem", value="O", distance=1)
    return b.finish()
