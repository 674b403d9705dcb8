"""Any one field changed: refused, naming role, barrier and edge, or an equivalent program as far as every scheduler can tell."""

from __future__ import annotations

import pytest

from twill.check.protocol import check_protocol

from .mutants import Mutant, mutants
from .test_programs import HAND_WRITTEN, wrong_run

PARTS = 8


def _names_it(mutant: Mutant, text: str) -> bool:
    """A barrier that is not there guards nothing that could be named."""
    if mutant.name.endswith(": dropped") and not mutant.role:
        return "does not exist" in text
    return mutant.role in text and ("edge " in text or "release " in text or "order " in text or "(wait for own" in text)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_one_field(name: str, part: int) -> None:
    make, graph = HAND_WRITTEN[name]
    for mutant in list(mutants(make()))[part::PARTS]:
        report = check_protocol(mutant.program, graph())
        if report.ok:
            assert wrong_run(mutant.program, graph(), (1, 4), seeds=2) == "", mutant.name
        elif mutant.barrier:
            # some finding is about what was changed, and says which dependence is at stake
            text = "\n".join(f.message for f in report.findings)
            assert _names_it(mutant, text), (mutant.name, text)
            assert mutant.barrier in text or mutant.instead in text, (mutant.name, text)


@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_sharpness(name: str) -> None:
    """What is refused for its order of events (not for its form) is wrong in some interleaving, but for named exceptions."""
    make, graph = HAND_WRITTEN[name]
    refused = harmless = 0
    for mutant in mutants(make()):
        report = check_protocol(mutant.program, graph())
        if {f.rule for f in report.findings} & {"deadlock", "edge", "race"}:
            refused += 1
            harmless += wrong_run(mutant.program, graph(), (2, 5), seeds=2) == ""
    assert refused > 60
    assert harmless <= 0.2 * refused
