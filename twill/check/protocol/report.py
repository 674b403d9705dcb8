"""What the protocol check says: findings, and the rate that the synchronization permits."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

__all__ = ["ProtocolFinding", "ProtocolReport", "protocol_finding"]


@dataclass(frozen=True, slots=True)
class ProtocolFinding:
    """One way in which a WarpProgram is wrong.

    Attributes
    ----------
    rule : ``structure``, ``deadlock``, ``phase``, ``edge`` or ``race``.
    role : the role that would have to act otherwise: the one that waits too little, say; "" if none is to blame.
    barrier : the barrier it is about, several joined by ", "; "" if there is none.
    edge : the dependence that is not kept: ``edge QK_a->MAX_a``, ``release K by QK_a``; "" if it is about no dependence.
    message : a whole sentence that repeats the three.
    """

    rule: str
    role: str
    barrier: str
    edge: str
    message: str

    def __str__(self) -> str:
        return self.message


def protocol_finding(rule: str, text: str, *, role: str = "", barrier: str = "", edge: str = "") -> ProtocolFinding:
    """A finding whose message is ``rule: role R, barrier B, edge: text``, naming what applies."""
    where = ", ".join(x for x in (role and f"role {role}", barrier and f"barrier {barrier}", edge) if x)
    return ProtocolFinding(rule, role, barrier, edge, f"{rule}: {where}: {text}" if where else f"{rule}: {text}")


@dataclass(frozen=True, slots=True)
class ProtocolReport:
    """All findings about one WarpProgram, and how fast its synchronization lets it run.

    Attributes
    ----------
    cycle_ratio_cycles : the maximum cycle ratio of the program's event graph: no steady state takes fewer cycles an
        iteration with the given latencies, and one takes exactly these if no unit is contended. None if the program is
        malformed or deadlocks.
    critical_cycle : the cycle that attains it, one step a line.
    ii_cycles : I of the schedule, if it was given.
    """

    findings: tuple[ProtocolFinding, ...] = ()
    cycle_ratio_cycles: Fraction | None = None
    critical_cycle: tuple[str, ...] = ()
    ii_cycles: int | None = None

    @property
    def ok(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        lines = [f.message for f in self.findings] or ["protocol: free of deadlocks and races for every trip count and interleaving"]
        if self.cycle_ratio_cycles is not None:
            beside = "" if self.ii_cycles is None else f"; the schedule's I is {self.ii_cycles}"
            lines.append(f"protocol: synchronization permits one iteration every {float(self.cycle_ratio_cycles):g} cycles{beside}")
            lines += [f"  {step}" for step in self.critical_cycle]
        return "\n".join(lines)
