"""From a checked schedule to an explicit program per warp role."""

from twill.lower.lowering import lower
from twill.lower.program import Access, Arrive, Barrier, Execute, Instruction, Role, Storage, Wait, WaitOwn, WarpProgram
from twill.lower.text import listing, to_json

__all__ = [
    "Access", "Arrive", "Barrier", "Execute", "Instruction", "Role", "Storage", "Wait", "WaitOwn", "WarpProgram", "listing", "lower",
    "to_json",
]  # fmt: skip
