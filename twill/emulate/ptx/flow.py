"""Control flow of a kernel: segments of straight-line code, what follows them, where divergent lanes meet again, what is live."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from twill.emulate.ptx.operands import sources, targets
from twill.emulate.ptx.syntax import Instruction, Kernel

__all__ = ["EXIT", "Flow", "Segment"]

EXIT = -1
"""The successor of a segment that ends the thread."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Instructions ``begin`` up to ``end``; control goes to one of ``successors`` (taken branch first)."""

    index: int
    begin: int
    end: int
    successors: tuple[int, ...]


def _ends(instruction: Instruction) -> bool:
    return instruction.parts[0] in ("bra", "ret", "exit", "trap")


class Flow:
    """The segments of a kernel, cut at labels, after jumps, and before the instructions of ``cuts``."""

    def __init__(self, kernel: Kernel, cuts: Iterable[int] = ()) -> None:
        self.kernel = kernel
        code = kernel.instructions
        starts = {0, *cuts, *(at for at in kernel.labels.values() if at < len(code))}
        starts |= {i + 1 for i, x in enumerate(code) if _ends(x) and i + 1 < len(code)}
        ordered = sorted(starts)
        self._at = {begin: i for i, begin in enumerate(ordered)}
        ends = [*ordered[1:], len(code)]
        self.segments = tuple(Segment(i, b, e, self._successors(b, e)) for i, (b, e) in enumerate(zip(ordered, ends, strict=True)))

    def _successors(self, begin: int, end: int) -> tuple[int, ...]:
        code = self.kernel.instructions
        last = code[end - 1]
        follows = self._at[end] if end < len(code) else EXIT
        if last.parts[0] in ("ret", "exit", "trap"):
            return (EXIT,) if last.guard is None else (EXIT, follows)
        if last.parts[0] == "bra":
            target = self.target(last)
            return (target,) if last.guard is None else (target, follows)
        return (follows,)

    def target(self, branch: Instruction) -> int:
        """Segment that a branch jumps to."""
        assert branch.label is not None
        at = self.kernel.labels[branch.label]
        return self._at.get(at, EXIT)

    @cached_property
    def postdominators(self) -> tuple[frozenset[int], ...]:
        """For every segment the segments that each path to the exit goes through, itself included."""
        n = len(self.segments)
        everything = (1 << n) - 1
        found = [everything] * n
        changed = True
        while changed:
            changed = False
            for s in reversed(self.segments):
                meet = everything
                for t in s.successors:
                    meet &= 0 if t == EXIT else found[t]
                new = meet | (1 << s.index)
                if new != found[s.index]:
                    found[s.index], changed = new, True
        return tuple(frozenset(j for j in range(n) if bits >> j & 1) for bits in found)

    def region(self, branch: int) -> frozenset[int]:
        """Segments that run with only a part of the lanes if the jump at the end of ``branch`` diverges."""
        stop = self.postdominators[branch] - {branch}
        seen: set[int] = set()
        todo = [t for t in self.segments[branch].successors if t != EXIT]
        while todo:
            at = todo.pop()
            if at in seen or at in stop:
                continue
            seen.add(at)
            todo += [t for t in self.segments[at].successors if t != EXIT]
        return frozenset(seen)

    @cached_property
    def live_out(self) -> tuple[frozenset[str], ...]:
        """Registers whose value may be read after each segment."""
        names = {name: i for i, name in enumerate(self.kernel.registers)}
        used, killed = [], []
        for s in self.segments:
            use, kill = 0, 0
            for x in self.kernel.instructions[s.begin : s.end]:
                for r in sources(x):
                    if not kill >> names[r.name] & 1:
                        use |= 1 << names[r.name]
                if x.guard is None:
                    for r in targets(x):
                        kill |= 1 << names[r.name]
            used.append(use)
            killed.append(kill)
        into, out = [0] * len(self.segments), [0] * len(self.segments)
        changed = True
        while changed:
            changed = False
            for s in reversed(self.segments):
                o = 0
                for t in s.successors:
                    o |= 0 if t == EXIT else into[t]
                i = used[s.index] | (o & ~killed[s.index])
                if o != out[s.index] or i != into[s.index]:
                    out[s.index], into[s.index], changed = o, i, True
        by_index = list(names)
        return tuple(frozenset(_members(bits, by_index)) for bits in out)


def _members(bits: int, names: list[str]) -> list[str]:
    found = []
    while bits:
        low = bits & -bits
        found.append(names[low.bit_length() - 1])
        bits ^= low
    return found
