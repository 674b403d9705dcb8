"""What the comparison of predictions and measurements makes of given measurements."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.prediction import Case, report, spearman


def test_rank_correlation() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert spearman([1, 2, 2, 4], [1, 3, 2, 4]) == pytest.approx(0.9486832980505138)


def test_cycles_of_an_iteration_are_the_slope(tmp_path: Path) -> None:
    """192x80: 43 tiles of rows x 64 heads on 132 SMs, and 48 iterations more in the second run."""
    cases = [
        Case("a", 192, 80, 2050, 1500.0, 4000, "hash", "a.so", 2000, 2010.0),
        Case("b", 128, 128, 4000, 3000.0, 4000, "hash", "b.so", 2500, 3000.0),
    ]
    (tmp_path / "cases.json").write_text(json.dumps([asdict(c) for c in cases]))
    slope = {"a": 2100 * 43 * 64 / 132 * 48, "b": 3100 * 64 * 64 / 132 * 30}
    cycles = {name: {"3840": 5000.0, "7680": 5000.0 + more} for name, more in slope.items()}
    (tmp_path / "measured.json").write_text(json.dumps({"sm_count": 132, "device": "a GPU", "cycles": cycles}))
    text = report(tmp_path)
    assert "| a | 2050 | 1500 | 2000 | 2010 | 2100 | -4.3 % | 2144 | 2240 |" in text
    assert "| b | 4000 | 3000 | 2500 | 3000 | 3100 | -3.2 % | 3000 | 3100 |" in text
    assert "(Spearman) of simulation and measurement 1.000" in text
