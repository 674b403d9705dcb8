"""Why there is no schedule: the rules that a refutation needs, and what in them.

A rule is part of the explanation if the refutation fails without it: rules are dropped one after the other as long
as the rest still refutes, so what remains is minimal. Inside the remaining rules an unsat core over labelled
constraints, minimised in the same way, names units, memories, ops and edges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from twill.solver.bounds import critical_path, lower_bounds
from twill.solver.encoding.build import Lazy, encode
from twill.solver.problem import RULES, Problem, make_problem
from twill.solver.session import Session

__all__ = ["Core", "explain_refutation"]

FIXED = frozenset({"uniqueness", "completion", "dependence", "symmetry"})
"""Labels that are never optional: without them there is no schedule to speak of."""
EFFORT = 400_000_000
"""z3's resource counter for the question whether one rule is needed: some five seconds."""
BOUND_RULES = {"resource": "capacity", "memory": "memory", "issue": "concurrency", "recurrence": "dependence"}


@dataclass(frozen=True, slots=True)
class Core:
    """An explanation: rules that together refute, and the subjects of their constraints that do.

    ``words`` are sentences for a reader, one a rule. ``minimal`` is False where a rule was kept because it was too hard
    to find out whether the rest refutes without it.
    """

    ii: int
    rules: tuple[str, ...]
    subjects: dict[str, tuple[str, ...]]
    words: tuple[str, ...]
    minimal: bool = True


def explain_refutation(p: Problem, session: Session, lazy: Lazy, ii: int, progress: Callable[[str], None] | None) -> Core | None:
    """A minimal core for "no schedule with this I"; None if there is one.

    Raises
    ------
    OutOfTime : the session's deadline passed.
    """
    say = progress or (lambda _: None)
    bounds = lower_bounds(p)
    if bounds.best > ii * p.unit_cycles:
        name = bounds.binding
        sentence = f"{name} bound: {bounds.reasons[name]}, which takes I >= {bounds.best}"
        return Core(ii * p.unit_cycles, (BOUND_RULES[name],), {BOUND_RULES[name]: (name,)}, (sentence,))
    refuting = _refuting(p, session, lazy, ii)
    if refuting is None:
        return None
    lazy = refuting
    needed = [r for r in RULES if p.on(r)]
    minimal = True
    for rule in tuple(needed):
        fewer = tuple(r for r in needed if r != rule)
        refuted = _refuted(_only(p, fewer), session, lazy, ii)
        if refuted:
            needed.remove(rule)
            say(f"still impossible without {rule}")
        else:
            minimal &= refuted is not None
            say(f"needed: {rule}" if refuted is not None else f"too hard to tell without {rule}")
    subjects = _subjects(_only(p, tuple(needed)), session, lazy, ii)
    words = tuple(_sentence(rule, subjects.get(rule, ())) for rule in needed)
    if not needed:
        path = critical_path(p, ii * p.unit_cycles)
        words = (f"the dependences alone forbid it: the critical path is {path} cycles, over {p.options.max_copies} iterations in flight",)
    return Core(ii * p.unit_cycles, tuple(needed), subjects, words, minimal)


def _only(p: Problem, rules: tuple[str, ...]) -> Problem:
    """The same problem with only these rules in force."""
    without = tuple(r.name for r in RULES.values() if r.default and r.name not in rules)
    extra = tuple(r.name for r in RULES.values() if not r.default and r.name in rules)
    return make_problem(p.graph, p.machine, p.options.model_copy(update={"without": without, "with_rules": extra}))


def _refuting(p: Problem, session: Session, lazy: Lazy, ii: int) -> Lazy | None:
    """What must be spelled out for the refutation; None if there is a schedule."""
    from twill.solver.search import Search

    search = Search(p, session)
    search.lazy = lazy
    answer = search.ask(search.full_query(ii))
    return search.lazy if answer is None else None


def _refuted(p: Problem, session: Session, lazy: Lazy, ii: int) -> bool | None:
    """Whether these rules refute the I; None if that takes more than the effort allowed."""
    from twill.solver.search import Search, TooHard

    search = Search(p, session)
    search.lazy = replace(lazy)
    try:
        return search.ask(search.full_query(ii), effort=EFFORT) is None
    except TooHard:
        return None


def _subjects(p: Problem, session: Session, lazy: Lazy, ii: int) -> dict[str, tuple[str, ...]]:
    """Subjects of a minimised unsat core, by rule; empty where the known windows alone refute."""
    encoded = encode(p, ii * p.unit_cycles, ii * p.unit_cycles * p.options.max_copies, lazy)
    if encoded is None:
        return {}
    f = encoded.formula
    labels = sorted({label for label in [c.label for c in f.clauses] + [x.label for x in f.sums] if label[0] not in FIXED})
    guards = {label: f"g{i}" for i, label in enumerate(labels)}
    names = {guard: label for label, guard in guards.items()}
    session.load(f, guards)
    answer = session.check(f, assume=sorted(names), effort=EFFORT)
    if answer["result"] != "unsat":
        return {}
    core = sorted(set(answer["core"]))
    for guard in tuple(core):
        if len(core) > 40:
            break
        fewer = [g for g in core if g != guard]
        answer = session.check(f, assume=fewer, effort=20_000_000)
        if answer["result"] == "unsat":
            core = sorted(set(answer["core"]) & set(fewer)) if answer["core"] else fewer
    result: dict[str, list[str]] = {}
    for guard in core:
        rule, subject = names[guard]
        result.setdefault(rule, []).append(subject)
    return {rule: tuple(sorted(s)) for rule, s in result.items()}


def _sentence(rule: str, subjects: tuple[str, ...]) -> str:
    text = f"{rule}: {RULES[rule].words}"
    if subjects:
        shown = "; ".join(subjects[:6]) + (f"; and {len(subjects) - 6} more" if len(subjects) > 6 else "")
        text += f" ({shown})"
    return text
