"""Conversions. PTX ISA 9.7.9 (cvt). Rounding is to nearest even unless said."""

from __future__ import annotations

from twill.emulate.isa.emitter import FORM, MASK, WIDTH, Emitter
from twill.emulate.isa.registry import rule
from twill.emulate.ptx.syntax import Instruction

__all__: list[str] = []


@rule(r"cvt\.[us](8|16|32|64)\.[us](8|16|32|64)")
def _integer(e: Emitter, x: Instruction) -> None:
    to, source = x.parts[1], x.parts[2]
    a = e.get(x.operands[1], source)
    held = to if WIDTH[to] > 8 else to[0] + "16"
    if a.uniform:
        text = str(a)
        if WIDTH[to] < WIDTH[source] and to.startswith("s"):
            text = f"signed({a} & {MASK[WIDTH[to]]}, {WIDTH[to]})"
        e.put(x.operands[0], text, held, True)
        return
    narrow = f".astype({'i8' if to == 's8' else 'u8'})" if WIDTH[to] == 8 else ""
    e.put(x.operands[0], f"{a}{narrow}.astype({FORM[held]})", held, False)


@rule(r"cvt(\.rn)?\.f32\.(f16|bf16)")
def _widen(e: Emitter, x: Instruction) -> None:
    a = e.get(x.operands[1], "b16")
    e.put(x.operands[0], f"from_{x.parts[-1]}({'full32(' + str(a) + ', u16)' if a.uniform else a})", "f32", False)


@rule(r"cvt\.rn(\.relu)?(\.satfinite)?\.(f16|bf16)\.f32")
def _narrow(e: Emitter, x: Instruction) -> None:
    a = _lanes(e, x, 1)
    e.put(x.operands[0], f"to_{x.parts[-2]}({_relu(x, a)})", "b16", False)


@rule(r"cvt\.rn(\.relu)?(\.satfinite)?\.(f16x2|bf16x2)\.f32")
def _narrow_two(e: Emitter, x: Instruction) -> None:
    """The first source goes to the high half."""
    high, low = _lanes(e, x, 1), _lanes(e, x, 2)
    e.put(x.operands[0], f"pack_{x.parts[-2][:-2]}({_relu(x, high)}, {_relu(x, low)})", "b32", False)


@rule(r"cvt\.rn\.f64\.[us](32|64)")
def _to_double(e: Emitter, x: Instruction) -> None:
    a = e.get(x.operands[1], x.parts[-1])
    value = f"full32({a}, {FORM[x.parts[-1]]})" if a.uniform else str(a)
    e.put(x.operands[0], f"{value}.astype(f64)", "f64", False)


@rule(r"cvt\.(rn|rz|rm|rp)\.f32\.[us](16|32|64)")
def _from_integer(e: Emitter, x: Instruction) -> None:
    a = e.get(x.operands[1], x.parts[-1])
    value = f"full32({a}, {FORM[x.parts[-1]]})" if a.uniform else str(a)
    e.put(x.operands[0], f"round_int({value}, '{x.parts[1]}')", "f32", False)


@rule(r"cvt\.(rzi|rni|rmi|rpi)(\.ftz)?\.[us](32|64)\.f32")
def _to_integer(e: Emitter, x: Instruction) -> None:
    """Saturates; NaN gives 0."""
    kind = x.parts[-2]
    e.put(x.operands[0], f"to_int({_lanes(e, x, 1)}, '{x.parts[1]}', {FORM[kind]})", kind, False)


def _lanes(e: Emitter, x: Instruction, at: int) -> str:
    a = e.get(x.operands[at], "f32")
    return f"full32({a}, f32)" if a.uniform else str(a)


def _relu(x: Instruction, text: str) -> str:
    return f"np.fmax({text}, f32(0))" if "relu" in x.parts else text
