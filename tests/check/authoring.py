"""Write schedule files by hand: starts and groups are given, every other field follows by the most naive arithmetic.

Nothing here uses twill.check: cycles are counted one by one, paths and cycles of the graph enumerated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import networkx as nx

from twill.model.graph import Buffer, Edge, LoopGraph, canonical_hash
from twill.model.machine import Machine
from twill.model.schedule import Options, Schedule

FOREVER = 10**6


def figure(value: float, unit: str = "units") -> dict[str, Any]:
    return {"value": value, "unit": unit, "source": "made up for a test", "evidence": "derived"}


def handmade_machine(**registers: float) -> Machine:
    """A machine with round numbers: SMEM of 1000 bytes by 10, TMEM of 128 columns by 32 that overlays."""
    unit = {"capacity": figure(100, "percent"), "description": "a pipe"}
    port = {"capacity": figure(64, "bytes/clk"), "description": "a port"}
    asked = {
        "file": 24000, "per_thread_max": 120, "per_thread_min": 24, "granularity": 8, "overhead_per_thread": 20,
        "issuer_per_thread": 30, "max_warps": 12,
    } | registers  # fmt: skip
    return Machine.model_validate(
        {
            "schema_version": 1, "name": "handmade", "arch": "sm99", "target": "sm_99a", "description": "for tests", "accumulator": "tmem",
            "mma_warps": 1, "max_ctas": 1, "costs": {},
            "units": {"tensor": unit | {"queued": True}, "alu": unit, "smem": port},
            "memories": {
                "smem": {"capacity": figure(1000, "bytes"), "alignment": 10, "overlay": False, "description": "bytes"},
                "tmem": {"capacity": figure(128, "columns"), "alignment": 32, "overlay": True, "description": "columns"},
            },
            "registers": {name: figure(value) for name, value in asked.items()},
        }
    )  # fmt: skip


def crossing_cost(edge: Edge, options: Options) -> int:
    return edge.same_group_cycles if "hand-over" in options.without else edge.cross_group_cycles


def cheapest(edge: Edge, options: Options) -> int:
    return edge.same_group_cycles if "hand-over" in options.without else min(edge.same_group_cycles, edge.cross_group_cycles)


def recurrence_bound(graph: LoopGraph, options: Options) -> int:
    """By enumerating all cycles, and all choices among parallel edges."""
    between: dict[tuple[str, str], list[Edge]] = {}
    for e in graph.edges:
        between.setdefault((e.src, e.dst), []).append(e)
    worst = Fraction(0)
    for nodes in nx.simple_cycles(nx.DiGraph(list(between))):
        hops = [between[u, v] for u, v in zip(nodes, [*nodes[1:], nodes[0]], strict=True)]
        for path in itertools.product(*hops):
            worst = max(worst, Fraction(sum(e.latency_cycles + cheapest(e, options) for e in path), sum(e.distance for e in path)))
    return math.ceil(worst)


def stride(buffer: Buffer, machine: Machine) -> int:
    alignment = machine.memories[buffer.memory].alignment
    return math.ceil(buffer.size / alignment) * alignment


def _shortest_life(graph: LoopGraph, options: Options, buffer: Buffer) -> int:
    steps = nx.DiGraph()
    steps.add_nodes_from(op.name for op in graph.ops)
    for e in graph.edges:
        if e.distance == 0:
            weight = e.latency_cycles + cheapest(e, options)
            if not steps.has_edge(e.src, e.dst) or steps.edges[e.src, e.dst]["w"] < weight:
                steps.add_edge(e.src, e.dst, w=weight)
    best = 1
    for writer, reader in itertools.product(buffer.writers, buffer.readers):
        if reader.distance:
            continue
        paths = [[writer]] if writer == reader.op else nx.all_simple_paths(steps, writer, reader.op)
        for path in paths:
            best = max(best, sum(steps.edges[hop]["w"] for hop in itertools.pairwise(path)) + reader.hold_cycles)
    return best


def memory_bound(graph: LoopGraph, machine: Machine, options: Options) -> int:
    worst = 0
    for name in machine.memories:
        mine = [b for b in graph.buffers if b.memory == name]
        free = machine.memory_size(name) - graph.reserved.get(name, 0) - sum(stride(b, machine) for b in mine if b.persistent)
        demand = sum(stride(b, machine) * _shortest_life(graph, options, b) for b in mine if not b.persistent)
        if free > 0:
            worst = max(worst, math.ceil(Fraction(demand, free)))
    return worst


def bounds(graph: LoopGraph, machine: Machine, options: Options) -> dict[str, int]:
    work: dict[str, int] = {}
    for r in (r for op in graph.ops for r in op.reservations):
        work[r.unit] = work.get(r.unit, 0) + r.amount * r.cycles
    off = options.without
    return {
        "resource": 0 if "capacity" in off else max((math.ceil(w / machine.capacity(u)) for u, w in work.items()), default=0),
        "recurrence": recurrence_bound(graph, options),
        "memory": 0 if "memory" in off else memory_bound(graph, machine, options),
        "issue": 0 if "concurrency" in off else max(op.issue_cycles for op in graph.ops),
    }


def critical_path(graph: LoopGraph, options: Options, ii: int) -> int:
    unit = options.time_unit_cycles

    def up(value: int) -> int:
        return math.ceil(value / unit) * unit

    at = {op.name: 0 for op in graph.ops}
    for _ in graph.ops:
        for e in graph.edges:
            at[e.dst] = max(at[e.dst], at[e.src] + up(e.latency_cycles + cheapest(e, options) - e.distance * ii))
    return max(at[op.name] + up(op.span_cycles) for op in graph.ops)


def life(
    graph: LoopGraph, buffer: Buffer, starts: Mapping[str, int], group: Mapping[str, str], ii: int, options: Options
) -> tuple[int, int]:
    begin = min(starts[w] for w in buffer.writers)
    end = -FOREVER
    for r in buffer.readers:
        away = "hand-over" not in options.without and any(group[w] != group[r.op] for w in buffer.writers)
        end = max(end, starts[r.op] + r.distance * ii + r.hold_cycles + (r.cross_group_cycles if away else 0))
    return begin, max(end, begin + 1)


def pressures(graph: LoopGraph, starts: Mapping[str, int], group: Mapping[str, str], ii: int) -> dict[str, int]:
    """Registers that live in every group at every cycle of the period, counted one by one."""
    held = {g: [0] * ii for g in group.values()}

    def hold(g: str, begin: int, end: int, amount: int) -> None:
        for cycle in range(begin, end):
            held[g][cycle % ii] += amount

    ops = {op.name: op for op in graph.ops}
    for value in graph.values:
        begin, home = starts[value.producer], group[value.producer]
        end = begin + ops[value.producer].latency_cycles
        for r in value.readers:
            if group[r.op] == home:
                end = max(end, starts[r.op] + r.distance * ii + r.hold_cycles)
            else:
                hold(group[r.op], starts[r.op], starts[r.op] + ops[r.op].issue_cycles, value.registers)
        hold(home, *((0, ii) if value.persistent else (begin, end)), value.registers)
    return {g: max(cycles) for g, cycles in held.items()}


def request(machine: Machine, pressure: int) -> int:
    r = machine.registers
    need = pressure + r.overhead_per_thread.value if pressure else r.issuer_per_thread.value
    return int(max(r.per_thread_min.value, math.ceil(need / r.granularity.value) * r.granularity.value))


def write_schedule(
    graph: LoopGraph, machine: Machine, *, ii: int, starts: Mapping[str, int], groups: Mapping[str, Sequence[str]],
    placed: Mapping[str, tuple[int, int]] | None = None, options: Options | None = None, length: int | None = None,
) -> Schedule:  # fmt: skip
    """A schedule file. ``placed`` gives (offset, stages) of every buffer; a proof that needs a solver is left open."""
    options = options or Options(groups=4, max_copies=4, without=("register-tiles",))
    placed = placed or {}
    group = {op: name for name, ops in groups.items() for op in ops}
    unit = options.time_unit_cycles
    length = length or math.ceil(max(starts[op.name] + op.span_cycles for op in graph.ops) / unit) * unit
    limits, shortest, pressure = bounds(graph, machine, options), critical_path(graph, options, ii), pressures(graph, starts, group, ii)
    crossing = [e for e in graph.edges if group[e.src] != group[e.dst]]
    rings = [b for b in graph.buffers if b.prefetch and not b.persistent]
    lives = {b.name: life(graph, b, starts, group, ii, options) for b in rings}

    def step(value: int, known: Mapping[str, int]) -> dict[str, Any]:
        proving = [name for name, bound in known.items() if math.ceil(bound / unit) * unit == value]
        if proving:
            return {"value_cycles": value, "by": "lower-bound", "bound": proving[0]}
        return {"value_cycles": value, "by": "none", "gap_cycles": max(0, value - math.ceil(max(known.values()) / unit) * unit)}

    calm, most = margin(graph, machine, options, starts, group, ii)
    patience = {"value_cycles": calm, "by": "lower-bound", "bound": "queue"}
    if calm < most:
        patience = {"value_cycles": calm, "by": "none", "gap_cycles": most - calm}
    steps = {"ii": step(ii, limits), "margin": patience, "length": step(length, {"critical-path": shortest})}
    work = {u: sum(r.amount * r.cycles for op in graph.ops for r in op.reservations if r.unit == u) for u in machine.units}
    return Schedule.model_validate(
        {
            "status": "optimal" if all(s["by"] != "none" for s in steps.values()) else "feasible",
            "graph": graph.model_dump(mode="json"),
            "machine": {
                "name": machine.name, "arch": machine.arch, "target": machine.target,
                "hash": canonical_hash(machine.model_dump(mode="json")),
            },
            "options": options.model_dump(mode="json"),
            "ii_cycles": ii, "margin_cycles": calm, "length_cycles": length, "lower_bounds_cycles": limits,
            "groups": [
                {
                    "name": name, "warps": max(graph.op(op).warps for op in ops),
                    "registers_per_thread": request(machine, pressure[name]), "ops": _issue_order(graph, ops, starts, ii),
                }
                for name, ops in groups.items()
            ],
            "ops": [
                {"name": op.name, "unit": op.unit, "start_cycle": starts[op.name], "stage": starts[op.name] // ii, "group": group[op.name]}
                for op in graph.ops
            ],
            "buffers": [
                {"name": b.name, "memory": b.memory, "size": b.size, "offset": placed[b.name][0], "stages": placed[b.name][1]}
                for b in graph.buffers
            ],
            "handovers": [{"edge": e.label, "kind": e.kind, "cost_cycles": crossing_cost(e, options)} for e in crossing],
            "rank": {
                "groups": len(groups), "held_up": held_up(graph, machine, starts, group),
                "handovers": len({(e.src, e.dst, e.distance) for e in crossing}),
                "waits": len({(e.src, group[e.dst]) for e in crossing}), "register_peak": max(pressure.values()),
                "slack_cycles": min((placed[b.name][1] * ii - (lives[b.name][1] - lives[b.name][0]) for b in rings), default=0),
            },
            "proof": {
                **steps, "rank_proved": False, "solver": "hand", "solver_version": "0", "seed": 0, "queries": 0,
                "model_hash": canonical_hash([m.model_dump(mode="json") for m in (graph, machine, options)]),
            },
            "utilization": {u: round(w / (machine.capacity(u) * ii), 4) for u, w in work.items()},
            "provenance": {"twill": "0", "command": "written by hand"},
        }
    )  # fmt: skip


def margin(graph: LoopGraph, machine: Machine, options: Options, starts: Mapping[str, int], group: Mapping[str, str],
           ii: int) -> tuple[int, int]:  # fmt: skip
    """The margin, and the largest that counts."""
    step = int(machine.costs["margin_step"].value) if "margin_step" in machine.costs else 1
    queue: dict[str, int] = {}
    for op in graph.ops:
        if machine.queued(op.unit) and op.asynchronous and not op.variable_latency:
            queue[op.name] = max((r.offset + r.cycles for r in op.reservations if r.unit == op.unit), default=0)
    most = max(queue.values(), default=0) // step * step
    left = [most]
    for e in graph.edges if "queueing" not in options.without else ():
        ahead = max((queue[w] for w in queue if group[w] != group[e.src] and graph.op(w).unit == graph.op(e.src).unit), default=0)
        if queue.get(e.src) and not queue.get(e.dst) and ahead:
            cost = e.same_group_cycles if group[e.src] == group[e.dst] else crossing_cost(e, options)
            left.append(starts[e.dst] + e.distance * ii - starts[e.src] - e.latency_cycles - cost - ahead)
    return max(0, min(left)) // step * step, most


def held_up(graph: LoopGraph, machine: Machine, starts: Mapping[str, int], group: Mapping[str, str]) -> int:
    """Work behind a wait for a queued op that neither needs it nor waits itself."""
    synchronous = {op.name for op in graph.ops if not op.asynchronous}
    queued = {op.name for op in graph.ops if machine.queued(op.unit) and op.asynchronous and not op.variable_latency and op.reservations}
    waits = {e.dst for e in graph.edges if e.src in queued} & synchronous
    inside = nx.DiGraph((e.src, e.dst) for e in graph.edges if e.distance == 0)
    inside.add_nodes_from(synchronous)
    return sum(
        group[v] == group[x] and starts[x] >= starts[v] and not nx.has_path(inside, v, x) for v in waits for x in synchronous - waits
    )  # fmt: skip


def _issue_order(graph: LoopGraph, ops: Iterable[str], starts: Mapping[str, int], ii: int) -> list[str]:
    order = [op.name for op in graph.ops]
    return sorted(ops, key=lambda op: (starts[op] % ii, order.index(op)))
