"""Rules register-limit and register-file: what lives in each warp group, and whether all groups fit the file."""

from __future__ import annotations

from dataclasses import dataclass

from twill.solver.encoding.families import copies
from twill.solver.encoding.formula import Diff, Formula
from twill.solver.encoding.groups import same, sits, slots_of, widths
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
    for v in p.values:
        s = same(p, f, v.producer, u)
        for reader in v.readers:
            if reader.op == u and p.ops[u].issue and s != 0:
                # u holds a copy of a value from another group while it runs
                if s is None:
                    fixed += v.registers
                else:
                    terms.append((v.registers, -s))
            elif reader.op != u and not (p.on("concurrency") and p.ops[u].issue):
                terms.extend((v.registers, held) for held in _foreign_copies(p, f, v.producer, reader.op, u, v.name))
        if s is None:
            continue
        if not v.persistent:
            terms.extend((v.registers, alive) for alive in _alive_copies(f, v, ends[v.name], u, s))
        elif s == 0:
            fixed += v.registers
        else:
            terms.append((v.registers, s))
    return fixed, terms


def _foreign_copies(p: Problem, f: Formula, producer: int, reader: int, u: int, name: str) -> list[int]:
    """A literal for every copy that a reader in u's group, foreign to the producer, may hold when u issues."""
    home, here = same(p, f, producer, reader), same(p, f, reader, u)
    length = p.ops[reader].issue
    if home == 0 or here is None or not length:
        return []
    low, high = f.span(u, reader)
    result = []
    for k in copies(f, low, high + length - 1):
        held = f.boolean(f"foreign_{name}_{reader}_{u}_{k}")
        f.add(("register-limit", name), held, -here if here else None, home, Diff(reader, u, 1, k), Diff(u, reader, length, -k))
        result.append(held)
    return result


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
    budget = int(p.machine.registers.file.value) // (32 * granule)
    exceed = {x.op: {level: above for level in levels if (above := _above(p, f, x, level)) is not None} for x in at}
    terms: list[tuple[int, int]] = []
    w = widths(p, f, "register-file")
    slim = {level: f.boolean(f"slim_over_{level}") for level in levels}
    for g in range(p.slots):
        over = _needs(p, f, g, exceed, levels)
        label = ("register-file", f"group {g}")
        for level in levels:
            f.add(label, -w.thin[g], -over[level], slim[level])
        previous = 0
        for size, wide in w.wide[g].items():
            _charge(f, terms, f"file_{g}_{size}", wide, over, size - previous, least, granule, label)
            previous = size
    for k, block in enumerate(w.blocks):
        _charge(f, terms, f"file_slim_{k}", block, slim, 4, least, granule, ("register-file", "single warps"))
    f.at_most(("register-file", "file"), terms, budget)


def _needs(p: Problem, f: Formula, g: int, exceed: dict[int, dict[int, int]], levels: tuple[int, ...]) -> dict[int, int]:
    """Literals "the need of slot g exceeds this level"."""
    issuer = int(p.machine.registers.issuer_per_thread.value)
    over = {level: f.boolean(f"over_{g}_{level}") for level in levels}
    idle = f.boolean(f"idle_{g}")
    label = ("register-file", f"group {g}")
    members = [u for u in range(len(p.ops)) if g in slots_of(p, u)]
    holders = sorted({p.team[u] for u in members if _touches(p, u)})
    for u in members:
        here = sits(p, f, u, g)
        f.add(label, -here, idle, *(sits(p, f, h, g) for h in holders))
        for level, above in exceed.get(u, {}).items():
            f.add(label, -here, -above, over[level])
    for level in levels:
        if level < issuer:
            f.add(label, -idle, over[level])
    return over


def _touches(p: Problem, u: int) -> bool:
    """Whether an op makes register values or reads them, so that its group cannot be without any."""
    return any(v.producer == u or (p.ops[u].issue and any(r.op == u for r in v.readers)) for v in p.values)


def _charge(f: Formula, terms: list[tuple[int, int]], name: str, there: int, over: dict[int, int], warps: int, least: int,
            granule: int, label: tuple[str, str]) -> None:  # fmt: skip
    """Add what ``warps`` warps ask of the file, in granules of one warp, if ``there`` holds."""
    reached = least
    terms.append((warps * least, there))
    for level, literal in over.items():
        step = level // granule + 1 - reached
        if step > 0:
            both = f.boolean(f"{name}_{level}")
            f.add(label, -there, -literal, both)
            terms.append((warps * step, both))
            reached += step
