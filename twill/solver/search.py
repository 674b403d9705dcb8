"""The search: smallest I, then smallest L, then the best rank, each with its proof.

I: feasibility is monotone (``docs/formulation.md`` section 5), so ever larger steps up from the lower bound bracket
the optimum; the choices of a schedule found tell how far down they reach, and the refutation of I - 1 is the
proof. With reservation offsets monotonicity is not known, and every I from the bound up is refuted instead.
L: monotone by definition. Rank: one number after the other, each refuted below its best value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from twill.solver.bounds import Bounds, critical_path, lower_bounds
from twill.solver.candidate import Candidate, broken, rank_key
from twill.solver.canonical import choices, latest, shortest, smallest_ii
from twill.solver.encoding.build import Encoded, Lazy, encode
from twill.solver.encoding.ranking import limit_rank
from twill.solver.problem import Problem
from twill.solver.query import Query
from twill.solver.session import OutOfTime, Session

__all__ = ["Found", "Search"]

Progress = Callable[[str], None]
RANK = ("groups", "handovers", "waits", "peak")


@dataclass(slots=True)
class Found:
    """What the search knows when it ends.

    ``ii_floor`` and ``length_floor`` are proved lower bounds; equal to the best candidate's I and L when optimal.
    ``refuted_ii``/``refuted_length`` say that the value just below was refuted by a query, not only by a bound.
    """

    bounds: Bounds
    best: Candidate | None = None
    ranked: list[Candidate] = field(default_factory=list)
    ii_floor: int = 1
    length_floor: int = 1
    refuted_ii: bool = False
    refuted_length: bool = False
    rank_proved: bool = False
    infeasible: bool = False
    out_of_time: bool = False


@dataclass(frozen=True, slots=True)
class _Answer:
    """A schedule, and how small I and L could be under the same choices."""

    candidate: Candidate
    reachable_ii: int
    reachable_length: int


class Search:
    """Runs queries for one problem; keeps the constraints that had to be spelled out."""

    def __init__(self, problem: Problem, session: Session, progress: Progress | None = None) -> None:
        self.p = problem
        self.session = session
        self.lazy = Lazy()
        self.say = progress or (lambda _: None)
        self.offsets = any(use.offset for op in problem.ops for use in op.uses)
        self._loaded: Encoded | None = None

    def solve(self, *, top: int = 1) -> Found:
        """Find the best schedules; never raises for lack of time, but says so in the result."""
        found = Found(lower_bounds(self.p))
        found.ii_floor = found.bounds.best
        try:
            self._smallest_ii(found)
            if found.best is not None:
                self._smallest_length(found)
                self._best_rank(found, top)
        except OutOfTime:
            found.out_of_time = True
        if found.best is not None and not found.ranked:
            found.ranked = [found.best]
        return found

    # I

    def horizon(self, ii: int) -> int:
        """Longest schedule considered at this I."""
        return ii * self.p.options.max_copies

    def ceiling(self) -> int:
        """An I at which iterations need not overlap: infeasible there means infeasible everywhere."""
        serial = sum(op.span for op in self.p.ops) + sum(e.latency + max(e.same, e.cross) for e in self.p.edges)
        release = max((r.hold + r.cross for b in self.p.buffers for r in b.readers), default=0)
        limit = self.p.options.max_ii_cycles
        return max(1, serial + release) if limit is None else limit // self.p.unit_cycles

    def _smallest_ii(self, found: Found) -> None:
        top = self.ceiling()
        step, ii, reachable = 8, found.ii_floor, 0
        while ii <= top and (found.best is None or found.ii_floor < found.best.ii):
            answer = self.ask(Query(ii, self.horizon(ii)))
            if answer is None:
                found.ii_floor, found.refuted_ii = ii + 1, True
            else:
                found.best, reachable = answer.candidate, max(found.ii_floor, answer.reachable_ii)
            self._report_ii(found)
            if found.best is None:
                # ever larger steps up, and once at the very top before giving up
                ii = found.ii_floor if self.offsets else min(ii + step, max(top, ii + 1))
                step *= 4
            elif answer is not None and reachable < answer.candidate.ii:
                ii = reachable
            else:
                # the schedule's choices reach no further down: one less is the question, unless far from the floor
                gap = found.best.ii - found.ii_floor
                ii = found.best.ii - 1 if answer is not None or gap <= 2 else (found.best.ii + found.ii_floor) // 2
        found.infeasible = found.best is None

    def _report_ii(self, found: Found) -> None:
        q = self.p.unit_cycles
        best = "none yet" if found.best is None else f"{found.best.ii * q}"
        self.say(f"I >= {found.ii_floor * q}, best {best}")

    # L

    def _smallest_length(self, found: Found) -> None:
        assert found.best is not None
        ii = found.best.ii
        found.length_floor = critical_path(self.p, ii)
        length = found.length_floor
        while found.length_floor < (best := found.best.length(self.p)):
            answer = self.ask(Query(ii, length))
            if answer is None:
                found.length_floor, found.refuted_length = length + 1, True
                length = (found.length_floor + best) // 2
            else:
                found.best = answer.candidate
                reachable = max(found.length_floor, answer.reachable_length)
                length = reachable if reachable < found.best.length(self.p) else found.best.length(self.p) - 1
            q = self.p.unit_cycles
            self.say(f"I {ii * q}, L >= {found.length_floor * q}, best {found.best.length(self.p) * q}")

    # rank

    def _best_rank(self, found: Found, top: int) -> None:
        assert found.best is not None
        base = Query(found.best.ii, found.best.length(self.p))
        seed: Candidate | None = found.best
        while seed is not None:
            best = self._lexicographic(base, seed)
            found.ranked.append(best)
            self.say(f"schedule {len(found.ranked)}: " + ", ".join(f"{n} {v}" for n, v in zip(RANK, rank_key(self.p, best), strict=True)))
            if len(found.ranked) == top:
                break
            base = replace(base, excluded=(*base.excluded, best))
            answer = self.ask(base)
            seed = None if answer is None else answer.candidate
        found.rank_proved = True

    def _lexicographic(self, base: Query, best: Candidate) -> Candidate:
        """The schedule with the smallest rank; the last model is solved once more with all limits, so that it is canonical."""
        query = base
        for position, name in enumerate(RANK):
            while (value := rank_key(self.p, best)[position]) > 0:
                answer = self.ask(replace(query, **{name: value - 1}))
                if answer is None:
                    break
                best = answer.candidate
                assert rank_key(self.p, best)[position] < value, f"the query does not limit {name}"
            query = replace(query, **{name: rank_key(self.p, best)[position]})
        return best

    # one query

    def ask(self, q: Query) -> _Answer | None:
        """A schedule that satisfies the query, or None if there is none.

        Raises
        ------
        OutOfTime : before an answer was known.
        """
        while True:
            encoded = self._load(q)
            if encoded is None:
                return None
            f = encoded.formula
            mark = f.mark()
            limit_rank(self.p, encoded, q)
            answer = self.session.check(f, since=mark)
            if answer["result"] == "unsat":
                f.drop(mark)
                return None
            if answer["result"] != "sat":
                raise OutOfTime
            result = self._read(encoded, answer["values"])
            f.drop(mark)
            more = broken(self.p, result.candidate, self.lazy)
            if more is None:
                return result
            self.lazy = more

    def _load(self, q: Query) -> Encoded | None:
        """The formula for the query's I and at least its length, loaded into the solver process."""
        old = self._loaded
        if old is not None and old.formula.ii == q.ii and old.lazy == self.lazy and q.length <= old.horizon <= 2 * q.length:
            return old
        encoded = encode(self.p, q.ii, q.length, self.lazy)
        if encoded is not None:
            self.session.load(encoded.formula)
            self._loaded = encoded
        return encoded

    def _read(self, encoded: Encoded, values: dict[str, int]) -> _Answer:
        f = encoded.formula
        groups = []
        for v in range(len(self.p.ops)):
            slots = range(min(v + 1, self.p.options.groups))
            groups.append(next(g for g in slots if values.get(f"b{f.boolean(f'in_{v}_{g}')}", 0)))
        kept = choices(f, values)
        candidate = Candidate(f.ii, latest(f, kept), tuple(groups))
        spans = [op.span for op in self.p.ops]
        return _Answer(candidate, smallest_ii(f, kept, 1), shortest(f, kept, spans))
