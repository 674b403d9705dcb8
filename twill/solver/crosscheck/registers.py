"""Rule register-limit: copies of register values, their pressure in each group, and R(g)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from twill.model.graph import RegisterValue
from twill.solver.crosscheck.frame import Frame, Linear, Stretch
from twill.solver.crosscheck.windows import round_up

__all__ = ["registers"]


@dataclass(slots=True)
class _Held:
    """What one group holds: intervals with their registers, and the literals of which one says that it holds anything."""

    intervals: list[Any] = field(default_factory=list)
    demands: list[int] = field(default_factory=list)
    reasons: list[Any] = field(default_factory=list)


def registers(frame: Frame) -> list[Any] | None:
    """R(g) of every group, as small as the values in it allow; None if no rule in force limits it."""
    problem, model, machine = frame.problem, frame.model, frame.problem.machine.registers
    limited = problem.rule("register-limit")
    if not limited and not problem.rule("register-file"):
        return None
    most = int(machine.file.value)
    if limited:
        most = min(int(machine.per_thread_max.value), problem.options.registers or most)
    held = [_Held() for _ in range(problem.groups)]
    for value in problem.graph.values:
        _in_own_group(frame, value, held)
        _in_other_groups(frame, value, held)
    step, least = int(machine.granularity.value), int(machine.per_thread_min.value)
    found = []
    for g, group in enumerate(held):
        pressure = model.new_int_var(0, most, f"pressure[{g}]")
        request = model.new_int_var(0, most, f"registers[{g}]")
        steps = model.new_int_var(0, round_up(most, step) // step, f"register_steps[{g}]")
        model.add(request >= steps * step)
        used = model.new_bool_var(f"used[{g}]")
        for name in problem.ops:
            model.add_implication(frame.letter[name][g], used)
        model.add_bool_or(~used, *(frame.letter[name][g] for name in problem.ops))
        holds = model.new_bool_var(f"holds[{g}]")
        for reason in group.reasons:
            model.add_implication(reason, holds)
        model.add_bool_or(~holds, *group.reasons)
        model.add(request >= least).only_enforce_if(used)
        model.add(steps * step >= pressure + int(machine.overhead_per_thread.value)).only_enforce_if(holds)
        model.add(steps * step >= int(machine.issuer_per_thread.value)).only_enforce_if(used, ~holds)
        if group.intervals:
            model.add_cumulative(group.intervals, group.demands, pressure)
        found.append(request)
    return found


def _in_own_group(frame: Frame, value: RegisterValue, held: list[_Held]) -> None:
    model, producer = frame.model, frame.problem.ops[value.producer]
    letters = frame.letter[producer.name]
    if value.persistent:
        for g, group in enumerate(held):
            group.intervals.append(frame.period(letters[g], f"{value.name}[{g}]"))
            group.demands.append(value.registers)
            group.reasons.append(letters[g])
        return
    gap = frame.windows.gap
    longest = producer.latency_cycles
    ends = []
    for r in value.readers:
        longest = max(longest, r.distance * frame.ii + r.hold_cycles - gap[r.op][producer.name])
        ends.append(
            (frame.start[r.op] - frame.start[producer.name] + r.distance * frame.ii + r.hold_cycles, frame.same(producer.name, r.op))
        )
    cycles = model.new_int_var(producer.latency_cycles, longest, f"life[{value.name}]")
    for end, same in ends:
        model.add(cycles >= end).only_enforce_if(same)
    alive: Any = None
    if producer.latency_cycles == 0:
        alive = model.new_bool_var(f"alive[{value.name}]")
        model.add(cycles >= 1).only_enforce_if(alive)
        model.add(cycles == 0).only_enforce_if(~alive)
        _only_if_read(frame, alive, ends, value.name)
    stretch = frame.variable(frame.phase[producer.name], cycles, longest, value.name)
    _enter(frame, value, stretch, held, letters, alive)


def _only_if_read(frame: Frame, alive: Any, ends: list[tuple[Linear, Any]], name: str) -> None:
    """A value of latency 0 lives only if some reader in its group is late enough."""
    reasons = []
    for i, (end, same) in enumerate(ends):
        late = frame.model.new_bool_var(f"late[{name},{i}]")
        frame.model.add_implication(late, same)
        frame.model.add(end >= 1).only_enforce_if(late)
        reasons.append(late)
    frame.model.add_bool_or(~alive, *reasons)


def _enter(frame: Frame, value: RegisterValue, stretch: Stretch, held: list[_Held], letters: list[Any], alive: Any) -> None:
    for g, group in enumerate(held):
        copies = frame.copies(stretch, letters[g])
        group.intervals += copies
        group.demands += [value.registers] * len(copies)
        if alive is None:
            group.reasons.append(letters[g])
        else:
            group.reasons.append(_both(frame, letters[g], alive, f"holds[{value.name},{g}]"))


def _both(frame: Frame, a: Any, b: Any, name: str) -> Any:
    both = frame.model.new_bool_var(name)
    frame.model.add_bool_and(a, b).only_enforce_if(both)
    frame.model.add_bool_or(~a, ~b, both)
    return both


def _in_other_groups(frame: Frame, value: RegisterValue, held: list[_Held]) -> None:
    """Readers elsewhere hold a copy while they issue."""
    for i, r in enumerate(value.readers):
        cycles = frame.problem.ops[r.op].issue_cycles
        pair = frozenset((r.op, value.producer))
        if not cycles or len(pair) == 1 or pair in frame.problem.together:
            continue
        stretch = frame.fixed(r.op, 0, cycles, f"copy[{value.name},{i}]")
        for g, group in enumerate(held):
            present = _both(frame, frame.letter[r.op][g], ~frame.letter[value.producer][g], f"copy[{value.name},{i},{g}]")
            copies = frame.copies(stretch, present)
            group.intervals += copies
            group.demands += [value.registers] * len(copies)
            group.reasons.append(present)
