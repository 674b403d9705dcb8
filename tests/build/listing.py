"""Write listings as ``nvdisasm -c -gp`` does: a line of code is ``[LABEL:] [@P0] OPCODE operands [#LINE]``, LINE being that of PTX."""

from __future__ import annotations

import re
from collections.abc import Iterable

from twill.build.sass import Function, parse

LINE = re.compile(r"(?:(\.L_\w+):)?\s*(?:(@!?U?P\w+)\s+)?(\S+)(?:\s+(.*?))?\s*(?:#(\d+))?$")


def listing(code: Iterable[str], name: str = "kernel") -> str:
    rows = [
        "\t.target\tsm_90a",
        f"//------- .text.{name} -------",
        f'\t.section\t.text.{name},"ax",@progbits',
        f"{name}:",
        f".text.{name}:",
    ]
    for address, text in enumerate(x.strip() for x in code):
        found = LINE.match(text)
        assert found, text
        label, predicate, opcode, operands, line = found.groups()
        if label:
            rows.append(f"{label}:")
        if line:
            rows.append(f'\t//## File ".nv_debug_ptx_txt", line {line}')
        operands = re.sub(r"(\.L_\w+)", r"`(\1)", operands or "")
        rows.append(f"        /*{16 * address:04x}*/             {predicate or '':>6} {opcode} {operands} ;")
    return "\n".join(rows) + "\n"


def function(code: Iterable[str]) -> Function:
    (found,) = parse(listing(code))
    return found


def wait(label: str, address: str, line: int) -> list[str]:
    """A wait as the assembler writes it: a try, a sleep, another try, and again."""
    return [
        f"{label}: SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [{address}], R3 #{line}",
        "@!P0 NANOSLEEP.SYNCS 0x989680",
        f"@!P0 SYNCS.PHASECHK.TRANS64 P0, [{address}], R3",
        f"@!P0 BRA {label}",
    ]
