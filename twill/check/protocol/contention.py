"""What an op of an order costs, by whether the tensor core works beside it.

The figures are those of the machine file, built into the graph twice: without its contention factors (an op on its own), and with
them (the same op beside busy MMAs). MMAs have their bare length in both; what saturated FMA pipes steal from them is charged
while it happens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from twill.check.protocol.order import OrderGraph
from twill.model.graph import LoopGraph, Op
from twill.model.machine import Machine
from twill.model.registry import build_graph

__all__ = ["OpCost", "contended_costs", "matrix_instructions", "mixed"]

FULL = 100
INSTRUCTION_DEPTH = 16
"""Elements of the contraction that one matrix instruction of two-byte operands takes (PTX ISA, shapes of wgmma)."""


@dataclass(frozen=True, slots=True)
class OpCost:
    """Duration of an op, and how many cycles it takes of each unit meanwhile (all of the unit: 1 cycle a cycle)."""

    cycles: float
    unit_cycles: Mapping[str, float]


def contended_costs(order: OrderGraph, machine: Machine) -> tuple[LoopGraph, dict[str, OpCost], dict[str, OpCost]]:
    """The graph, and the costs of its ops alone and beside busy MMAs."""
    calm = _with_costs(machine, {"mma_stolen_by_fma": 0.0})
    alone = _with_costs(calm, {name: 1.0 for name in machine.costs if name.startswith("contention_")})
    beside_graph, alone_graph = (build_graph(order.name, m, order.request) for m in (calm, alone))
    return beside_graph, _costs(alone_graph, machine), _costs(beside_graph, machine)


def matrix_instructions(graph: LoopGraph) -> dict[str, int]:
    """How many matrix instructions one after another an MMA of an attention forward consists of, by op; others are left out."""
    keys = int(str(graph.parameters["tile"]).partition("x")[2]) if "tile" in graph.parameters else 0
    depth = {"mma_qk": int(graph.parameters.get("head_dim", 0) or 0), "mma_pv": keys}
    chunks = {k: sum(op.kind == k and op.subtile == 0 for op in graph.ops) or 1 for k in depth}
    return {op.name: max(1, math.ceil(depth[op.kind] / chunks[op.kind] / INSTRUCTION_DEPTH)) for op in graph.ops if op.kind in depth}


def mixed(costs: Mapping[str, OpCost], ops: Sequence[str], unit: str) -> dict[str, OpCost]:
    """The costs with what ``ops`` take of a unit spread evenly over their common duration."""
    cycles = sum(costs[op].cycles for op in ops)
    taken = sum(costs[op].unit_cycles.get(unit, 0.0) for op in ops)
    spread = {op: OpCost(costs[op].cycles, {**costs[op].unit_cycles, unit: taken * costs[op].cycles / cycles}) for op in ops if cycles}
    return {**costs, **spread}


def _with_costs(machine: Machine, values: Mapping[str, float]) -> Machine:
    known = {k: v.model_copy(update={"value": values[k]}) if k in values else v for k, v in machine.costs.items()}
    return machine.model_copy(update={"costs": known})


def _costs(graph: LoopGraph, machine: Machine) -> dict[str, OpCost]:
    return {op.name: OpCost(op.latency_cycles, _units(op, machine)) for op in graph.ops}


def _units(op: Op, machine: Machine) -> dict[str, float]:
    result: dict[str, float] = {}
    for r in op.reservations:
        result[r.unit] = result.get(r.unit, 0.0) + r.amount * r.cycles / machine.capacity(r.unit)
    return result
