"""The page of planted faults says what the judgements say."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.emulate_faults import CASES, _chosen, page
from twill.emulate.mutants import Mutant


def _row(family: str, kinds: list[str], reason: str = "") -> dict[str, object]:
    return {
        "family": family, "line": 7, "statement": "tiles.wait(ring) in k.py:3", "source": "barriers.py:64", "text": "mbarrier.try_wait %r1",
        "kinds": kinds, "scheduler": "late", "reason": reason,
    }  # fmt: skip


def test_counts_and_survivors(tmp_path: Path) -> None:
    rows = [_row("wait dropped", ["race"]), _row("wait dropped", ["deadlock"]), _row("wait dropped", [], "implied: why"), _row("bytes", [])]
    for case in CASES:
        (tmp_path / f"{case.name}.json").write_text(
            json.dumps({"possible": 9, "wanted": 6, "seconds": 12.3, "rows": rows, "day": "2026-12-01"})
        )
    text = "\n".join(page(tmp_path))
    n = len(CASES)
    assert f"**{2 * n} of the {3 * n} faults that change what the kernel does are caught (66.7%).** {n} more behave like" in text
    assert text.count("4 of 9 possible faults, 2026-12-01; 12 s") == n
    assert text.count("ended before the last 2") == n
    assert text.count("| wait dropped | 3 | 1 | 2 | 0 | race 1, deadlock 1 |") == n
    assert text.count("| all | 4 | 1 | 2 | 1 |  |") == n
    assert text.count("* **missed**: bytes, `tiles.wait(ring) in k.py:3`, mbarrier.try_wait") == n


def test_faults_that_are_alike_are_thinned() -> None:
    given = [Mutant(family, i, "", None, None, (), {}) for i in range(95) for family in ("operands swapped", "wait dropped")]  # type: ignore[arg-type]
    chosen = _chosen(given)
    assert sum(m.family == "wait dropped" for m in chosen) == 95
    lines = [m.line for m in chosen if m.family == "operands swapped"]
    assert len(lines) == 10
    assert lines[-1] >= 85
