"""A kernel made runnable: each segment of its PTX as a Python function, for all lanes and, when first needed, for some of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from twill.emulate.isa.arithmetic import NAMESPACE, bf16_of, f16_of, f32_of, f32x2_of, f64_of
from twill.emulate.isa.emitter import WIDTH, Emitter, Program
from twill.emulate.isa.registry import RUNTIME, blocking, converging, find, has_effect, launching, refuse_unknown
from twill.emulate.ptx.flow import EXIT, Flow, Segment
from twill.emulate.ptx.operands import sources, targets
from twill.emulate.ptx.syntax import Immediate, Instruction, Kernel, Parameter, Register
from twill.emulate.ptx.uniform import divergent, of_warp, partial

if TYPE_CHECKING:
    from twill.emulate.machine.names import Names

__all__ = ["Code"]

POISON = 0x7FC0DEAD
LITERAL = re.compile(r"\b(f16_of|bf16_of|f32_of|f64_of|f32x2_of)\((\d+)\)")
MAKERS: dict[str, Callable[[int], Any]] = {
    "f16_of": f16_of, "bf16_of": bf16_of, "f32_of": f32_of, "f64_of": f64_of, "f32x2_of": f32x2_of,
}  # fmt: skip
Function = Callable[..., int]


class Code:
    """The compiled kernel. ``whole[i]`` runs segment i for all lanes of a warp and gives the next segment."""

    def __init__(self, kernel: Kernel, names: Names) -> None:
        refuse_unknown(kernel)
        self.kernel, self.names = kernel, names
        self.flow, varying = _flow(kernel)
        self._partial = partial(self.flow, varying)
        used = frozenset(r.name for x in kernel.instructions for r in sources(x))
        slots = {name: i for i, name in enumerate(kernel.registers)}
        widths = {name: WIDTH[kind] for name, kind in kernel.registers.items()}
        self.program = Program(slots, widths, varying, _forms(kernel, widths), used, of_warp(self.flow) - varying)
        self.initial = [self._poison(name) for name in kernel.registers]
        self._namespace: dict[str, Any] = dict(NAMESPACE) | RUNTIME
        self._some: dict[int, Function] = {}
        self.hits = bytearray(len(self.flow.segments))
        code = kernel.instructions
        self.launching = tuple(sorted({x.line for x in code if launching(x)}))
        self.effects = [any(has_effect(x) for x in code[s.begin : s.end]) for s in self.flow.segments]
        self.needs_all = [s.index in self._partial and _for_all(code[s.begin]) for s in self.flow.segments]
        self.source_text = "\n".join(self._write(s, None) for s in self.flow.segments)
        self.whole = self._compile(self.source_text, [f"s{s.index}" for s in self.flow.segments])
        self._locations = {x.line: x.location for x in code if x.location is not None}

    def masked(self, index: int) -> Function:
        """Segment ``index`` as a function of the warp and the lanes that run it."""
        if index not in self._some:
            text = self._write(self.flow.segments[index], "m")
            self._some[index] = self._compile(text, [f"s{index}"])[0]
        return self._some[index]

    def first_line(self, index: int) -> int:
        """PTX line where a segment begins."""
        return self.kernel.instructions[self.flow.segments[index].begin].line

    def source(self, line: int) -> str:
        """Source line that a PTX line comes from, if the compiler kept it."""
        found = self._locations.get(line)
        return f"{found.file.rsplit('/', 1)[-1]}:{found.line}" if found else ""

    def statement(self, line: int) -> str:
        """The statement of the emitted file that a PTX line comes from, where that is known: a tile operation, or a wait for a barrier."""
        found = self._locations.get(line)
        return self.names.statement(found.column) if found else ""

    def place(self, line: int) -> str:
        """A PTX line with all that is known of it."""
        known = "; ".join(x for x in (self.statement(line), self.source(line)) if x)
        return f"PTX line {line}" + (f" ({known})" if known else "")

    def role(self, warp: int) -> str:
        return self.names.role(warp)

    def parameter(self, name: str) -> Parameter:
        return next(p for p in self.kernel.parameters if p.name == name)

    def launch_registers(self, threads: int) -> int:
        """Registers a thread starts with: what 64 K registers allow, at most 248, in steps of 8 (``setmaxnreg`` needs that), and no more
        than the most that is asked for (ptxas gives a block of 256 threads that asks for 232 these, not 248)."""
        given = self.kernel.directives.get("maxnreg")
        if given:
            return given[0]
        asked = [o.bits for x in self.kernel.instructions if x.parts[0] == "setmaxnreg" for o in x.operands[:1] if isinstance(o, Immediate)]
        return min(248, 65536 // threads // 8 * 8, max(asked, default=248))

    def shared_layout(self, start: int, dynamic: int) -> tuple[Mapping[str, int], int]:
        """Offsets of shared variables, and the end of them all."""
        at, found = start, {}
        for name, (align, size) in sorted(self.kernel.shared.items(), key=lambda item: item[1][1] == 0):
            at = -(-at // align) * align
            found[name] = at
            at += size or dynamic
        return found, at

    def _poison(self, name: str) -> Any:
        width = self.program.widths[name]
        if name not in self.program.varying:
            return False if width == 1 else POISON & ((1 << width) - 1)
        if width == 1:
            return np.zeros(32, bool)
        form = self.program.forms[name]
        if width == 64:
            return np.full(32, POISON << 32 | POISON, np.uint64)
        return np.full(32, POISON & ((1 << width) - 1), f"u{width // 8}").view({"f32": np.float32}.get(form, f"u{width // 8}"))

    def _compile(self, text: str, names: list[str]) -> list[Function]:
        def literal(match: re.Match[str]) -> str:
            name = f"K_{match[1]}_{match[2]}"
            self._namespace[name] = MAKERS[match[1]](int(match[2]))
            return name

        module = compile(LITERAL.sub(literal, text), f"<{self.kernel.name}>", "exec", dont_inherit=True)
        scope: dict[str, Any] = {}
        exec(module, self._namespace, scope)
        return [scope[n] for n in names]

    def constant(self, value: Any) -> str:
        """A name for an object that generated code refers to."""
        name = f"C{len(self._namespace)}"
        self._namespace[name] = value
        return name

    def _write(self, segment: Segment, mask: str | None) -> str:
        e = Emitter(self.program, mask, self.constant)
        code = self.kernel.instructions[segment.begin : segment.end]
        last = code[-1]
        jump = last.parts[0] in ("bra", "ret", "exit")
        for x in code[:-1] if jump else code:
            e.spins = self._spins(segment)
            body = find(x)
            if x.guard is None:
                body(e, x)
            else:
                e.guarded(x, lambda body=body, x=x: body(e, x))  # type: ignore[misc]
        e.store(self.flow.live_out[segment.index] if mask is None else None)
        if jump and last.guard is not None:
            first, second = segment.successors
            p = e.get(last.guard, "pred")
            if p.uniform:
                taken, follows = (second, first) if last.guard_negated else (first, second)
                e.line(f"return {taken} if {p} else {follows}")
            else:
                e.line(f"return w.branch({'~' if last.guard_negated else ''}{p}, {first}, {second}, {mask})")
        else:
            e.line(f"return {segment.successors[0]}")
        arguments = "w" if mask is None else "w, m"
        return f"def s{segment.index}({arguments}):\n    R = w.R\n" + "\n".join(e.lines) + "\n"

    def _spins(self, segment: Segment) -> bool:
        """True if a segment is tried again at once when the jump at its end fails or holds: the code only waits."""
        for t in segment.successors:
            seen = set()
            while t != EXIT and t not in seen:
                if t == segment.index:
                    return True
                seen.add(t)
                body = self.kernel.instructions[self.flow.segments[t].begin : self.flow.segments[t].end]
                if len(self.flow.segments[t].successors) > 1 or any(x.parts[0] not in ("bra", "nanosleep") for x in body):
                    break
                t = self.flow.segments[t].successors[0]
        return False


def _for_all(x: Instruction) -> bool:
    """True if the instruction names all 32 lanes as its members."""
    if not converging(x):
        return False
    members = x.operands[-1]
    return isinstance(members, Immediate) and members.bits & 0xFFFFFFFF == 0xFFFFFFFF


def _flow(kernel: Kernel) -> tuple[Flow, frozenset[str]]:
    cuts = {i for i, x in enumerate(kernel.instructions) if blocking(x)}
    flow = Flow(kernel, cuts)
    varying = divergent(flow)
    some = partial(flow, varying)
    inner = {i for s in flow.segments if s.index in some for i in range(s.begin, s.end) if converging(kernel.instructions[i])}
    return (Flow(kernel, cuts | inner), varying) if inner else (flow, varying)


def _forms(kernel: Kernel, widths: Mapping[str, int]) -> dict[str, str]:
    """How each register is kept: ``f32`` where floating-point instructions write it, through moves too."""
    forms = {name: {1: "pv", 16: "u16", 32: "u32", 64: "u64"}[w] for name, w in widths.items()}
    moves: list[tuple[str, str]] = []
    for x in kernel.instructions:
        floating = x.parts[0] not in ("mov", "selp", "ld", "setp", "shfl", "tcgen05") and x.parts[-1] == "f32" and x.parts[0] != "cvt"
        floating |= x.parts[0] == "cvt" and x.parts[-2] == "f32"
        floating |= x.parts[0] == "wgmma" and len(x.parts) > 5 and x.parts[5] == "f32"
        floating |= x.opcode == "selp.f32" or x.opcode.startswith("fma.rn.f32.")
        for r in targets(x):
            if floating and widths[r.name] == 32:
                forms[r.name] = "f32"
        if (
            x.parts[0] in ("mov", "selp")
            and len(x.operands) > 1
            and isinstance(x.operands[0], Register)
            and isinstance(x.operands[1], Register)
        ):
            moves.append((x.operands[0].name, x.operands[1].name))
    changed = True
    while changed:
        changed = False
        for a, b in moves:
            if forms[b] == "f32" and forms[a] == "u32":
                forms[a], changed = "f32", True
    return forms
