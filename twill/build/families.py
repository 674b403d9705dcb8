"""Kinds of instructions, by the unit that they keep busy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from twill.build.sass import Instruction

__all__ = ["FAMILIES", "counted", "family"]

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "mma": ("HGMMA", "QGMMA", "IGMMA", "BGMMA", "UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA", "UTCMMA", "HMMA", "IMMA"),
    "exp": ("MUFU",),
    "fma": ("FFMA", "FMUL", "FADD", "IMAD", "IDP", "HFMA2", "FSWZADD"),
    "packed": ("FFMA2", "FMUL2", "FADD2"),
    "convert": ("F2FP", "F2F", "I2F", "F2I", "I2FP", "F2IP"),
    "tma": ("UTMALDG", "UTMASTG", "UTMAREDG", "UTMACCTL", "UTMAPF", "UTMACMDFLUSH", "UBLKCP", "UBLKRED", "UBLKPF"),
    "mbarrier": ("SYNCS", "UTCBAR", "UCGABAR_ARV"),
    "named barrier": ("BAR", "UCGABAR_WAIT"),
    "mma wait": ("WARPGROUP", "WARPGROUPSET", "DEPBAR"),
    "tensor memory": ("LDTM", "STTM", "UTCCP", "UTCSHIFT", "UTCATOMSWS"),
    "shuffle": ("SHFL", "REDUX", "VOTE", "VOTEU"),
    "shared": ("LDS", "STS", "LDSM", "STSM", "ATOMS"),
    "local": ("LDL", "STL"),
    "global": ("LDG", "STG", "LD", "ST", "RED", "ATOM", "ATOMG", "LDGSTS"),
    "branch": ("BRA", "BSSY", "BSYNC", "BREAK", "EXIT", "RET", "CALL", "WARPSYNC", "JMP", "BRX", "JMX"),
    "registers": ("USETMAXREG",),
    "idle": ("NOP", "NANOSLEEP"),
}
"""Opcodes of each family. Others that begin with U, and moves to uniform registers, are ``uniform``; the rest is ``alu``."""

_FAMILY_OF = {prefix: name for name, prefixes in FAMILIES.items() for prefix in prefixes}
UNIFORM = ("R2UR", "S2UR", "ELECT")


def family(x: Instruction) -> str:
    """The family of an instruction."""
    stem = x.opcode.partition(".")[0]
    found = _FAMILY_OF.get(stem)
    if found:
        return found
    return "uniform" if stem in UNIFORM or stem.startswith("U") else "alu"


def counted(code: Iterable[Instruction]) -> dict[str, int]:
    """How many instructions of each family there are, most first."""
    return dict(Counter(family(x) for x in code).most_common())
