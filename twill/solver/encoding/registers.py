"""Rules register-limit and register-file: what lives in each warp group, and whether all groups fit the file."""

from __future__ import annotations

from dataclasses import dataclass

from twill.solver.encoding.families import copies
from twill.solver.encoding.formula import Diff, Formula
from twill.solver.encoding.groups import same, sits, slots_of
from twill.solver.problem import Problem, ValueSpec

__all__ = ["Pressure", "pressures", "register_file", "register_limit"]


def _end_node(p: Problem, f: Formula, v: ValueSpec) -> int:
    """Node for the cycle in which the producer's group lets go of a value."""
    latency = p.ops[v.producer].latency
    readers = [r for r in v.readers if same(p, f, v.producer, r.op) is not None]
    terms = [(v.producer, latency, latency)]
    terms += [(r.op, -(10**7) if same(p, f, v.producer, r.op) else r.hold + r.distance * f.ii, r.hold + r.distance * f.ii) for r in readers]
    end = f.extreme(largest=True, terms=terms)
    label = ("register-limit", v.name)
    f.require(label, Diff(end, v.producer, latency, 0))
    for r in readers:
        s = same(p, f, v.producer, r.op)
        if s:
            f.add(label, -s, Diff(end, r.op, r.hold, r.distance))
        else:
            f.require(label, Diff(end, r.op, r.hold, r.distance))
    return end


@dataclass(frozen=True, slots=True)
class Pressure:
    """What is alive in the group of one op when it issues: certainly, and under literals."""

    op: int
    fixed: int
    terms: tuple[tuple[int, int], ...]


def pressures(p: Problem, f: Formula) -> list[Pressure]:
    """The register pressure at every issue where it can rise."""
    ends = {v.name: _end_node(p, f, v) for v in p.values if not v.persistent}
    result = []
    for u in range(len(p.ops)):
        fixed, terms = _pressure(p, f, ends, u)
        if terms or fixed:
            result.append(Pressure(u, fixed, tuple(terms)))
    return result


def register_limit(p: Problem, f: Formula, at: list[Pressure], registers: int, rule: str = "register-limit") -> None:
    """At every issue at most ``registers`` per thread are alive in the group."""
    for x in at:
        label = (rule, p.ops[x.op].name)
        if x.fixed > registers:
            f.add(label)
        else:
            f.at_most(label, x.terms, registers - x.fixed)


def _above(p: Problem, f: Formula, x: Pressure, level: int) -> int | None:
    """Literal "the group of this op needs more than ``level`` registers"; None if it cannot."""
    room = level - p.overhead - x.fixed
    total = sum(w for w, _ in x.terms)
    if room >= total:
        return None
    above = f.boolean(f"above_{x.op}_{level}")
    label = ("register-file", p.ops[x.op].name)
    if room < 0:
        f.add(label, above)
    else:
        f.at_most(label, [*x.terms, (total - room, -above)], total)
    return above


def _pressure(p: Problem, f: Formula, ends: dict[str, int], u: int) -> tuple[int, list[tuple[int, int]]]:
    """Registers certainly alive in u's group when u issues, and (registers, literal) for those that may be."""
    fixed = 0
    terms: list[tuple[int, int]] = []
    touched = False
    for v in p.values:
        s = same(p, f, v.producer, u)
        if v.producer == u:
            touched = True
        if any(r.op == u for r in v.readers) and s != 0:
            touched = True
            if s is None:
                fixed += v.registers
            else:
                terms.append((v.registers, -s))
        if s is None:
            continue
        if v.persistent:
            if s == 0:
                fixed += v.registers
            else:
                terms.append((v.registers, s))
            touched = touched or s == 0
            continue
        terms.extend((v.registers, alive) for alive in _alive_copies(f, v, ends[v.name], u, s))
    return (fixed, terms) if touched else (0, [])


def _alive_copies(f: Formula, v: ValueSpec, end: int, u: int, s: int) -> list[int]:
    """A literal for every copy of the value that may be alive in the group of u when u issues."""
    label = ("register-limit", v.name)
    low, _ = f.span(u, v.producer)
    _, high = f.span(u, end)
    result = []
    for k in copies(f, low, high):
        alive = f.boolean(f"held_{v.name}_{u}_{k}")
        # M(u) + kI before its birth, after its end, or alive
        f.add(label, alive, -s if s else None, Diff(v.producer, u, 1, k), Diff(u, end, 0, -k))
        result.append(alive)
    return result


def register_file(p: Problem, f: Formula, at: list[Pressure], levels: tuple[int, ...]) -> None:
    """The requests of all groups fit the file.

    A group whose need exceeds a level asks for at least the next multiple of the granularity; levels are added
    as models break the rule, so this is a relaxation that is exact at the levels that matter.
    """
    granule = int(p.machine.registers.granularity.value)
    least = int(p.machine.registers.per_thread_min.value) // granule
    issuer = max(least, -(-int(p.machine.registers.issuer_per_thread.value) // granule))
    budget = int(p.machine.registers.file.value) // (32 * granule)
    widths = sorted({op.warps for op in p.ops if op.warps >= 4})
    exceed = {x.op: {level: above for level in levels if (above := _above(p, f, x, level)) is not None} for x in at}
    terms: list[tuple[int, int]] = []
    narrow = f.boolean("narrow")
    for g in range(p.options.groups):
        members = [u for u in range(len(p.ops)) if g in slots_of(p, u)]
        wide = {width: f.boolean(f"wide_{g}_{width}") for width in widths}
        over = {level: f.boolean(f"over_{g}_{level}") for level in levels}
        label = ("register-file", f"group {g}")
        for u in members:
            here = sits(p, f, u, g)
            for width in widths:
                if p.ops[u].warps >= width:
                    f.add(label, -here, wide[width])
            if p.ops[u].warps < 4:
                f.add(label, -here, narrow, *([wide[widths[0]]] if widths else []))
            for level, above in exceed.get(u, {}).items():
                f.add(label, -here, -above, over[level])
        previous = 0
        for width in widths:
            reached = least
            terms.append(((width - previous) * least, wide[width]))
            for level in levels:
                both = f.boolean(f"both_{g}_{width}_{level}")
                f.add(label, -wide[width], -over[level], both)
                step = level // granule + 1 - reached
                if step > 0:
                    terms.append(((width - previous) * step, both))
                    reached = level // granule + 1
            previous = width
    terms.append((4 * issuer, narrow))
    f.at_most(("register-file", "file"), terms, budget)
