"""Writes the Python source of one segment: registers become local variables, one line an instruction or so.

A register is 32 lanes of numpy, or one Python integer if it is uniform (`twill.emulate.ptx.uniform`). Vector registers of 32 bits are kept
as ``f32`` if floating-point instructions write them, else as ``u32``; other views are made where they are read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from twill.emulate.errors import EmulationError
from twill.emulate.ptx.operands import sources, targets
from twill.emulate.ptx.syntax import Immediate, Instruction, Negated, Operand, Register, Sink, Special, Symbol, Vector

__all__ = ["WIDTH", "Emitter", "Program", "Value"]

WIDTH = {"pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16, "b32": 32, "u32": 32, "s32": 32,
         "f32": 32, "f16x2": 32, "bf16x2": 32, "b64": 64, "u64": 64, "s64": 64, "f64": 64, "f32x2": 64}  # fmt: skip
FORM = {"pred": "pv", "b16": "u16", "u16": "u16", "s16": "i16", "f16": "f16", "bf16": "u16", "b32": "u32", "u32": "u32", "s32": "i32",
        "f32": "f32", "f16x2": "u32", "bf16x2": "u32", "b64": "u64", "u64": "u64", "s64": "i64", "f64": "f64", "f32x2": "f32",
        "b8": "u16", "u8": "u16", "s8": "i16"}  # fmt: skip
"""How a PTX type is seen by numpy."""
MASK = {1: "1", 8: "0xFF", 16: "0xFFFF", 32: "0xFFFFFFFF", 64: "0xFFFFFFFFFFFFFFFF"}
FLOATS = ("f16", "f32", "f64", "f32x2")


@dataclass(frozen=True, slots=True)
class Value:
    """An expression and whether it is one Python number for all lanes."""

    text: str
    uniform: bool

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Program:
    """What is known of a kernel's registers before code is written: place in the register file, bits, uniform or not, kept form."""

    slots: dict[str, int]
    widths: dict[str, int]
    varying: frozenset[str]
    forms: dict[str, str]
    used: frozenset[str] = frozenset()
    """Registers that some instruction reads."""
    of_warp: frozenset[str] = frozenset()
    """Uniform registers that are computed from the thread number: lane 0 tells."""


@dataclass
class Emitter:
    """Source of one segment.

    ``mask`` is the variable of the active lanes, None if all are; ``constant`` names an object that the code refers to; ``spins`` says
    that the segment is only a wait.
    """

    program: Program
    mask: str | None
    constant: Callable[[object], str]
    lines: list[str] = field(default_factory=list)
    spins: bool = False
    _held: dict[str, str] = field(default_factory=dict)
    _views: dict[tuple[str, str], str] = field(default_factory=dict)
    _written: dict[str, None] = field(default_factory=dict)
    _names: int = 0
    _indent: int = 1

    def line(self, text: str) -> None:
        """Add a statement."""
        self.lines.append("    " * self._indent + text)

    def name(self) -> str:
        """A fresh variable."""
        self._names += 1
        return f"v{self._names}"

    # reading

    def held(self, register: str) -> str:
        """The variable with a register's value, in the form it is kept."""
        if register not in self._held:
            name = self.name()
            self.line(f"{name} = R[{self.program.slots[register]}]")
            self._held[register] = name
        return self._held[register]

    def uniform(self, operand: Operand) -> bool:
        match operand:
            case Register(name):
                return name not in self.program.varying
            case Negated(register):
                return register.name not in self.program.varying
            case Special(name):
                return name not in ("%tid.x", "%tid.y", "%tid.z", "%laneid")
        return True

    def get(self, operand: Operand, kind: str) -> Value:
        """An operand read as a PTX type. Uniform integers are Python ints, signed if the type is; ``pred`` a bool."""
        match operand:
            case Immediate(bits):
                return Value(_literal(bits, kind), True)
            case Negated(register):
                inner = self.get(register, "pred")
                return Value(f"(not {inner})" if inner.uniform else f"(~{inner})", inner.uniform)
            case Symbol(name, offset):
                return Value(f"w.address({name!r}, {offset})", True)
            case Special(name):
                return Value(f"w.special({name!r})", self.uniform(operand))
            case Register(name):
                return self._register(name, kind)
        raise EmulationError(f"operand {operand!r} cannot be read as {kind}", "extend twill/emulate/isa")

    def _register(self, name: str, kind: str) -> Value:
        held = self.held(name)
        width = self.program.widths[name]
        if name not in self.program.varying:
            if kind in FLOATS or kind in ("bf16",):
                return Value(f"{kind}_of({held})", True)
            if kind.startswith("s"):
                return Value(f"signed({held}, {WIDTH[kind]})", True)
            return Value(held if width <= WIDTH[kind] or kind == "pred" else f"({held} & {MASK[WIDTH[kind]]})", True)
        have, want = self.program.forms[name], FORM[kind]
        if have == want:
            return Value(held, False)
        key = (name, want)
        if key not in self._views:
            view = self.name()
            if width == WIDTH[kind]:
                self.line(f"{view} = {held}.view({want})")
            elif WIDTH[kind] == 8:
                self.line(f"{view} = {held}.view(u{width}).astype({'i8' if kind == 's8' else 'u8'}).astype({want})")
            else:
                self.line(f"{view} = {held}.view(u{width}).astype(u{WIDTH[kind]}).view({want})")
            self._views[key] = view
        return Value(self._views[key], False)

    def scalar(self, text: str) -> str:
        """The value that the active lanes agree on."""
        return f"one({text}, {self.mask})"

    # writing

    def put(self, operand: Operand, text: str, kind: str, uniform: bool) -> None:
        """Write a result, given as an expression of a PTX type; integers of uniform results are cut to the type's width here."""
        if isinstance(operand, Sink):
            self.line(text)
            return
        assert isinstance(operand, Register), operand
        name, fresh = operand.name, self.name()
        width = self.program.widths[name]
        if name not in self.program.varying:
            if not uniform and name in self.program.of_warp:
                text = f"{'bool' if kind == 'pred' else 'int'}(({text})[0])"
            elif not uniform:
                raise EmulationError(
                    f"register {name} was taken for uniform but gets lanes' own values", "report this: it is a mistake of twill"
                )
            cut = text if kind == "pred" else f"({text}) & {MASK[width]}"
            self.line(f"{fresh} = {cut}")
        else:
            form = self.program.forms[name]
            if uniform:
                value = f"spread({text}, {FORM[kind]}, {32 * (2 if kind == 'f32x2' else 1)})" if kind != "pred" else f"full32({text}, pv)"
            else:
                value = text
            if kind != "pred" and WIDTH[kind] != width:
                value = f"widen({value}, {FORM[kind]}, u{width})"
                value = value if form == f"u{width}" else f"{value}.view({form})"
            elif FORM[kind] != form or kind == "f32x2":
                value = f"({value}).view({form})"
            if self.mask is not None:
                self.line(f"{fresh} = where({self.mask}, {value}, {self.held(name)})")
            else:
                self.line(f"{fresh} = {value}")
        self._set(name, fresh)

    def copy(self, target: Operand, source: Operand, kind: str) -> None:
        """Move a value; none of its bits change."""
        assert isinstance(target, Register), target
        if (
            isinstance(source, Register)
            and self.mask is None
            and target.name in self.program.varying
            and source.name in self.program.varying
        ):
            have, want = self.program.forms[source.name], self.program.forms[target.name]
            held = self.held(source.name)
            if have == want:
                self._set(target.name, held)
                return
            if self.program.widths[source.name] == self.program.widths[target.name]:
                fresh = self.name()
                self.line(f"{fresh} = {held}.view({want})")
                self._set(target.name, fresh)
                return
        if kind != "pred":
            kind = f"b{WIDTH[kind]}"
        value = self.get(source, kind)
        self.put(target, str(value), kind, value.uniform)

    def put_parts(self, target: Vector, source: Operand, width: int) -> None:
        """``mov {a, b}, c``: a gets the low bits."""
        part = width // len(target.items)
        value = self.get(source, f"b{width}")
        for i, item in enumerate(target.items):
            if isinstance(item, Sink):
                continue
            if value.uniform:
                self.put(item, f"({value} >> {i * part}) & {MASK[part]}", f"b{part}", True)
            else:
                self.put(item, f"{value}.view(u{part})[{i}::{len(target.items)}].copy()", f"b{part}", False)

    def put_joined(self, target: Operand, source: Vector, width: int) -> None:
        """``mov c, {a, b}``: a gives the low bits."""
        part = width // len(source.items)
        values = [self.get(item, f"b{part}") for item in source.items]
        if all(v.uniform for v in values):
            self.put(target, " | ".join(f"({v} << {i * part})" for i, v in enumerate(values)), f"b{width}", True)
        else:
            self.put(target, f"join(({', '.join(map(str, values))}), u{part}, u{width})", f"b{width}", False)

    def _set(self, register: str, variable: str) -> None:
        self._held[register] = variable
        self._written[register] = None
        for key in [k for k in self._views if k[0] == register]:
            del self._views[key]

    def flush(self, registers: tuple[Register, ...]) -> None:
        """Put registers into the register file now, because the machine reads or changes them there."""
        for r in registers:
            if r.name in self._written:
                self.line(f"R[{self.program.slots[r.name]}] = {self._held[r.name]}")
                del self._written[r.name]

    def forget(self, registers: tuple[Register, ...]) -> None:
        """The machine has changed these in the register file."""
        for r in registers:
            self._held.pop(r.name, None)
            self._written.pop(r.name, None)
            for key in [k for k in self._views if k[0] == r.name]:
                del self._views[key]

    def store(self, live: frozenset[str] | None) -> None:
        """Put back what was written and is live (all of it for None)."""
        for name in self._written:
            if live is None or name in live:
                self.line(f"R[{self.program.slots[name]}] = {self._held[name]}")

    # predication

    def guarded(self, x: Instruction, body: Callable[[], None]) -> None:
        """Run ``body``, which writes the instruction, under its guard."""
        assert x.guard is not None
        guard = self.get(x.guard, "pred")
        old = {r.name: self.held(r.name) for r in (*targets(x), *sources(x))}
        self.flush(tuple(Register(n) for n in old))
        held, views, outer = dict(self._held), dict(self._views), self.mask
        if guard.uniform:
            self.line(f"if {'not ' if x.guard_negated else ''}{guard}:")
        else:
            chosen = self.name()
            inner = f"(~{guard})" if x.guard_negated else str(guard)
            self.line(f"{chosen} = {inner}" + (f" & {outer}" if outer else ""))
            self.line(f"if {chosen}.any():")
            self.mask = chosen
        self._indent += 1
        self.line("pass")
        body()
        self._indent -= 1
        self.mask = outer
        changed = {r.name for r in targets(x)}
        again = {n: self._held[n] for n in changed if n in self._held and self._held[n] != old[n]}
        if again:
            self.line("else:")
            for n, variable in again.items():
                self.line(f"    {variable} = {old[n]}")
        self._held = {n: v for n, v in held.items() if n in self._held} | again
        self._views = {k: v for k, v in views.items() if k[0] not in changed}


def _literal(bits: int, kind: str) -> str:
    if kind == "pred":
        return str(bool(bits))
    if kind in ("f16", "bf16", "f32", "f64", "f32x2"):
        return f"{kind}_of({bits & int(MASK[WIDTH[kind]], 16)})"
    width = WIDTH[kind]
    bits &= (1 << width) - 1
    if kind.startswith("s") and bits >> (width - 1):
        bits -= 1 << width
    return str(bits) if bits >= 0 else f"({bits})"
