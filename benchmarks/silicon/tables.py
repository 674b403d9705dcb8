"""What came out of a silicon comparison, as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from benchmarks.silicon.cases import Case

__all__ = ["BAD", "comparison", "contradictions", "faults", "page", "unseen", "verdict"]

OUTCOMES = ("hang", "fault", "wrong", "differs", "same")
BAD = ("hang", "fault", "wrong")
"""What the emulator has to find: a fault is an error that CUDA reports."""
APART_OF_BOUND = 2.0
"""Emulator and GPU may each be off by what rounding allows."""
APART_OF_NORM = 0.005
"""Of gradients: each is off by 0.003 of its norm, which rounding P and dS gives."""
Results = dict[str, dict[str, Any]]


def verdict(result: dict[str, Any]) -> str:
    """The worst that a planted fault did on the GPU."""
    ways: dict[str, str] = result["ways"]
    return min(ways.values(), key=OUTCOMES.index)


def contradictions(cases: Iterable[Case], results: Results) -> list[str]:
    """Cases that are not as the emulator says, in other ways than rounding."""
    found = []
    for case in cases:
        if case.name not in results:
            continue
        result = results[case.name]
        if case.fault:
            against = verdict(result) in BAD and not case.fault["caught"]
        else:
            against = "outputs" not in result or any(_far(x) for x in result["outputs"].values())
        if against:
            found.append(case.name)
    return found


def _far(x: dict[str, Any]) -> bool:
    apart: float = x.get("apart_of_bound", 0.0)
    return x["not_finite"] > 0 or apart > APART_OF_BOUND or x["norm"] > APART_OF_NORM


def comparison(cases: Iterable[Case], results: Results) -> Iterator[str]:
    """Outputs of the emulator and of the GPU."""
    yield "| kernel, queries x keys | output | elements | bit-equal | 1 unit | more | most units | norm of difference | apart, of bound | "\
          "GPU, of bound | emulator, of bound | twice the same |"  # fmt: skip
    yield "|---" * 12 + "|"
    for case in cases:
        result = results.get(case.name, {})
        for name, x in result.get("outputs", {}).items():
            n = x["elements"]
            rest = " | ".join(f"{x[k]:.2f}" if k in x else "" for k in ("apart_of_bound", "silicon_of_bound", "emulator_of_bound"))
            shares = " | ".join(f"{part / n:.3%}" for part in (x["equal"], x["one"], n - x["equal"] - x["one"]))
            again = "yes" if x["repeats"] else "no"
            yield f"| {case.name} | {name} | {n} | {shares} | {x['most']} | {x['norm']:.1e} | {rest} | {again} |"
        if "outputs" not in result:
            yield f"| {case.name} | {result.get('error') or result.get('ways') or 'not run'}" + " |" * 11


def faults(cases: Sequence[Case], results: Results) -> Iterator[str]:
    """What planted faults did, by family; then each one that the emulator and the GPU see differently."""
    rows: dict[str, Counter[str]] = {}
    for case in cases:
        if case.name in results:
            row, what = rows.setdefault(case.fault["family"], Counter()), verdict(results[case.name])
            row[what] += 1
            row["bad, found here"] += what in BAD and bool(case.fault["caught"])
            row["found here"] += bool(case.fault["caught"])
    yield f"| fault | run | {' | '.join(OUTCOMES)} | of hang, fault, wrong: found by the emulator | found by the emulator |"
    yield "|---" * 9 + "|"
    total: Counter[str] = Counter()
    for family, row in sorted(rows.items()):
        total += row
        yield _row(family, row)
    yield _row("all", total)
    yield ""
    for case in cases:
        what = verdict(results[case.name]) if case.name in results else ""
        caught = case.fault["caught"]
        if case.fault["family"] != "none" and what and (what in BAD) != bool(caught):
            kinds = f"emulator: {', '.join(caught)} ({case.fault['scheduler']})" if caught else "emulator: nothing"
            remarks = _remarks(case.fault["remarks"])
            f = case.fault
            yield f"* {case.name}: GPU {what}, {kinds}: {f['family']}, PTX line {f['line']} {f['source']}: {f['text'][:90]}{remarks}"


REMARKS = {"C7517": "ptxas put the wait back", "C7514": "ptxas serialises all MMAs"}


def _remarks(text: str) -> str:
    """What ptxas said, in a few words."""
    said = [words for code, words in REMARKS.items() if f"({code})" in text]
    return f"; {', '.join(said)}" if said else (f"; ptxas: {' '.join(text.split())[:160]}" if text else "")


def unseen(cases: Sequence[Case], results: Results) -> Iterator[str]:
    """Faults that the emulator does not find, and what they did on the GPU; alike ones in one line."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for case in cases:
        f = case.fault
        if case.name in results and f["family"] != "none" and not f["caught"]:
            rows.setdefault((f["of"], f["family"], f["source"]), []).append(verdict(results[case.name]))
    for (of, family, source), what in rows.items():
        counts = ", ".join(f"{n} {w}" for w, n in sorted(Counter(what).items()))
        yield f"* {of.removesuffix(' control')}, {family}, {source}: {counts}"


def page(cases: Sequence[Case], results: Results, gpu: str) -> Iterator[str]:
    """The page of docs/ on a comparison. ``gpu`` says on what, when, and how long it took."""
    kept = [c for c in cases if c.group != "control"]
    planted = [c for c in kept if c.fault]
    bad = [c for c in planted if c.name in results and verdict(results[c.name]) in BAD]
    yield from (
        "# The emulator beside an H200", "",
        "`python -m benchmarks.emulate_silicon prepare FOLDER --peers PEERS` writes cases as data, on a machine without a GPU; "
        "`compare FOLDER --out OUT` runs them on one with an H100 or H200, and `page FOLDER OUT` writes this page from what it left.", "",
        f"{gpu}.", "", "## The same kernels, the same inputs", "",
        'Units are those of the last place of the output\'s type. The norm is that of the difference over that of the output. "Of bound": '
        "the largest error against double precision over what rounding allows.", "",
        *comparison([c for c in kept if not c.fault], results), "",
        "What differs is the exponential and its like (`ex2.approx`, `lg2.approx` and `rcp.approx` are exact and then rounded here, and "
        "good to two units there), and the tensor core adds in an order of its own. Large counts of units are elements near 0. All errors "
        "against double precision are what they are on the GPU, to two digits.", "", "## Planted faults", "",
        "Mutants of the PTX of two kernels, assembled by ptxas: each is run 20 times alone and 20 times beside 47 copies of itself, and "
        'compared with the unchanged kernel bit by bit. "Differs": other bits, within what rounding allows.', "",
        *faults(planted, results), "",
        f"Of {len(bad)} that hang or compute wrongly on the GPU, the emulator finds {sum(bool(c.fault['caught']) for c in bad)}. "
        "Above are those that are found here and did nothing there: it takes an order that the GPU did not choose. Not found here:", "",
        *unseen(planted, results), "",
        "[emulator.md](emulator.md) says of each kind why it does not show, or what finds it now.",
    )  # fmt: skip


def _row(family: str, row: Counter[str]) -> str:
    bad = sum(row[x] for x in BAD)
    run = sum(row[x] for x in OUTCOMES)
    return f"| {family} | {run} | {' | '.join(str(row[x]) for x in OUTCOMES)} | {row['bad, found here']} of {bad} | {row['found here']} |"
