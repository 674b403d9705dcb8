"""Which registers hold one value for all lanes of a warp: those are computed once, as Python integers."""

from __future__ import annotations

import re

from twill.emulate.ptx.flow import Flow
from twill.emulate.ptx.operands import sources, targets
from twill.emulate.ptx.syntax import Immediate, Instruction, Memory, Register, Special, Vector

__all__ = ["divergent", "of_warp", "partial"]

FLOATS = re.compile(r"f16|f16x2|bf16|bf16x2|f32|f32x2|f64|tf32|e4m3|e5m2")
INTEGER_ANYWAY = ("setp", "selp", "mov", "ld", "st")


def _varies(x: Instruction) -> bool:
    """True if the result differs from lane to lane even where all sources agree."""
    parts = x.parts
    if parts[0] in ("elect", "wgmma", "mov") or x.opcode.startswith(("tcgen05.ld", "ldmatrix")):
        return parts[0] != "mov" or any(isinstance(o, Special) and o.name in ("%tid.x", "%tid.y", "%tid.z", "%laneid") for o in x.operands)
    if parts[0] == "shfl":
        return not (parts[2] == "idx" and isinstance(x.operands[2], Immediate))
    if parts[0] in ("atom", "match", "redux"):
        return parts[0] != "redux"
    if parts[0] == "setp":
        return FLOATS.fullmatch(parts[-1]) is not None
    if parts[0] == "mbarrier":
        return False
    return any(FLOATS.fullmatch(p) for p in parts[1:]) and parts[0] not in INTEGER_ANYWAY


def _joins(x: Instruction) -> bool:
    """True if the result agrees for all lanes whatever the sources are."""
    parts = x.parts
    return parts[0] in ("vote", "redux") or (parts[0] == "shfl" and parts[2] == "idx" and isinstance(x.operands[2], Immediate))


def _regions(flow: Flow, varying: frozenset[str]) -> list[tuple[int, frozenset[int]]]:
    """Segments that end in a jump that lanes may take apart, with the segments that then run with a part of the lanes."""
    found = []
    for s in flow.segments:
        guard = flow.kernel.instructions[s.end - 1].guard
        if len(s.successors) > 1 and guard is not None and guard.name in varying:
            found.append((s.index, flow.region(s.index)))
    return found


def partial(flow: Flow, varying: frozenset[str]) -> frozenset[int]:
    """Segments that may run with only a part of the lanes."""
    return frozenset(i for _, region in _regions(flow, varying) for i in region)


def of_warp(flow: Flow) -> frozenset[str]:
    """Registers that are the thread number shifted right by 5 or more: one value in a warp."""
    thread: set[str] = set()
    found: set[str] = set()
    for x in flow.kernel.instructions:
        if x.opcode == "mov.u32" and isinstance(x.operands[1], Special) and x.operands[1].name == "%tid.x":
            thread |= {r.name for r in targets(x)}
        elif x.opcode in ("shr.u32", "shr.s32") and isinstance(x.operands[1], Register) and x.operands[1].name in thread:
            shift = x.operands[2]
            if isinstance(shift, Immediate) and shift.bits >= 5:
                found |= {r.name for r in targets(x)}
        elif x.opcode == "setp.lt.u32" and isinstance(x.operands[1], Register) and x.operands[1].name in thread:
            bound = x.operands[2]
            if isinstance(bound, Immediate) and bound.bits % 32 == 0:
                found |= {r.name for r in targets(x)}
    return frozenset(found)


def divergent(flow: Flow) -> frozenset[str]:
    """Names of registers that may differ between lanes; all others are uniform while they are in use.

    A value written where only some lanes run counts as uniform only if it is the sole definition of its register and not in a loop
    whose lanes may leave at different turns.
    """
    code = flow.kernel.instructions
    defined: dict[str, int] = {}
    for x in code:
        for r in targets(x):
            defined[r.name] = defined.get(r.name, 0) + 1
    warps = of_warp(flow)
    varying: set[str] = set()
    while True:
        before = len(varying)
        regions = _regions(flow, frozenset(varying))
        some = {i for _, region in regions for i in region}
        ragged = {i for branch, region in regions if branch in region for i in region}
        for s in flow.segments:
            for x in code[s.begin : s.end]:
                names = [r.name for r in targets(x)]
                if not names or all(n in varying or n in warps for n in names):
                    continue
                loose = _varies(x) or (not _joins(x) and any(r.name in varying for r in sources(x)))
                guarded = x.guard is not None and x.guard.name in varying
                for n in names:
                    alone = s.index in some and (defined[n] > 1 or s.index in ragged)
                    if n not in warps and (loose or guarded or alone or _in_memory(x)):
                        varying.add(n)
        if len(varying) == before:
            return frozenset(varying)


def _in_memory(x: Instruction) -> bool:
    """Vector loads give vectors: their users are mostly lanes' own data."""
    return x.parts[0] == "ld" and x.parts[1] != "param" and isinstance(x.operands[0], Vector) and isinstance(x.operands[1], Memory)
