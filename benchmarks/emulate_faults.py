"""Planted faults in the shipped kernels, forward and backward, under the emulator: the tables of docs/faults.md.

    python -m benchmarks.emulate_faults run FOLDER [CASE ...]    plant and judge; each case leaves a file in FOLDER (minutes each; no GPU)
    python -m benchmarks.emulate_faults page FOLDER              print docs/faults.md from them

Every synchronizing instruction is a place for a fault. Of faults in values there are hundreds that are alike: of each family of those,
every n-th is planted, so that about ``MOST`` are.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["CASES", "Case", "main", "page"]

MOST = 10
ALIKE = ("multiplication dropped", "operands swapped", "column shifted", "load to another place")


NOTES = {
    'tiles.wait_slot(ring["keys_full"], 0, turn) in sm90_attn_bwd_d96.py': "K is in place whenever dS is, for which this role waits too: "
    "the softmax roles wait for K before they multiply, and dS is what comes of it; every work tile has an iteration. The wait tells its "
    "warp something, but nothing that the next one would not tell in time",
    'tiles.wait(ring["Q_empty"], i, distance=6) in sm90_attn_bwd_d96.py': "Q of iteration i - 6 is free once dO of i - 6 is, for "
    "which this role has waited in the iteration before: one wait for MMAs stands before both releases",
    "tiles.load_q(block, turn, number) in sm100_attn_fwd_d64.py": "the second of two waits, one for each sub-tile's Q: the MMA warp gives "
    "both back by two commits that stand together behind all multiplications by either, so that the first wait is enough",
}
"""By hand: why what was missed does not show. A statement, and what is to be said of it."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel and the lengths of Q and K, such that every ring wraps and a block takes more than one work tile."""

    kernel: str
    causal: bool
    seqlen_q: int
    seqlen_k: int
    every: int = 1
    """Of what is chosen, every n-th is planted."""

    @property
    def name(self) -> str:
        return f"{self.kernel}{'_causal' if self.causal else ''}"


CASES = (
    Case("sm90_attn_fwd_d64", True, 600, 700), Case("sm90_attn_fwd_d128", False, 400, 560), Case("sm90_attn_bwd_d96", True, 260, 400),
    Case("sm100_attn_fwd_d128", False, 520, 600), Case("sm100_attn_fwd_d64", True, 600, 700, every=3),
)  # fmt: skip


def _chosen(given: Sequence[Any]) -> list[Any]:
    """All mutants of most families, some of those that are alike."""
    sizes = Counter(m.family for m in given)
    seen: Counter[str] = Counter()
    chosen = []
    for m in given:
        if m.family not in ALIKE or seen[m.family] % -(-sizes[m.family] // MOST) == 0:
            chosen.append(m)
        seen[m.family] += 1
    return chosen


def run(case: Case, folder: Path) -> None:
    """Plant and judge the faults of a case; goes on where an earlier run of the same kernel was ended."""
    from twill.emulate.campaign import judge, reachable
    from twill.emulate.ready import ready, shape_of

    kernel = ready(case.kernel, causal=case.causal)
    shape = shape_of(kernel, case.seqlen_q, case.seqlen_k, causal=case.causal)
    all_of_them, begin, rows, file = reachable(kernel, shape), time.perf_counter(), [], folder / f"{case.name}.json"
    chosen, seconds = _chosen(all_of_them)[:: case.every], 0.0
    if file.is_file():
        earlier = json.loads(file.read_text(encoding="utf-8"))
        if [(x["line"], x["family"]) for x in earlier["rows"]] == [(m.line, m.family) for m in chosen[: len(earlier["rows"])]]:
            rows, seconds = earlier["rows"], earlier["seconds"]
    for v in judge(kernel, shape, chosen[len(rows) :]):
        m = v.mutant
        rows.append(
            {"family": m.family, "line": m.line, "statement": kernel.code.statement(m.line), "source": kernel.code.source(m.line),
             "text": m.text, "kinds": v.kinds, "scheduler": v.scheduler, "reason": v.reason}
        )  # fmt: skip
        found = {"possible": len(all_of_them), "wanted": len(chosen), "seconds": seconds + time.perf_counter() - begin, "rows": rows} | {
            "day": time.strftime("%Y-%m-%d")
        }
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"{case.name}: {len(rows)} faults, {time.perf_counter() - begin:.0f} s", flush=True)


def _counts(rows: Iterable[dict[str, Any]]) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    for x in rows:
        for name in (x["family"], "all"):
            row = counts.setdefault(name, Counter())
            row["planted"] += 1
            row["alike"] += bool(x["reason"])
            row["caught"] += bool(x["kinds"])
            if name != "all":
                row.update({f"as {kind}": 1 for kind in x["kinds"]})
    return counts


def _table(found: dict[str, Any]) -> Iterator[str]:
    yield "| fault | planted | behave like the kernel | caught | missed | first shown as |"
    yield "|---|---|---|---|---|---|"
    counts = _counts(found["rows"])
    for name in [*sorted(set(counts) - {"all"}), "all"]:
        row = counts[name]
        ways = ", ".join(f"{kind[3:]} {n}" for kind, n in row.most_common() if kind.startswith("as "))
        missed = row["planted"] - row["alike"] - row["caught"]
        yield f"| {name} | {row['planted']} | {row['alike']} | {row['caught']} | {missed} | {ways} |"


def _survivors(found: dict[str, Any]) -> Iterator[str]:
    """Those that were not caught, missed ones first; faults that are alike in one line."""
    groups: dict[tuple[str, ...], int] = {}
    for x in found["rows"]:
        if not x["kinds"]:
            key = (x["reason"] or "**missed**", x["family"], x["statement"] or x["source"], x["text"].split()[0])
            groups[key] = groups.get(key, 0) + 1
    for (reason, family, statement, opcode), n in sorted(groups.items()):
        note = NOTES.get(statement.rpartition(":")[0]) if "missed" in reason else None
        yield f"* {reason}: {family}, `{statement}`, {opcode}{f' ({n} of them)' if n > 1 else ''}{f'. {note}' if note else ''}"


def page(folder: Path) -> Iterator[str]:
    """The page, from what ``run`` has left."""
    found = {c.name: json.loads((folder / f"{c.name}.json").read_text(encoding="utf-8")) for c in CASES}
    total: Counter[str] = Counter()
    for x in found.values():
        total += _counts(x["rows"])["all"]
    matter = total["planted"] - total["alike"]
    yield from (
        "# Planted faults", "",
        "`python -m benchmarks.emulate_faults run FOLDER` plants faults in the PTX of shipped kernels and has the emulator judge each; "
        "`page FOLDER` prints this page. Every synchronizing instruction that the problem reaches is dropped, weakened or changed, one at "
        f"a time; of changed values, which are many and alike, about {MOST} of a family. Schedulers take turns until one finds something: "
        "late, eager, newest, random, then held with one line after the other.", "",
        f"**{total['caught']} of the {matter} faults that change what the kernel does are caught ({total['caught'] / matter:.1%}).** "
        f"{total['alike']} more behave like the kernel; the reason is beside each below, and was checked on runs under all schedulers. A "
        "fault that merely was not found is missed.", "",
    )  # fmt: skip
    for case in CASES:
        x = found[case.name]
        left = x["wanted"] - len(x["rows"])
        ended = f" The run was ended before the last {left} that were chosen." if left else ""
        planted = f"{len(x['rows'])} of {x['possible']} possible faults, {x['day']}"
        yield from (
            f"## {case.name}, {case.seqlen_q} x {case.seqlen_k}", "",
            f"{planted}; {x['seconds']:.0f} s on one of two cores of a busy machine.{ended}", "",
            *_table(x), "",
        )  # fmt: skip
        survivors = list(_survivors(x))
        yield from (["Not caught:", "", *survivors, ""] if survivors else [])


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "page"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*", help=f"some of {', '.join(c.name for c in CASES)}; all if none is named")
    given = parser.parse_args()
    if given.what == "page":
        sys.stdout.write("\n".join(page(given.folder)).rstrip() + "\n")
        return 0
    given.folder.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        if not given.cases or case.name in given.cases:
            run(case, given.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
