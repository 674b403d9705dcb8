"""Put the families together into one formula for a given I."""

from __future__ import annotations

from dataclasses import dataclass, replace

from twill.solver.bounds import distances
from twill.solver.encoding import families, groups, placement, registers
from twill.solver.encoding.formula import Formula
from twill.solver.problem import Problem

__all__ = ["Encoded", "Lazy", "encode"]


@dataclass(frozen=True, slots=True)
class Lazy:
    """Constraints that are only written down once a model broke them; all others are always there.

    Leaving a constraint out keeps every refutation valid, and no model is accepted that breaks it.
    """

    cumulative: bool = False
    registers: bool = False
    levels: tuple[int, ...] = ()
    placement: bool = False

    def with_level(self, level: int) -> Lazy:
        return replace(self, registers=True, levels=tuple(sorted({*self.levels, level})))


@dataclass(slots=True)
class Encoded:
    """A formula and what it was made for, ``margin`` included; ``pressure`` is there once the registers have been spelled out."""

    formula: Formula
    horizon: int
    margin: int = 0
    pressure: list[registers.Pressure] | None = None


def encode(p: Problem, ii: int, horizon: int, lazy: Lazy, margin: int = 0) -> Encoded | None:
    """All rules in force at one I and margin with all ops inside ``horizon``; None if the windows alone are contradictory."""
    known = distances(p, ii, horizon)
    if known is None or any(a > b for a, b in zip(known.early, known.late, strict=True)):
        return None
    f = Formula(ii, known, len(p.ops), p.unit_cycles)
    families.completion(p, f, horizon)
    groups.uniqueness(p, f)
    groups.separation(p, f)
    families.dependence(p, f)
    families.order(p, f)
    if p.on("queueing"):
        families.late(p, f, "queueing", margin)
    if p.on("capacity"):
        families.capacity(p, f, cumulative=lazy.cumulative)
    if p.on("concurrency"):
        families.concurrency(p, f)
    result = Encoded(f, horizon, margin)
    nodes = families.lifetimes(p, f) if p.on("memory") or lazy.placement else {}
    if p.on("memory"):
        families.memory(p, f, nodes)
    if p.on("warp-budget"):
        groups.warp_budget(p, f)
    if lazy.registers:
        result.pressure = registers.pressures(p, f)
        if p.on("register-limit"):
            registers.register_limit(p, f, result.pressure, p.register_limit - p.overhead)
        if lazy.levels and p.on("register-file"):
            registers.register_file(p, f, result.pressure, lazy.levels)
    if lazy.placement and p.on("placement"):
        placement.placement(p, f, nodes)
    families.symmetry(p, f)
    return result
