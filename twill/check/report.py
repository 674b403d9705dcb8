"""What the checker says: findings, each with the rule, the place and the cycle."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CheckReport", "Finding", "finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One way in which a schedule is wrong.

    Attributes
    ----------
    rule : a rule of ``docs/formulation.md`` section 2, or what else was checked: ``schema``, ``graph``, ``machine``,
        ``options``, ``lower-bounds``, ``derived-fields``, ``rank``, ``proof``.
    op : the op it is about; a buffer, group, unit, edge or field where no single op is to blame.
    cycle : the cycle at which it shows, of iteration 0 (``M(v)``) or of the steady state period (``[0, I)``); the message
        says which. None if no cycle applies.
    message : a whole sentence that repeats rule, op and cycle and gives what is needed and what was found.
    """

    rule: str
    op: str
    cycle: int | None
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All findings about one schedule; none means that it is legal and that all it says of itself is true."""

    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        return "\n".join(f.message for f in self.findings) or "legal"


def finding(rule: str, op: str, cycle: int | None, text: str) -> Finding:
    """A finding whose message is ``rule: op[ at cycle c]: text``."""
    where = op if cycle is None else f"{op} at cycle {cycle}"
    return Finding(rule, op, cycle, f"{rule}: {where}: {text}")
