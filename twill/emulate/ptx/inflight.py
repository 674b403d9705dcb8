"""Registers that an asynchronous instruction still owns: uses too early, found without running anything.

A wgmma reads its A registers and writes its accumulators until a ``wgmma.wait_group`` has seen its group complete (PTX ISA 9.7.15.7);
a ``tcgen05.ld`` writes its registers until a ``tcgen05.wait::ld`` (9.7.16.8), of which flash-attn-4's forward has none, so that its
absence is a warning only. All paths are followed: a register may be in flight at an
instruction if it is on some path to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from twill.emulate.findings import Finding
from twill.emulate.ptx.flow import EXIT, Flow
from twill.emulate.ptx.operands import registers, sources, targets
from twill.emulate.ptx.syntax import Immediate, Instruction, Vector

__all__ = ["in_flight"]

DEEPEST = 8
"""Groups told apart; older ones count as one."""

Owned = frozenset[tuple[str, int, bool]]
"""Register, line of the instruction that owns it, and whether that writes it (else it only reads it)."""


class _Sources(Protocol):
    def source(self, line: int) -> str: ...
    def statement(self, line: int) -> str: ...
    def place(self, line: int) -> str: ...


@dataclass(frozen=True)
class _State:
    """Registers owned by wgmmas not yet committed, by each committed group (latest first), and by loads from tensor memory."""

    open: Owned = frozenset()
    groups: tuple[Owned, ...] = ()
    loads: Owned = frozenset()

    def joined(self, other: _State) -> _State:
        n = max(len(self.groups), len(other.groups))
        mine, theirs = (s.groups + (frozenset(),) * (n - len(s.groups)) for s in (self, other))
        groups = tuple(a | b for a, b in zip(mine, theirs, strict=True))
        return _State(self.open | other.open, groups, self.loads | other.loads)

    def committed(self) -> _State:
        groups = (self.open, *self.groups)
        if len(groups) > DEEPEST:
            groups = (*groups[: DEEPEST - 1], frozenset().union(*groups[DEEPEST - 1 :]))
        return _State(frozenset(), groups, self.loads)

    def owners(self) -> dict[str, tuple[int, bool]]:
        return {name: (line, writes) for part in (self.open, *self.groups, self.loads) for name, line, writes in part}


def _after(state: _State, x: Instruction) -> _State:
    if x.opcode.startswith("wgmma.mma_async"):
        a = x.operands[1]
        owned = {(r.name, x.line, True) for r in registers(x.operands[0])}
        owned |= {(r.name, x.line, False) for r in registers(a)} if isinstance(a, Vector) else set()
        return _State(state.open | owned, state.groups, state.loads)
    if x.opcode.startswith("wgmma.commit_group"):
        return state.committed()
    if x.opcode.startswith("wgmma.wait_group"):
        amount = x.operands[0]
        return _State(state.open, state.groups[: amount.bits if isinstance(amount, Immediate) else 0], state.loads)
    if x.opcode.startswith("tcgen05.ld"):
        return _State(state.open, state.groups, state.loads | {(r.name, x.line, True) for r in targets(x)})
    if x.opcode.startswith("tcgen05.wait::ld"):
        return _State(state.open, state.groups)
    return state


def _trouble(state: _State, x: Instruction) -> Iterator[tuple[str, int, str]]:
    owners = state.owners()
    if not owners:
        return
    matrix = x.opcode.startswith("wgmma.mma_async")
    accumulators = {r.name for r in registers(x.operands[0])} if matrix else set()
    for r in sources(x):
        if r.name in owners and owners[r.name][1] and r.name not in accumulators:
            yield r.name, owners[r.name][0], "reads"
    for r in targets(x):
        if r.name in owners and r.name not in accumulators:
            yield r.name, owners[r.name][0], "writes"


def in_flight(flow: Flow, code: _Sources) -> list[Finding]:
    """A finding for each instruction that touches a register which an earlier instruction may still own."""
    instructions = flow.kernel.instructions
    entry: list[_State | None] = [None] * len(flow.segments)
    entry[0] = _State()
    todo = [0]
    while todo:
        at = todo.pop()
        state = entry[at]
        assert state is not None
        for x in instructions[flow.segments[at].begin : flow.segments[at].end]:
            state = _after(state, x)
        for t in flow.segments[at].successors:
            if t == EXIT:
                continue
            old = entry[t]
            new = state if old is None else old.joined(state)
            if new != old:
                entry[t] = new
                todo.append(t)
    found: dict[tuple[int, int, str], Finding] = {}
    for segment in flow.segments:
        state = entry[segment.index]
        if state is None:
            continue
        for x in instructions[segment.begin : segment.end]:
            loads = {line for _, line, _ in state.loads}
            for name, owner, verb in _trouble(state, x):
                if owner in loads:
                    text = f"no tcgen05.wait::ld follows this load before {x.opcode} of PTX line {x.line} {verb} {name}"
                    found.setdefault(
                        (owner, 0, ""), Finding("in flight", text, owner, code.source(owner), "", "warning", code.statement(owner))
                    )
                    continue
                text = f"{x.opcode} {verb} {name}, which {code.place(owner)} still owns: no wait has seen it complete"
                found.setdefault(
                    (x.line, owner, verb), Finding("in flight", text, x.line, code.source(x.line), statement=code.statement(x.line))
                )  # fmt: skip
            state = _after(state, x)
    return list(found.values())
