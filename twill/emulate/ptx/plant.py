"""A planted fault as PTX text, so that an assembler can make a GPU run what the emulator runs."""

from __future__ import annotations

import re

from twill.emulate.errors import EmulationError
from twill.emulate.ptx.syntax import Immediate, Instruction, Memory, Negated, Operand, Pair, Register, Sink, Special, Symbol, Vector

__all__ = ["planted", "written"]


def planted(ptx: str, old: Instruction, new: tuple[Instruction, ...], registers: dict[str, str]) -> str:
    """``ptx`` with the statement of ``old`` replaced, and nothing else: all lines keep their numbers.

    ``registers`` maps names that only ``new`` uses to their types; they are declared in a scope around it.

    Raises
    ------
    EmulationError : the statement is not to be found on its line.
    """
    begin = 0
    for _ in range(old.line - 1):
        begin = ptx.index("\n", begin) + 1
    end = ptx.index("\n", begin)
    found = list(re.finditer(r"(?:@!?[\w%$]+\s+)?(?<![\w.])" + re.escape(old.opcode) + r"(?![\w.:])[^;]*;", ptx[begin:end]))
    if len(found) != 1:
        raise EmulationError(
            f"PTX line {old.line} has {len(found)} statements {old.opcode}, one was expected",
            "give the PTX that the kernel was parsed from",
        )
    code = " ".join(written(x) for x in new)
    if registers:
        declared = " ".join(f".reg .{kind} {_original(name)};" for name, kind in registers.items())
        code = f"{{ {declared} {code} }}"
    return ptx[: begin + found[0].start()] + code + ptx[begin + found[0].end() :]


def written(x: Instruction) -> str:
    """An instruction as PTX, for the scope that it was read in."""
    guard = "" if x.guard is None else f"@{'!' if x.guard_negated else ''}{_original(x.guard.name)} "
    rest = [_original(x.label)] if x.label is not None else [_operand(o, x.parts[-1]) for o in x.operands]
    return f"{guard}{x.opcode} {', '.join(rest)};"


def _original(name: str) -> str:
    """A name without what the parser appends for an inner scope."""
    return name.partition("@")[0]


def _operand(o: Operand, kind: str) -> str:
    match o:
        case Register(name) | Special(name):
            return _original(name)
        case Immediate(bits) if kind in ("f32", "f64"):
            return f"0f{bits:08X}" if kind == "f32" else f"0d{bits:016X}"
        case Immediate(bits):
            return str(bits)
        case Symbol(name, offset):
            return _original(name) + (f"+{offset}" if offset else "")
        case Negated(register):
            return "!" + _original(register.name)
        case Sink():
            return "_"
        case Pair(first, second):
            return f"{_operand(first, kind)}|{_operand(second, kind)}"
        case Vector(items):
            return f"{{{', '.join(_operand(i, kind) for i in items)}}}"
        case Memory(base, offset, coordinates):
            return f"[{_address(base, offset)}{', ' + _operand(Vector(coordinates), kind) if coordinates else ''}]"
    raise AssertionError(f"no operand: {o}")


def _address(base: Operand, offset: int) -> str:
    if isinstance(base, Symbol):
        return _operand(Symbol(base.name, base.offset + offset), "")
    return _operand(base, "") + (f"+{offset}" if offset else "")
