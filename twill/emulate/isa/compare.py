"""Comparisons. PTX ISA 9.7.6 (setp)."""

from __future__ import annotations

from twill.emulate.isa.emitter import Emitter
from twill.emulate.isa.registry import rule
from twill.emulate.ptx.syntax import Instruction, Pair

__all__: list[str] = []

ORDERED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
UNORDERED = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}
JOINED = {"and": "&", "or": "|", "xor": "^"}


@rule(
    r"setp\.(eq|ne|lt|le|gt|ge|lo|ls|hi|hs)(\.(and|or|xor))?\.[bus](16|32|64)",
    r"setp\.(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan)(\.(and|or|xor))?(\.ftz)?\.(f32|f64)",
)
def _setp(e: Emitter, x: Instruction) -> None:
    parts = [p for p in x.parts if p != "ftz"]
    comparison, kind = parts[1], parts[-1]
    a, b = e.get(x.operands[1], kind), e.get(x.operands[2], kind)
    if comparison in ("num", "nan"):
        text = f"(({a} == {a}) & ({b} == {b}))"
        text = f"~{text}" if comparison == "nan" else text
    elif kind.startswith("f"):
        unordered = comparison in UNORDERED
        text = f"({a} {(UNORDERED if unordered else ORDERED)[comparison]} {b})"
        if unordered and comparison != "neu":
            text = f"({text} | ({a} != {a}) | ({b} != {b}))"
        elif comparison == "ne":
            text = f"({text} & ({a} == {a}) & ({b} == {b}))"
    else:
        text = f"({a} {ORDERED[comparison]} {b})"
    uniform = a.uniform and b.uniform
    first = x.operands[0].first if isinstance(x.operands[0], Pair) else x.operands[0]
    plain = text
    if len(x.operands) > 3:
        c = e.get(x.operands[3], "pred")
        text, uniform = f"{plain} {JOINED[parts[2]]} {c}", uniform and c.uniform
    e.put(first, text, "pred", uniform)
    if isinstance(x.operands[0], Pair):
        opposite = f"not {plain}" if a.uniform and b.uniform else f"~{plain}"
        if len(x.operands) > 3:
            opposite = f"({opposite}) {JOINED[parts[2]]} {e.get(x.operands[3], 'pred')}"
        e.put(x.operands[0].second, opposite, "pred", uniform)
