"""The search: smallest I, then the largest margin, then the smallest L, then the best rank, each with its proof.

I: feasibility is monotone (``docs/formulation.md`` section 5), so ever larger steps up from the lower bound bracket
the optimum; the choices of a schedule found tell how far down they reach, and the refutation of I - 1 is the
proof. With reservation offsets monotonicity is not known, and every I from the bound up is refuted instead.
Margin and L: monotone by definition. Rank: one number after the other, each refuted below its best value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from twill.solver.bounds import Bounds, critical_path, fewest_groups, lower_bounds
from twill.solver.candidate import Candidate, broken, margin, rank_key
from twill.solver.canonical import choices, latest, shortened, smallest_ii
from twill.solver.encoding.build import Encoded, Lazy, encode
from twill.solver.encoding.formula import Diff, Formula
from twill.solver.encoding.groups import sits
from twill.solver.encoding.ranking import limit_rank
from twill.solver.problem import Problem
from twill.solver.query import RANK, Query
from twill.solver.queues import most_margin, step_cycles, waiting
from twill.solver.session import OutOfTime, Session

__all__ = ["Found", "Search", "TooHard"]

Progress = Callable[[str], None]
EFFORT = 100_000_000
QUICK = 10_000_000
EASY = 1_500_000
"""Between what Hopper's forward asks about margins (at most 1 million) and its backward (2 to 10 million; head dim 96 less)."""
NEAR = 400
"""A gap of less than this part of L is closed by asking just below the best."""


@dataclass(slots=True)
class Found:
    """What the search knows when it ends; floors count time units.

    ``ii_floor`` and ``length_floor`` are proved lower bounds; equal to the best candidate's I and L when optimal. ``margin_ceiling``,
    in cycles, is a proved upper bound on the margin.
    ``refuted_ii``/``refuted_length`` say that the value just below was refuted by a query, not only by a bound.
    """

    bounds: Bounds
    best: Candidate | None = None
    ranked: list[Candidate] = field(default_factory=list)
    ii_floor: int = 1
    margin_ceiling: int = 0
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
    formula: Formula
    kept: list[Diff]

    def reachable_ii(self, floor: int) -> int:
        """Smallest I, in time units and no less than ``floor``, that the schedule's choices allow."""
        unit = self.formula.unit
        return smallest_ii(self.formula, self.kept, floor * unit) // unit

    def shortened(self, p: Problem) -> Candidate:
        """The same choices at the smallest L that they allow; may break what the formula did not spell out."""
        starts = shortened(self.formula, self.kept, [op.span for op in p.ops])
        return replace(self.candidate, starts=starts)


class TooHard(Exception):
    """The effort allowed for a query was spent."""


class _Probe:
    """Where to look next between a floor and the best value known.

    Where the choices of the last schedule reach, if that is a good part of the way; else the middle while there is
    far to go, and just below the best, which proves it in the usual case, when there is not or the middle was a "no".
    """

    def __init__(self) -> None:
        self._last = ""

    def next(self, floor: int, best: int, reachable: int | None) -> int:
        """The next value to ask about; ``reachable`` is None after a "no"."""
        gap = best - floor
        if reachable is not None and floor <= reachable < best and 8 * (best - reachable) >= gap:
            self._last = "reach"
            return reachable
        far = 20 * gap > best or self._last == "below"
        if (reachable is not None and far) or self._last == "reach":
            self._last = "middle"
            return (floor + best) // 2
        self._last = "below"
        return best - 1


class Search:
    """Runs queries for one problem; keeps the constraints that had to be spelled out."""

    def __init__(self, problem: Problem, session: Session, progress: Progress | None = None) -> None:
        self.p = problem
        self.session = session
        self.lazy = Lazy()
        self.say = progress or (lambda _: None)
        self.offsets = any(use.offset for op in problem.ops for use in op.uses)
        self.unit = problem.unit_cycles
        self.fewest = min(problem.slots, fewest_groups(problem))
        self.slots = self.fewest
        self.margin = 0
        self.loads_margin = False
        self._ladder = [*((self.fewest, 8 + k) for k in range(1, 7)), (self.fewest + 1, 64)]
        self._loaded: Encoded | None = None
        self._key: tuple[int, int, int, int, Lazy] | None = None

    def solve(self, *, top: int = 1) -> Found:
        """Find the best schedules; never raises for lack of time, but says so in the result."""
        found = Found(lower_bounds(self.p))
        found.ii_floor = -(-found.bounds.best // self.unit)
        found.margin_ceiling = most_margin(self.p)
        try:
            self._smallest_ii(found)
            if found.best is not None:
                self._largest_margin(found)
                self._smallest_length(found)
                self._best_rank(found, top)
        except OutOfTime:
            found.out_of_time = True
        if found.best is not None:
            found.length_floor = max(found.length_floor, critical_path(self.p, found.best.ii) // self.unit)
            found.ranked = found.ranked or [found.best]
        return found

    # I; in this part I and L count time units

    def ceiling(self) -> int:
        """An I at which iterations need not overlap: infeasible there means infeasible everywhere."""
        if self.p.options.max_ii_cycles is not None:
            return self.p.options.max_ii_cycles // self.unit

        def up(cycles: int) -> int:
            return -(-cycles // self.unit)

        serial = sum(up(op.span) for op in self.p.ops) + sum(up(max(e.same, e.cross)) for e in self.p.edges)
        serial += sum(1 for _ in waiting(self.p)) * up(max(op.queue for op in self.p.ops))
        return max(1, serial + sum(up(r.hold + r.cross) for b in self.p.buffers for r in b.readers))

    def horizon(self, ii: int) -> int:
        """Longest schedule considered at this I."""
        return ii * self.p.options.max_copies

    def _smallest_ii(self, found: Found) -> None:
        top = self.ceiling()
        step, ii, probe = 8, found.ii_floor, _Probe()
        while ii <= top and (found.best is None or found.ii_floor < self._ii(found.best)):
            try:
                # as long as no schedule is known, a hard question is better asked of a larger I
                answer = self._either(ii, effort=0 if found.best or ii == top or self.offsets else EFFORT)
                known = True
            except TooHard:
                answer, known = None, False
            if answer is not None:
                found.best = answer.candidate
            elif not known:
                pass
            elif ii == found.ii_floor or not self.offsets:
                found.ii_floor, found.refuted_ii = ii + 1, True
            best = None if found.best is None else self._ii(found.best)
            self.say(f"I >= {found.ii_floor * self.unit}, best {'none yet' if best is None else best * self.unit}")
            if self.offsets:
                # monotone or not is unknown: every I from the bound up
                ii = found.ii_floor
            elif best is None:
                # ever larger steps up, and once at the very top before giving up
                ii = min(ii + step, max(top, ii + 1))
                step *= 4
            else:
                ii = probe.next(found.ii_floor, best, answer.reachable_ii(found.ii_floor) if answer else None)
        found.infeasible = found.best is None

    def _ii(self, c: Candidate) -> int:
        return c.ii // self.unit

    def _length(self, c: Candidate) -> int:
        return c.length(self.p) // self.unit

    # margin, in cycles

    def _largest_margin(self, found: Found) -> None:
        """All that counts first, then halfway between what is had and what is refuted."""
        assert found.best is not None
        ii, step = self._ii(found.best), step_cycles(self.p)
        asked = found.margin_ceiling
        while (have := margin(self.p, found.best)) < found.margin_ceiling:
            answer = self._with_margin(replace(self.full_query(ii), margin=asked))
            if answer is None:
                found.margin_ceiling = asked - step
            else:
                found.best = answer.candidate
                have = margin(self.p, found.best)
                assert have >= asked, "the query does not limit the margin"
            asked = have + max(1, (found.margin_ceiling - have + step) // step // 2) * step
            self.say(f"I {found.best.ii}, margin {have}, at most {found.margin_ceiling}")
        self.margin = have

    def _with_margin(self, q: Query) -> _Answer | None:
        """The margin on top of what is loaded, if that is quick; else it is loaded with the rest, now and for all lengths.

        z3 simplifies what is loaded before it searches, and what a check adds it does not. Hard questions take half the time
        so (Hopper backward, head dim 128), easy ones up to twice (head dim 96).
        """
        if not self.loads_margin:
            try:
                return self.ask(q, effort=EASY)
            except TooHard:
                self.loads_margin = True
        return self.ask(q)

    # L

    def _smallest_length(self, found: Found) -> None:
        """The shortest schedule with few groups first; then the question whether more groups make it shorter.

        Halving the gap beats proofs just below the best: the few "yes" that remain cost most.
        """
        assert found.best is not None
        ii = self._ii(found.best)
        found.length_floor = critical_path(self.p, found.best.ii) // self.unit
        every = self.p.slots
        floor = length = found.length_floor
        while found.length_floor < (best := self._length(found.best)):
            slots = every if floor == best else self.slots
            answer = self.ask(self._query(ii, best - 1 if floor == best else length, slots))
            if answer is not None:
                found.best = self._short(answer)
                if slots == every:
                    self.slots = min(self.slots + 1, every)
                    floor = found.length_floor
            elif slots == every:
                floor = best if floor == best else length + 1
                found.length_floor, found.refuted_length = floor, True
            else:
                floor = length + 1
            best = self._length(found.best)
            near = NEAR * (best - floor) < best
            length = best - 1 if near else (floor + best) // 2
            self.say(f"I {ii * self.unit}, L >= {found.length_floor * self.unit}, best {best * self.unit}")

    def _short(self, answer: _Answer) -> Candidate:
        short = answer.shortened(self.p)
        return short if broken(self.p, short, self.lazy) is None else answer.candidate

    # rank

    def _best_rank(self, found: Found, top: int) -> None:
        assert found.best is not None
        base = Query(found.best.ii, found.best.length(self.p), self.p.slots, self.margin)
        seed: Candidate | None = found.best
        # all these questions come on top of what is loaded, and the margin with them
        self.loads_margin = False
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
        """The schedule with the smallest rank among those that the query admits."""
        query = base
        for position, name in enumerate(RANK):
            while (value := rank_key(self.p, best)[position]) > 0:
                answer = self.ask(query.limited(name, value - 1, value - 1 if name == "groups" else query.slots))
                if answer is None:
                    break
                best = answer.candidate
                assert rank_key(self.p, best)[position] < value, f"the query does not limit {name}"
            # with the number of groups settled, offering more changes nothing
            query = query.limited(name, value, value if name == "groups" else query.slots)
        if self.p.symmetries and (alike := self.ask(replace(query, alike=True))) is not None:
            return alike.candidate
        return best

    # one query

    def _query(self, ii: int, length: int, slots: int) -> Query:
        return Query(ii * self.unit, length * self.unit, slots, self.margin)

    def full_query(self, ii: int) -> Query:
        """Is there any schedule with this I (in time units)?"""
        return self._query(ii, self.horizon(ii), self.p.slots)

    def _either(self, ii: int, effort: int) -> _Answer | None:
        """All there are if that is quick; else short schedules with few groups, which are found soonest; then all again.

        Once a schedule is known, only lengths like its own are tried before everything.

        Raises
        ------
        TooHard : the effort for the whole question was spent.
        """
        try:
            return self.ask(self.full_query(ii), effort=QUICK)
        except TooHard:
            pass
        path, longest = critical_path(self.p, ii * self.unit) // self.unit, self.horizon(ii)
        for slots, eighths in self._ladder:
            length = min(longest, path * eighths // 8)
            if slots > self.p.slots:
                continue
            try:
                answer = self.ask(self._query(ii, length, slots), effort=EFFORT)
            except TooHard:
                continue
            if answer is not None:
                self.slots, self._ladder = slots, [(slots, eighths)]
                return answer
            if length == longest:
                break
        return self.ask(self.full_query(ii), effort)

    def ask(self, q: Query, effort: int = 0) -> _Answer | None:
        """A schedule that satisfies the query, or None if there is none.

        Raises
        ------
        OutOfTime : before an answer was known.
        TooHard : the effort was spent before an answer was known.
        """
        p = self._narrowed(q.slots)
        while True:
            encoded = self._load(q)
            if encoded is None:
                return None
            f = encoded.formula
            mark = f.mark()
            limit_rank(p, encoded, q)
            answer = self.session.check(f, since=mark, effort=effort)
            if answer["result"] == "unsat":
                f.drop(mark)
                return None
            if answer["result"] != "sat":
                f.drop(mark)
                raise TooHard(answer["reason"])
            result = self._read(encoded, answer["values"])
            f.drop(mark)
            more = broken(self.p, result.candidate, self.lazy)
            if more is None:
                return result
            self.lazy = more

    def _narrowed(self, slots: int) -> Problem:
        if slots >= self.p.slots:
            return self.p
        rules = self.p.rules | {"warp-budget"}
        return replace(self.p, options=self.p.options.model_copy(update={"groups": slots}), rules=rules)

    def _load(self, q: Query) -> Encoded | None:
        """The formula for the query's I, length and slots, loaded into the solver process."""
        margin = q.margin if self.loads_margin else 0
        key = (q.ii, q.length, q.slots, margin, self.lazy)
        if self._loaded is None or self._key != key:
            self._loaded, self._key = encode(self._narrowed(q.slots), q.ii, q.length, self.lazy, margin), key
            if self._loaded is not None:
                self.session.load(self._loaded.formula)
        return self._loaded

    def _read(self, encoded: Encoded, values: dict[str, int]) -> _Answer:
        f = encoded.formula
        groups = []
        for v in range(len(self.p.ops)):
            slots = (g for g in range(v + 1) if f.has(f"in_{self.p.team[v]}_{g}"))
            groups.append(next(g for g in slots if values.get(f"b{sits(self.p, f, v, g)}", 0)))
        kept = choices(f, values)
        candidate = Candidate(f.ii, latest(f, kept), tuple(groups))
        return _Answer(candidate, f, kept)
