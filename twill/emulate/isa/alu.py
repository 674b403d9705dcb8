"""Integer arithmetic, logic, moves. PTX ISA 9.7.1 (integer), 9.7.8 (logic and shift), 9.7.9 (data movement)."""

from __future__ import annotations

from twill.emulate.isa.emitter import FORM, MASK, WIDTH, Emitter
from twill.emulate.isa.registry import rule
from twill.emulate.ptx.syntax import Immediate, Instruction, Vector

__all__: list[str] = []

OPERATORS = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}


@rule(r"(add|sub)\.[su](16|32|64)", r"(and|or|xor)\.(pred|b16|b32|b64)")
def _binary(e: Emitter, x: Instruction) -> None:
    kind = x.parts[1]
    a, b = e.get(x.operands[1], kind), e.get(x.operands[2], kind)
    text, uniform = f"{a} {OPERATORS[x.parts[0]]} {b}", a.uniform and b.uniform
    if kind.startswith(("u", "s")) and not uniform and (a.uniform or b.uniform):
        # numpy refuses Python integers that the type cannot hold
        unsigned = "u" + kind[1:]
        a, b = e.get(x.operands[1], unsigned), e.get(x.operands[2], unsigned)
        e.put(x.operands[0], f"{a} {OPERATORS[x.parts[0]]} {b}", unsigned, False)
        return
    e.put(x.operands[0], text, kind, uniform)


@rule(r"not\.(pred|b16|b32|b64)")
def _not(e: Emitter, x: Instruction) -> None:
    kind = x.parts[1]
    a = e.get(x.operands[1], kind)
    e.put(x.operands[0], f"not {a}" if a.uniform and kind == "pred" else f"~{a}", kind, a.uniform)


@rule(r"neg\.s(16|32|64)", r"abs\.s(16|32|64)")
def _unary(e: Emitter, x: Instruction) -> None:
    kind = x.parts[1]
    a = e.get(x.operands[1], kind)
    e.put(x.operands[0], f"-{a}" if x.parts[0] == "neg" else f"abs({a})", kind, a.uniform)


@rule(r"shl\.b(16|32|64)", r"shr\.[usb](16|32|64)")
def _shift(e: Emitter, x: Instruction) -> None:
    """Shifts by the register width or more give 0, or the sign."""
    kind = x.parts[1]
    width, signed = WIDTH[kind], kind.startswith("s")
    a, n = e.get(x.operands[1], kind), e.get(x.operands[2], "u32")
    left = x.parts[0] == "shl"
    if a.uniform and n.uniform:
        text = f"{a} << min({n}, {width})" if left else f"{a} >> min({n}, {width})"
        e.put(x.operands[0], text, kind, True)
        return
    if n.uniform and isinstance(x.operands[2], Immediate):
        amount = min(x.operands[2].bits, width)
        whole = f"{a} >> {width - 1}" if signed else f"{a} * 0"
        text = whole if amount == width else f"{a} {'<<' if left else '>>'} {amount}"
        e.put(x.operands[0], text, kind, False)
        return
    e.put(x.operands[0], f"{'left' if left else 'right'}({a}, {n}, {FORM[kind]}, {width})", kind, False)


@rule(r"mul\.lo\.[us](16|32|64)", r"mad\.lo\.[us](16|32|64)")
def _low(e: Emitter, x: Instruction) -> None:
    kind = "u" + x.parts[2][1:]
    values = [e.get(o, kind) for o in x.operands[1:]]
    text = f"{values[0]} * {values[1]}" + (f" + {values[2]}" if len(values) > 2 else "")
    if not all(v.uniform for v in values) and values[0].uniform and values[1].uniform:
        text = f"(({values[0]} * {values[1]}) & {MASK[WIDTH[kind]]}) + {values[2]}"
    e.put(x.operands[0], text, kind, all(v.uniform for v in values))


@rule(r"(mul|mad)\.wide\.[us](16|32)")
def _wide(e: Emitter, x: Instruction) -> None:
    kind = x.parts[2]
    wide = kind[0] + str(2 * WIDTH[kind])
    a, b = e.get(x.operands[1], kind), e.get(x.operands[2], kind)
    if a.uniform and b.uniform:
        product = f"{a} * {b}"
    else:
        first, second = (a, b) if not a.uniform else (b, a)
        right = f"{second}" if second.uniform else f"{second}.astype({FORM[wide]})"
        product = f"{first}.astype({FORM[wide]}) * {right}"
    uniform = a.uniform and b.uniform
    if x.parts[0] == "mad":
        c = e.get(x.operands[3], wide)
        product, uniform = f"{product} + {c}", uniform and c.uniform
    e.put(x.operands[0], product, wide, uniform)


@rule(r"mul\.hi\.[us](16|32)")
def _high(e: Emitter, x: Instruction) -> None:
    kind = x.parts[2]
    bits = WIDTH[kind]
    wide = kind[0] + str(2 * bits)
    a, b = e.get(x.operands[1], kind), e.get(x.operands[2], kind)
    if a.uniform and b.uniform:
        e.put(x.operands[0], f"({a} * {b}) >> {bits}", kind, True)
        return
    first, second = (a, b) if not a.uniform else (b, a)
    right = f"{second}" if second.uniform else f"{second}.astype({FORM[wide]})"
    e.put(x.operands[0], f"(({first}.astype({FORM[wide]}) * {right}) >> {bits}).astype({FORM[kind]})", kind, False)


@rule(r"(div|rem)\.[us](16|32|64)")
def _divide(e: Emitter, x: Instruction) -> None:
    """Toward zero; the remainder has the sign of the dividend."""
    kind = x.parts[1]
    a, b = e.get(x.operands[1], kind), e.get(x.operands[2], kind)
    if a.uniform and b.uniform:
        e.put(x.operands[0], f"{x.parts[0]}_int({a}, {b})", kind, True)
        return
    e.put(x.operands[0], f"{x.parts[0]}_lanes({a}, {b}, {FORM[kind]})", kind, False)


@rule(r"(min|max)(\.relu)?\.[us](16|32|64)")
def _extreme(e: Emitter, x: Instruction) -> None:
    kind = x.parts[-1]
    a, b = e.get(x.operands[1], kind), e.get(x.operands[2], kind)
    uniform = a.uniform and b.uniform
    text = f"{x.parts[0]}({a}, {b})" if uniform else f"np.{x.parts[0]}imum({a}, {b})"
    if "relu" in x.parts:
        text = f"max({text}, 0)" if uniform else f"np.maximum({text}, 0)"
    e.put(x.operands[0], text, kind, uniform)


@rule(r"selp\.(b16|b32|b64|s32|u32|s64|u64|f32|f64|s16|u16)")
def _select(e: Emitter, x: Instruction) -> None:
    kind = x.parts[1]
    p = e.get(x.operands[3], "pred")
    kind = kind if not (p.uniform and kind.startswith("f")) else "b" + kind[1:]
    a, b = e.get(x.operands[1], kind), e.get(x.operands[2], kind)
    uniform = p.uniform and a.uniform and b.uniform
    if uniform or (p.uniform and a.uniform == b.uniform):
        e.put(x.operands[0], f"{a} if {p} else {b}", kind, uniform)
    else:
        e.put(x.operands[0], f"select({p}, {a}, {b}, {FORM[kind]})", kind, False)


@rule(r"mov\.(pred|[bus](16|32|64)|f32|f64)")
def _move(e: Emitter, x: Instruction) -> None:
    kind, (target, source) = x.parts[1], x.operands
    if isinstance(target, Vector):
        e.put_parts(target, source, WIDTH[kind])
    elif isinstance(source, Vector):
        e.put_joined(target, source, WIDTH[kind])
    else:
        e.copy(target, source, kind)


@rule(r"bfe\.u32")
def _extract(e: Emitter, x: Instruction) -> None:
    values = [e.get(o, "u32") for o in x.operands[1:]]
    e.put(x.operands[0], f"bfe({', '.join(map(str, values))})", "u32", all(v.uniform for v in values))


@rule(r"(popc|clz|brev|bfind)\.[bus]32")
def _count(e: Emitter, x: Instruction) -> None:
    a = e.get(x.operands[1], "b32")
    e.put(x.operands[0], f"{x.parts[0]}_{'int' if a.uniform else 'lanes'}({a})", "u32", a.uniform)


@rule(r"prmt\.b32")
def _permute(e: Emitter, x: Instruction) -> None:
    values = [e.get(o, "b32") for o in x.operands[1:]]
    uniform = all(v.uniform for v in values)
    e.put(x.operands[0], f"prmt_{'int' if uniform else 'lanes'}({', '.join(map(str, values))})", "b32", uniform)


@rule(r"lop3\.b32")
def _logic(e: Emitter, x: Instruction) -> None:
    a, b, c = (e.get(o, "b32") for o in x.operands[1:4])
    table = x.operands[4]
    assert isinstance(table, Immediate)
    terms = []
    for i in range(8):
        if table.bits >> i & 1:
            signs = ((v, i >> (2 - j) & 1) for j, v in enumerate((a, b, c)))
            terms.append("(" + " & ".join(str(v) if sign else f"({v} ^ 0xFFFFFFFF)" for v, sign in signs) + ")")
    uniform = a.uniform and b.uniform and c.uniform
    text = " | ".join(terms) or "0"
    if not uniform and not terms:
        text, uniform = "0", True
    e.put(x.operands[0], text, "b32", uniform)


@rule(r"cvta\.(param|shared|global|to\.global|to\.shared|to\.shared::cluster|shared::cta|shared::cluster)\.[us](32|64)")
def _generic(e: Emitter, x: Instruction) -> None:
    """Generic addresses equal those of their windows here."""
    e.copy(x.operands[0], x.operands[1], "b64" if x.parts[-1].endswith("64") else "b32")
