"""Rules on units, warps and groups, and the symmetry of the graph."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from twill.solver.crosscheck.frame import Frame

__all__ = ["capacity", "concurrency", "graph_symmetry", "turns_apart", "warps_of_groups"]


def capacity(frame: Frame) -> None:
    """Rule capacity: a cumulative per unit that is not elastic; whole turns of a reservation longer than I come off the capacity."""
    for unit in frame.problem.machine.units:
        room = frame.problem.machine.capacity(unit)
        if frame.problem.machine.units[unit].elastic:
            continue  # windows() has compared the average already
        intervals, demands = [], []
        for op in frame.problem.graph.ops:
            for i, r in enumerate(op.reservations):
                if r.unit != unit:
                    continue
                turns, rest = divmod(r.cycles, frame.ii)
                room -= turns * r.amount
                if rest:
                    copies = frame.copies(frame.fixed(op.name, r.offset, rest, f"{unit}[{op.name},{i}]"))
                    intervals += copies
                    demands += [r.amount] * len(copies)
        if room < 0:
            frame.model.add_bool_or([])
        elif intervals and 2 * min(demands) > room:
            frame.model.add_no_overlap(intervals)
            if max(demands) > room:
                frame.model.add_bool_or([])
        elif intervals:
            frame.model.add_cumulative(intervals, demands, room)


def concurrency(frame: Frame) -> None:
    """Rule concurrency: per group no two issue times meet, and their sum fits into I."""
    busy = [op for op in frame.problem.graph.ops if op.issue_cycles > 0]
    if any(op.issue_cycles > frame.ii for op in busy):
        frame.model.add_bool_or([])
        return
    for g in range(frame.problem.groups):
        intervals = []
        for op in busy:
            stretch = frame.fixed(op.name, 0, op.issue_cycles, f"issue[{op.name},{g}]")
            intervals += frame.copies(stretch, frame.letter[op.name][g])
        frame.model.add_no_overlap(intervals)
        frame.model.add(sum(op.issue_cycles * frame.letter[op.name][g] for op in busy) <= frame.ii)


def turns_apart(frame: Frame) -> None:
    """Redundant: if two intervals never meet modulo I, then M(v) - M(u) = q I + r with r between one length and I less the other."""
    gap = frame.windows.gap
    for a, b in combinations(frame.problem.graph.ops, 2):
        low, high = gap[a.name][b.name], -gap[b.name][a.name]
        always = _exclusive_cycles(frame, a.name, b.name)
        may = (
            frame.problem.rule("concurrency")
            and a.issue_cycles
            and b.issue_cycles
            and frozenset((a.name, b.name)) not in frame.problem.apart
        )
        if not always and not may:
            continue
        q = frame.model.new_int_var(low // frame.ii - 1, high // frame.ii + 1, f"turns[{a.name},{b.name}]")
        difference = frame.start[b.name] - frame.start[a.name] - q * frame.ii
        if always:
            frame.model.add(difference >= always[0])
            frame.model.add(difference <= frame.ii - always[1])
        if may and a.issue_cycles + b.issue_cycles <= frame.ii:
            same = frame.same(a.name, b.name)
            frame.model.add(difference >= a.issue_cycles).only_enforce_if(same)
            frame.model.add(difference <= frame.ii - b.issue_cycles).only_enforce_if(same)
        elif may:
            frame.model.add(frame.same(a.name, b.name) == 0)


def _exclusive_cycles(frame: Frame, a: str, b: str) -> tuple[int, int] | None:
    """Cycles of the reservations, from issue on, by which two ops exclude each other on a unit whatever their groups."""
    if not frame.problem.rule("capacity"):
        return None
    best: tuple[int, int] | None = None
    for r in frame.problem.ops[a].reservations:
        for s in frame.problem.ops[b].reservations:
            if r.unit != s.unit or frame.problem.machine.units[r.unit].elastic:
                continue
            if not r.offset and not s.offset and r.amount + s.amount > frame.problem.machine.capacity(r.unit):
                best = (max(r.cycles, best[0]), max(s.cycles, best[1])) if best else (r.cycles, s.cycles)
    return best


def graph_symmetry(frame: Frame) -> None:
    """Of two mirror images keep the one whose first moved op does not start later than its image.

    Every declared symmetry is judged by its first moved op in the order of the graph, so the conditions of several
    symmetries hold together in the lexicographically smallest image.
    """
    order = list(frame.problem.ops)
    for first, second in frame.problem.graph.symmetries:
        swap = dict(zip(first, second, strict=True)) | dict(zip(second, first, strict=True))
        leader = min(swap, key=order.index)
        frame.model.add(frame.start[leader] <= frame.start[swap[leader]])


def warps_of_groups(frame: Frame, registers: list[Any] | None) -> None:
    """Rules warp-budget and register-file; ``registers`` has R(g), or is None if nothing limits registers."""
    model, machine, ops = frame.model, frame.problem.machine.registers, frame.problem.graph.ops
    budget, file_rule = frame.problem.rule("warp-budget"), frame.problem.rule("register-file") and registers is not None
    if not budget and not file_rule:
        return
    sizes = sorted({op.warps for op in ops})
    file = int(machine.file.value)
    total: list[Any] = []
    shared_warps: list[Any] = []
    cost: list[Any] = []
    quads_max = -(-sum(op.warps for op in ops if op.warps % 4) // 4)
    quads = model.new_int_var(0, quads_max, "shared_warpgroups")
    shared_most = model.new_int_var(0, file, "shared_registers")
    for g in range(frame.problem.groups):
        is_size = {w: model.new_bool_var(f"warps[{g}]=={w}") for w in sizes}
        model.add(sum(is_size.values()) <= 1)
        for op in ops:
            model.add_bool_or(~frame.letter[op.name][g], *(is_size[w] for w in sizes if w >= op.warps))
        for w, lit in is_size.items():
            model.add_bool_or(~lit, *(frame.letter[op.name][g] for op in ops if op.warps == w))
            (shared_warps if w % 4 else total).append(w * lit)
        if file_rule and registers is not None:
            part = model.new_int_var(0, file, f"file[{g}]")
            cost.append(part)
            for w, lit in is_size.items():
                if w % 4:
                    model.add(shared_most >= registers[g]).only_enforce_if(lit)
                else:
                    model.add(part >= 32 * w * registers[g]).only_enforce_if(lit)
    model.add(4 * quads >= sum(shared_warps))
    if budget:
        model.add(sum(total) + 4 * quads <= int(machine.max_warps.value))
    if file_rule:
        product = model.new_int_var(0, file, "shared_file")
        model.add_multiplication_equality(product, [quads, 128 * shared_most])
        model.add(sum(cost) + product <= file)
