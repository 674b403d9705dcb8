"""Every case on a GPU, in a child process with a watchdog."""

from __future__ import annotations

import pytest

from tests.gpu.cases import Case, everything
from tests.gpu.gradient_cases import gradient_cases
from tests.gpu.sanitizer import RUNS, SanitizerRun, sanitized
from twill.bench.watchdog import Child, Failed

CASES = (*everything(), *gradient_cases())


@pytest.mark.gpu
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_case(child: Child, case: Case) -> None:
    try:
        found = child.ask(case.name, case.as_dict(), case.timeout_s)
    except Failed as failure:
        pytest.fail(str(failure), pytrace=False)
    if "skipped" in found:
        pytest.skip(str(found["skipped"]))


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.parametrize("run", RUNS, ids=lambda r: r.name)
def test_compute_sanitizer_finds_nothing(run: SanitizerRun) -> None:
    try:
        sanitized(run)
    except Failed as failure:
        pytest.fail(str(failure), pytrace=False)
    except FileNotFoundError as error:
        pytest.skip(str(error))
