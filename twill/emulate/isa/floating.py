"""Floating point. PTX ISA 9.7.3 and 9.7.4. Approximate functions are exact to fp32 rounding here: hardware is a unit or two off."""

from __future__ import annotations

from twill.emulate.isa.emitter import Emitter, Value
from twill.emulate.isa.registry import rule
from twill.emulate.ptx.syntax import Instruction

__all__: list[str] = []

OPERATORS = {"add": "+", "sub": "-", "mul": "*"}
EXTREMES = {"min": "np.fmin", "max": "np.fmax"}


def _operands(e: Emitter, x: Instruction, kind: str = "f32") -> list[str]:
    values: list[Value] = [e.get(o, kind) for o in x.operands[1:]]
    if all(v.uniform for v in values) and kind != "f32x2":
        return [f"full32({values[0]}, {kind})", *(str(v) for v in values[1:])]
    return [str(v) for v in values]


def _put(e: Emitter, x: Instruction, text: str, kind: str = "f32") -> None:
    if "ftz" in x.parts:
        text = f"flush({text})"
    if "sat" in x.parts:
        text = f"saturate({text})"
    e.put(x.operands[0], text, kind, False)


@rule(r"(add|sub|mul)(\.rn)?(\.ftz)?(\.sat)?\.(f32|f64)")
def _arithmetic(e: Emitter, x: Instruction) -> None:
    kind = x.parts[-1]
    a, b = _operands(e, x, kind)
    _put(e, x, f"{a} {OPERATORS[x.parts[0]]} {b}", kind)


@rule(r"(add|sub|mul)(\.rn)?(\.ftz)?\.f32x2")
def _arithmetic_two(e: Emitter, x: Instruction) -> None:
    a, b = _operands(e, x, "f32x2")
    _put(e, x, f"{a} {OPERATORS[x.parts[0]]} {b}", "f32x2")


@rule(r"(add|sub|mul)\.(rm|rp|rz)(\.ftz)?\.(f32|f32x2)")
def _directed(e: Emitter, x: Instruction) -> None:
    """Rounded from the exact value in double precision. Exact for products; for sums unless their exponents are 29 or more apart."""
    kind = x.parts[-1]
    a, b = _operands(e, x, kind)
    _put(e, x, f"directed_{x.parts[0]}({a}, {b}, '{x.parts[1]}')", kind)


@rule(r"(fma|mad)\.rn(\.ftz)?(\.sat)?\.(f32|f32x2)")
def _fused(e: Emitter, x: Instruction) -> None:
    """Product exact in double precision, then rounded twice: differs from one rounding in about 1 of 2^29 cases."""
    kind = x.parts[-1]
    a, b, c = _operands(e, x, kind)
    _put(e, x, f"fma({a}, {b}, {c})", kind)


@rule(r"fma\.rn\.f32\.(bf16|f16)")
def _mixed(e: Emitter, x: Instruction) -> None:
    """Both factors are half precision, the sum is fp32."""
    narrow = x.parts[-1]
    a, b = (e.get(o, "b16") for o in x.operands[1:3])
    c = e.get(x.operands[3], "f32")
    a_text, b_text = (f"from_{narrow}({'full32(' + str(v) + ', u16)' if v.uniform else v})" for v in (a, b))
    e.put(x.operands[0], f"fma({a_text}, {b_text}, {c})", "f32", False)


@rule(r"(min|max)(\.ftz)?(\.NaN)?(\.xorsign)?(\.abs)?\.f32")
def _extreme(e: Emitter, x: Instruction) -> None:
    """With two or three operands; NaN loses unless ``.NaN``."""
    call = ("np.minimum" if x.parts[0] == "min" else "np.maximum") if "NaN" in x.parts else EXTREMES[x.parts[0]]
    values = _operands(e, x)
    if "abs" in x.parts:
        values = [f"abs({v})" for v in values]
    text = values[0]
    for v in values[1:]:
        text = f"{call}({text}, {v})"
    _put(e, x, text)


@rule(r"(neg|abs)(\.ftz)?\.(f32|f64)")
def _sign(e: Emitter, x: Instruction) -> None:
    kind = x.parts[-1]
    (a,) = _operands(e, x, kind)
    _put(e, x, f"-{a}" if x.parts[0] == "neg" else f"abs({a})", kind)


@rule(r"(ex2|lg2|rcp|sqrt|rsqrt|tanh|sin|cos)\.approx(\.ftz)?\.f32", r"(rcp|sqrt)\.rn(\.ftz)?\.f32")
def _function(e: Emitter, x: Instruction) -> None:
    (a,) = _operands(e, x)
    _put(e, x, f"{x.parts[0]}({a})")


@rule(r"div\.(rn|full|approx)(\.ftz)?\.f32")
def _divide(e: Emitter, x: Instruction) -> None:
    a, b = _operands(e, x)
    _put(e, x, f"{a} / {b}")


@rule(r"ex2\.approx(\.ftz)?\.(bf16x2|f16x2)")
def _ex2_two(e: Emitter, x: Instruction) -> None:
    a = e.get(x.operands[1], "b32")
    text = f"full32({a}, u32)" if a.uniform else str(a)
    e.put(x.operands[0], f"ex2_two({text}, '{x.parts[-1][:-2]}')", "b32", False)


@rule(r"(add|sub|mul|fma)\.rn(\.ftz)?\.(bf16x2|f16x2)", r"(add|sub|mul)\.(bf16x2|f16x2)")
def _half_two(e: Emitter, x: Instruction) -> None:
    values = [e.get(o, "b32") for o in x.operands[1:]]
    texts = [f"full32({v}, u32)" if v.uniform else str(v) for v in values]
    e.put(x.operands[0], f"half_two('{x.parts[0]}', '{x.parts[-1][:-2]}', {', '.join(texts)})", "b32", False)


@rule(r"copysign\.f32")
def _copysign(e: Emitter, x: Instruction) -> None:
    """The first operand gives the sign."""
    a, b = _operands(e, x)
    e.put(x.operands[0], f"np.copysign({b}, {a})", "f32", False)
