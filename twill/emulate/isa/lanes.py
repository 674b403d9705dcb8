"""Lanes of a warp together: shuffles, votes, elections. PTX ISA 9.7.9.6 (shfl), 9.7.13.3-9.7.13.16 (vote, match, redux, elect)."""

from __future__ import annotations

from twill.emulate.isa.emitter import Emitter
from twill.emulate.isa.registry import rule
from twill.emulate.ptx.syntax import Immediate, Instruction, Operand, Pair, Sink

__all__: list[str] = []


@rule(r"shfl\.sync\.(idx|bfly|up|down)\.b32", converges=True)
def _shuffle(e: Emitter, x: Instruction) -> None:
    pair = x.operands[0]
    target: Operand = pair.first if isinstance(pair, Pair) else pair
    inside: Operand | None = pair.second if isinstance(pair, Pair) else None
    a, lane, clamp = e.get(x.operands[1], "b32"), e.get(x.operands[2], "u32"), e.get(x.operands[3], "u32")
    mode = x.parts[2]
    if mode == "idx" and isinstance(x.operands[2], Immediate):
        if a.uniform:
            text = str(a)
        elif isinstance(x.operands[3], Immediate) and x.operands[3].bits == 31:
            text = f"int({a}[{x.operands[2].bits & 31}])"
        else:
            text = f"w.shuffle('{mode}', {a}, {lane}, {clamp})[0]"
            e.put(target, text, "b32", False)
            return
        e.put(target, text, "b32", True)
        if inside is not None:
            e.put(inside, "True", "pred", True)
        return
    value = f"full32({a}, u32)" if a.uniform else str(a)
    both = e.name()
    e.line(f"{both} = w.shuffle('{mode}', {value}, {lane}, {clamp})")
    e.put(target, f"{both}[0]", "b32", False)
    if inside is not None:
        e.put(inside, f"{both}[1]", "pred", False)


@rule(r"vote\.sync\.(any|all|uni)\.pred", r"vote\.sync\.ballot\.b32", converges=True)
def _vote(e: Emitter, x: Instruction) -> None:
    p = e.get(x.operands[1], "pred")
    active = e.mask or "ALL"
    lanes = f"full32({p}, pv)" if p.uniform else str(p)
    mode = x.parts[2]
    kind = "b32" if mode == "ballot" else "pred"
    e.put(x.operands[0], f"vote_{mode}({lanes}, {active})", kind, True)


@rule(r"elect\.sync", converges=True)
def _elect(e: Emitter, x: Instruction) -> None:
    """The lowest active lane (PTX leaves open which)."""
    pair = x.operands[0]
    assert isinstance(pair, Pair)
    chosen = e.name()
    e.line(f"{chosen} = first_of({e.mask or 'ALL'})")
    if not isinstance(pair.first, Sink):
        e.put(pair.first, f"int({chosen}.argmax())", "b32", True)
    e.put(pair.second, chosen, "pred", False)


@rule(r"redux\.sync\.(add|min|max|and|or|xor)\.[usb]32", converges=True)
def _reduce(e: Emitter, x: Instruction) -> None:
    kind = x.parts[-1]
    a = e.get(x.operands[1], kind)
    lanes = f"full32({a}, u32)" if a.uniform else str(a)
    e.put(x.operands[0], f"redux('{x.parts[2]}', {lanes}, {e.mask or 'ALL'})", kind, True)


@rule(r"bar\.warp\.sync", converges=True)
def _warp(e: Emitter, x: Instruction) -> None:
    """Lanes run in step here: a missing one is not seen."""


@rule(r"activemask\.b32")
def _active(e: Emitter, x: Instruction) -> None:
    e.put(x.operands[0], f"vote_ballot(ALL, {e.mask or 'ALL'})", "b32", True)
