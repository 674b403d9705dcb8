"""One-field corruptions of legal schedules, each with the finding that must come of it: what runs when and where.

A corruption edits the JSON data of a schedule in place and says what it expects, or returns None where the schedule has nothing
to corrupt in that way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twill.model.graph import Edge
from twill.model.machine import Machine
from twill.model.schedule import Schedule

Data = dict[str, Any]


@dataclass(frozen=True)
class Expected:
    rule: str
    ops: tuple[str, ...]
    cycle: int | None = None


Corruption = Callable[[Data, Schedule, Machine], Expected | None]
CORRUPTIONS: dict[str, Corruption] = {}


def corruption(function: Corruption) -> Corruption:
    CORRUPTIONS[function.__name__] = function
    return function


def row(rows: list[Data], name: str) -> Data:
    return next(r for r in rows if r["name"] == name)


def _starts(s: Schedule) -> dict[str, int]:
    return {op.name: op.start_cycle for op in s.ops}


def _group(s: Schedule) -> dict[str, str]:
    return {op.name: op.group for op in s.ops}


def _plain_edges(s: Schedule) -> list[Edge]:
    return [e for e in s.graph.edges if e.distance == 0 and e.latency_cycles > 1]


def _move(data: Data, name: str, group: str) -> None:
    row(data["ops"], name)["group"] = group
    for g in data["groups"]:
        g["ops"] = [op for op in g["ops"] if op != name] + ([name] if g["name"] == group else [])


# times


@corruption
def start_before_data_is_there(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    e = _plain_edges(s)[-1]
    at = _starts(s)[e.src] + e.latency_cycles - 1
    row(data["ops"], e.dst)["start_cycle"] = at
    return Expected("dependence", (e.dst,), at)


@corruption
def start_before_hand_over(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    group = _group(s)
    edges = [e for e in _plain_edges(s) if group[e.src] != group[e.dst] and e.cross_group_cycles > e.same_group_cycles]
    if not edges or "hand-over" in s.options.without:
        return None
    at = _starts(s)[edges[0].src] + edges[0].latency_cycles + edges[0].same_group_cycles
    row(data["ops"], edges[0].dst)["start_cycle"] = at
    return Expected("hand-over", (edges[0].dst,), at)


@corruption
def start_at_the_end(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    op = s.ops[-1].name
    row(data["ops"], op)["start_cycle"] = s.length_cycles
    return Expected("completion", (op,), s.length_cycles)


@corruption
def nothing_starts_at_zero(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    for op in data["ops"]:
        op["start_cycle"] += s.options.time_unit_cycles
    first = min(s.ops, key=lambda op: op.start_cycle)
    return Expected("completion", (first.name,), s.options.time_unit_cycles)


@corruption
def length_smaller(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    spans = {op.name: op.span_cycles for op in s.graph.ops}
    last = max(s.ops, key=lambda op: op.start_cycle + spans[op.name])
    data["length_cycles"] = last.start_cycle + spans[last.name] - 1
    return Expected("completion", (last.name,), last.start_cycle)


@corruption
def ii_smaller(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["ii_cycles"] -= s.options.time_unit_cycles
    return Expected("proof", ("proof.ii.value_cycles",))


@corruption
def ii_below_bound(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    name = max(s.lower_bounds_cycles, key=lambda n: s.lower_bounds_cycles[n])
    data["ii_cycles"] = s.lower_bounds_cycles[name] - 1
    return Expected("lower-bounds", (name,))


@corruption
def stage(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["ops"][-1]["stage"] += 1
    return Expected("derived-fields", (s.ops[-1].name,), s.ops[-1].start_cycle)


@corruption
def off_the_time_grid(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["options"]["time_unit_cycles"] = 7919
    late = next(op for op in s.ops if op.start_cycle % 7919)
    return Expected("options", (late.name,), late.start_cycle)


# units and warps


@corruption
def unit_taken_twice(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    for a in s.graph.ops:
        for b in s.graph.ops:
            for r in a.reservations:
                for q in b.reservations:
                    if a.name < b.name and r.unit == q.unit and r.amount + q.amount > machine.capacity(r.unit) and r.offset == q.offset:
                        at = _starts(s)[a.name]
                        row(data["ops"], b.name)["start_cycle"] = at
                        return Expected("capacity", (a.name, b.name), at % s.ii_cycles)
    return None


@corruption
def two_issues_at_once(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    busy = {op.name for op in s.graph.ops if op.issue_cycles > 1}
    for group in s.groups:
        names = [op for op in group.ops if op in busy]
        if len(names) > 1:
            at = _starts(s)[names[0]] + 1
            row(data["ops"], names[1])["start_cycle"] = at
            return Expected("concurrency", (names[1],), at % s.ii_cycles)
    return None


@corruption
def group_of_op(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    op, other = s.ops[0], next(g.name for g in s.groups if g.name != s.ops[0].group)
    data["ops"][0]["group"] = other
    return Expected("uniqueness", (op.name,), op.start_cycle)


@corruption
def group_unknown(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["ops"][0]["group"] = "nobody"
    return Expected("uniqueness", (s.ops[0].name,), s.ops[0].start_cycle)


@corruption
def load_among_arithmetic(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    load = next((op for op in s.graph.ops if op.variable_latency), None)
    others = [op for op in s.graph.ops if not op.asynchronous]
    group = next((_group(s)[op.name] for op in others if load and sum(_group(s)[o.name] == _group(s)[op.name] for o in others) > 1), None)
    if load is None or group is None:
        return None
    _move(data, load.name, group)
    return Expected("variable-latency", (load.name,), _starts(s)[load.name])


@corruption
def waiting_mma_among_arithmetic(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    in_registers = {v.producer for v in s.graph.values} | {r.op for v in s.graph.values for r in v.readers}
    loads = {op.name for op in s.graph.ops if op.variable_latency}
    fed = {e.dst for e in s.graph.edges if e.src in loads}
    mma = next((o for o in s.graph.ops if o.asynchronous and o.name in fed - loads - in_registers), None)
    if mma is None:
        return None
    _move(data, mma.name, _group(s)[next(op.name for op in s.graph.ops if not op.asynchronous)])
    return Expected("exposed-wait", (mma.name,), _starts(s)[mma.name])


@corruption
def free_op_behind_a_wait(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    """Move an op that waits for nothing into a group that waits for something it does not need."""
    ops = {op.name: op for op in s.graph.ops}
    waiting = {e.dst for e in s.graph.edges if e.kind in ("smem", "tmem") and ops[e.src].asynchronous and not ops[e.dst].asynchronous}
    for w in sorted(waiting):
        reached = {w}
        for _ in ops:
            reached |= {e.dst for e in s.graph.edges if e.src in reached and e.distance == 0}
        for x in ops:
            if not ops[x].asynchronous and x not in waiting and x not in reached:
                _move(data, x, _group(s)[w])
                return Expected("blocking", (x,), _starts(s)[x])
    return None


@corruption
def issue_order(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    for i, group in enumerate(s.groups):
        if len(group.ops) > 1:
            data["groups"][i]["ops"] = [group.ops[1], group.ops[0], *group.ops[2:]]
            return Expected("derived-fields", (group.ops[1],), _starts(s)[group.ops[1]] % s.ii_cycles)
    return None


@corruption
def group_list_lacks_op(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    name = data["groups"][0]["ops"].pop()
    return Expected("uniqueness", (name,), _starts(s)[name])


@corruption
def group_list_repeats_op(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    name = data["groups"][0]["ops"][0]
    data["groups"][0]["ops"].append(name)
    return Expected("uniqueness", (name,), _starts(s)[name])


@corruption
def empty_group(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["groups"].append({"name": "idle", "warps": 1, "registers_per_thread": 24, "ops": []})
    return Expected("uniqueness", ("idle",))


@corruption
def group_listed_twice(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["groups"].append(data["groups"][0])
    return Expected("uniqueness", (s.groups[0].name,))


@corruption
def warps(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["groups"][-1]["warps"] += 4
    return Expected("derived-fields", (s.groups[-1].name,))


@corruption
def too_many_groups(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["options"]["groups"] = len(s.groups) - 1
    return Expected("warp-budget", ("groups",))


@corruption
def registers_that_must_stay(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    crossing = [e for e in s.graph.edges if e.kind == "registers" and _group(s)[e.src] != _group(s)[e.dst]]
    if not crossing:
        return None
    data["options"]["with_rules"] = ["local-registers"]
    return Expected("local-registers", (crossing[0].dst,), _starts(s)[crossing[0].dst])


# registers


@corruption
def registers_requested(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["groups"][-1]["registers_per_thread"] -= 8
    rule = "derived-fields" if "register-limit" in s.options.without else "register-limit"
    return Expected(rule, (s.groups[-1].name,))


@corruption
def registers_allowed(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    most = max(s.groups, key=lambda g: g.registers_per_thread)
    data["options"]["registers"] = most.registers_per_thread - 1
    return Expected("register-limit", (most.name,))


# storage


@corruption
def offset_unaligned(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    if not s.buffers:
        return None
    data["buffers"][0]["offset"] += 1
    return Expected("placement", (s.buffers[0].name,))


@corruption
def offset_out_of_memory(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    if not s.buffers:
        return None
    data["buffers"][-1]["offset"] = machine.memory_size(s.buffers[-1].memory)
    return Expected("placement", (s.buffers[-1].name,))


@corruption
def addresses_shared(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    for i, a in enumerate(s.buffers):
        for j, b in enumerate(s.buffers):
            if i < j and a.memory == b.memory and not machine.memories[a.memory].overlay:
                data["buffers"][j]["offset"] = a.offset
                return Expected("placement", (a.name,))
    return None


@corruption
def address_shared_with_persistent(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    for i, a in enumerate(s.buffers):
        for j, b in enumerate(s.graph.buffers):
            if i != j and b.persistent and a.memory == b.memory and machine.memories[a.memory].overlay:
                data["buffers"][i]["offset"] = s.buffers[j].offset
                return Expected("placement", (a.name, b.name))
    return None


@corruption
def size(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    if not s.buffers:
        return None
    data["buffers"][0]["size"] += 1
    return Expected("derived-fields", (s.buffers[0].name,))


@corruption
def memory_of_buffer(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    if not s.buffers:
        return None
    data["buffers"][0]["memory"] = "l2"
    return Expected("derived-fields", (s.buffers[0].name,))


@corruption
def stages_too_few(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    for i, (buffer, placed) in enumerate(zip(s.graph.buffers, s.buffers, strict=True)):
        first = min((_starts(s)[w] for w in buffer.writers), default=0)
        last = max((_starts(s)[r.op] + r.distance * s.ii_cycles + r.hold_cycles for r in buffer.readers), default=0)
        if not buffer.persistent and placed.stages > 1 and last - first > s.ii_cycles:
            data["buffers"][i]["stages"] = 1
            return Expected("memory", (buffer.name,), first)
    return None


@corruption
def stages_too_many(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    for i, buffer in enumerate(s.graph.buffers):
        if not machine.memories[buffer.memory].overlay and not buffer.persistent:
            data["buffers"][i]["stages"] = 1000
            return Expected("memory", (buffer.memory,))
    return None


@corruption
def persistent_with_stages(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    for i, buffer in enumerate(s.graph.buffers):
        if buffer.persistent:
            data["buffers"][i]["stages"] = 2
            return Expected("memory", (buffer.name,))
    return None


@corruption
def buffer_missing(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    return Expected("placement", (data["buffers"].pop()["name"],)) if s.buffers else None


@corruption
def buffer_twice(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    if not s.buffers:
        return None
    data["buffers"].append(data["buffers"][0])
    return Expected("placement", (s.buffers[0].name,))


# lists


@corruption
def op_twice(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["ops"].append(data["ops"][0])
    return Expected("uniqueness", (s.ops[0].name,))


@corruption
def op_missing(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    return Expected("uniqueness", (data["ops"].pop()["name"],))


@corruption
def op_unknown(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["ops"][0]["name"] = "stranger"
    return Expected("uniqueness", ("stranger",))


@corruption
def op_order(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["ops"][:2] = [data["ops"][1], data["ops"][0]]
    return Expected("derived-fields", (s.ops[1].name,))


@corruption
def unit_of_op(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["ops"][0]["unit"] += "x"
    return Expected("derived-fields", (s.ops[0].name,), s.ops[0].start_cycle)


@corruption
def handover_missing(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    return Expected("derived-fields", (data["handovers"].pop()["edge"],)) if s.handovers else None


@corruption
def handover_cost(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    if not s.handovers:
        return None
    data["handovers"][0]["cost_cycles"] += 1
    return Expected("derived-fields", (s.handovers[0].edge,))


@corruption
def handover_kind(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    if not s.handovers:
        return None
    data["handovers"][0]["kind"] = "mail"
    return Expected("derived-fields", (s.handovers[0].edge,))


@corruption
def handover_order(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    if len(s.handovers) < 2 or s.handovers[0] == s.handovers[1]:
        return None
    data["handovers"][:2] = [data["handovers"][1], data["handovers"][0]]
    return Expected("derived-fields", (s.handovers[1].edge,))


@corruption
def utilization(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    unit = next(iter(s.utilization))
    data["utilization"][unit] = round(s.utilization[unit] + 0.0002, 4)
    return Expected("derived-fields", (f"utilization.{unit}",))


@corruption
def utilization_not_a_number(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    unit = next(iter(s.utilization))
    data["utilization"][unit] = float("nan")
    return Expected("derived-fields", (f"utilization.{unit}",))


@corruption
def utilization_lacks_unit(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    unit = data["utilization"].popitem()[0]
    return Expected("derived-fields", (f"utilization.{unit}",))


@corruption
def utilization_of_nothing(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["utilization"]["warp_drive"] = 0.5
    return Expected("derived-fields", ("utilization.warp_drive",))
