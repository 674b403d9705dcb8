"""Rules memory and placement: lifetimes of buffers, their stages, and rectangles of address by time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twill.model.graph import Buffer
from twill.solver.crosscheck.frame import Frame, Linear
from twill.solver.crosscheck.windows import round_up

__all__ = ["storage"]


@dataclass(frozen=True, slots=True)
class _Life:
    """Where a buffer that is not persistent lives: ``cycles`` from ``begin``."""

    begin: Linear
    cycles: Linear
    cycles_max: int


def storage(frame: Frame) -> None:
    """Both rules for all memories of the machine."""
    if not frame.problem.rule("memory") and not frame.problem.rule("placement"):
        return
    for name, memory in frame.problem.machine.memories.items():
        buffers = [b for b in frame.problem.graph.buffers if b.memory == name]
        if not buffers:
            continue
        if memory.overlay:
            _overlaid(frame, name, buffers)
        else:
            _side_by_side(frame, name, buffers)


def _life(frame: Frame, b: Buffer) -> _Life:
    model, gap = frame.model, frame.windows.gap
    low = min(gap[frame.anchor][w] for w in b.writers)
    high = max(-gap[w][frame.anchor] for w in b.writers)
    begin: Linear
    if len(b.writers) == 1:
        begin = frame.start[b.writers[0]]
    else:
        begin = model.new_int_var(low, high, f"begin[{b.name}]")
        model.add_min_equality(begin, [frame.start[w] for w in b.writers])
    longest = 1
    for r in b.readers:
        latest = max(-gap[r.op][w] for w in b.writers)
        longest = max(longest, latest + r.distance * frame.ii + r.hold_cycles + r.cross_group_cycles)
    if b.name in frame.windows.stages_max:
        longest = min(longest, frame.windows.stages_max[b.name] * frame.ii)
    least = max(1, frame.windows.life_min[b.name])
    cycles = model.new_int_var(least, max(least, longest), f"life[{b.name}]")
    for r in b.readers:
        lasts = frame.start[r.op] - begin + r.distance * frame.ii + r.hold_cycles
        for w in b.writers if r.cross_group_cycles else b.writers[:1]:
            end = lasts + r.cross_group_cycles * (1 - frame.same(w, r.op))
            model.add(cycles >= end)
    return _Life(begin, cycles, max(least, longest))


def _stages(frame: Frame, b: Buffer, life: _Life) -> Any:
    """n(b), at least the lifetime over I; 1 if the rule memory does not ask for more."""
    if not frame.problem.rule("memory"):
        return frame.literal(True)
    most = frame.windows.stages_max.get(b.name, -(-life.cycles_max // frame.ii))
    stages = frame.model.new_int_var(1, max(1, most), f"stages[{b.name}]")
    frame.model.add(stages * frame.ii >= life.cycles)
    return stages


def _steps(frame: Frame, b: Buffer, stages: Any) -> Linear:
    """n(b) strides in steps of the alignment."""
    return stages * (b.size // frame.problem.machine.memories[b.memory].alignment)


def _side_by_side(frame: Frame, name: str, buffers: list[Buffer]) -> None:
    """No overlay: sums decide."""
    step, capacity = frame.problem.machine.memories[name].alignment, frame.problem.capacity(name)
    if not frame.problem.rule("memory"):
        if sum(b.size for b in buffers) > capacity:
            frame.model.add_bool_or([])
        return
    one = frame.literal(True)
    parts = [_steps(frame, b, one if b.persistent else _stages(frame, b, _life(frame, b))) for b in buffers]
    frame.model.add(sum(parts) <= capacity // step)


def _overlaid(frame: Frame, name: str, buffers: list[Buffer]) -> None:
    """Overlay: a rectangle for each buffer, as wide as its life (the whole window if it occupies its memory always)."""
    model, problem = frame.model, frame.problem
    step, capacity = problem.machine.memories[name].alignment, problem.capacity(name)
    room = capacity // step
    if min(capacity, room) < 0:
        model.add_bool_or([])
        return
    times: list[Any] = []
    shown: list[Any] = []
    heights: list[Linear] = []
    addresses: list[Any] = []
    bottom: Linear = 0

    def always_there(b: Buffer, present: Any) -> list[Any]:
        return [model.new_optional_fixed_size_interval_var(0, 2 * frame.ii, present, f"always[{b.name}]")]

    def rectangle(b: Buffer, when: list[Any], height: Linear, present: Any, bytes_used: Linear) -> None:
        times.extend(when)
        heights.extend([height] * len(when))
        if not problem.rule("placement"):
            return
        shown.extend(when)
        offset = frame.offset[b.name]
        model.add(offset * step + bytes_used <= capacity).only_enforce_if(present)
        for t in range(len(when)):
            top = model.new_int_var(0, room + 1 + b.size // step, f"top[{b.name},{t}]")
            model.add(top == offset + height).only_enforce_if(present)
            addresses.append(model.new_optional_interval_var(offset, height, top, present, f"address[{b.name},{t}]"))

    for b in buffers:
        if problem.rule("placement"):
            if b.persistent and capacity % step == 0:
                frame.offset[b.name] = bottom
                bottom += round_up(b.size, step) // step
            else:
                frame.offset[b.name] = model.new_int_var(0, room, f"offset[{b.name}]")
    for b in buffers:
        one, size = frame.literal(True), round_up(b.size, step) // step
        if b.persistent:
            rectangle(b, always_there(b, one), size, one, b.size)
            continue
        life = _life(frame, b)
        always = model.new_bool_var(f"always[{b.name}]")
        briefly = model.new_bool_var(f"briefly[{b.name}]")
        model.add_exactly_one(always, briefly)
        brief_max = min(life.cycles_max, frame.ii)
        model.add(life.cycles <= brief_max).only_enforce_if(briefly)
        bounded = model.new_int_var(0, brief_max, f"brief[{b.name}]")
        model.add(bounded == life.cycles).only_enforce_if(briefly)
        phase = frame.phase[b.writers[0]] if len(b.writers) == 1 else _phase(frame, b, life)
        stretch = frame.variable(phase, bounded, brief_max, b.name)
        rectangle(b, frame.copies(stretch, briefly), size, briefly, b.size)
        stages = _stages(frame, b, life)
        if problem.rule("memory"):
            model.add(stages == 1).only_enforce_if(~always)
        rectangle(b, always_there(b, always), _steps(frame, b, stages), always, stages * b.size)
    if problem.rule("memory"):
        model.add_cumulative(times, heights, room)
    if problem.rule("placement"):
        model.add_no_overlap_2d(shown, addresses)


def _phase(frame: Frame, b: Buffer, life: _Life) -> Linear:
    gap = frame.windows.gap
    low = min(gap[frame.anchor][w] for w in b.writers)
    high = max(-gap[w][frame.anchor] for w in b.writers)
    return frame.residue(life.begin, low, high, b.name)
