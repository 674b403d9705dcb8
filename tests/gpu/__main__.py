"""``python -m tests.gpu``: all cases without pytest, for a GPU machine that has only PyTorch and TVM-FFI.

Ends with exit code 1 if a case failed. ``--json`` writes what every case found; ``--budget`` stops asking after so many seconds and says
how many cases were left.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.gpu.cases import Case, everything, of_kernel
from tests.gpu.gradient_cases import gradient_cases
from tests.gpu.sanitizer import RUNS, sanitized
from twill.bench.watchdog import Child, Failed

__all__ = ["main"]

PROBES = (Case("stride of zero"),)
"""Asked for what they find; they cannot fail but by an error."""


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _chosen(pattern: str, files: Sequence[Path]) -> list[Case]:
    """Cases whose name matches; of kernel files, if there are any, else of what ships."""
    if not files:
        return [c for c in (*everything(), *gradient_cases(), *PROBES) if re.search(pattern, c.name)]
    from twill.pytorch.catalogue import read_kernel

    read = [read_kernel(path) for path in files]
    return [c for k in read for c in of_kernel(str(k.path), k.head_dim, k.head_dim_v) if re.search(pattern, c.name)]


class Records(list[dict[str, object]]):
    """What was found, written after every case: a run that is ended from outside leaves all that it had found."""

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self.path = path

    def note(self, case: str, failure: str, found: Mapping[str, object], began: float) -> None:
        self.append({"case": case, "failure": failure, "found": dict(found), "seconds": round(time.monotonic() - began, 3)})
        if self.path:
            self.path.write_text(json.dumps(self, indent=1) + "\n", encoding="utf-8")


def _cases(cases: Sequence[Case], deadline: float, records: Records) -> tuple[int, int]:
    """Ask them all; failures, and cases for which there was no time."""
    child, failed = Child("tests.gpu.child"), 0
    worst: dict[str, tuple[float, str]] = {}
    for n, case in enumerate(cases):
        if time.monotonic() > deadline:
            child.close()
            return failed, len(cases) - n
        began, failure, found = time.monotonic(), "", dict[str, object]()
        try:
            found = child.ask(case.name, case.as_dict(), case.timeout_s)
        except Failed as error:
            failed, failure = failed + 1, str(error)
            _say(f"FAILED {failure}")
        if case.check.removeprefix("gradients ") not in ("values", "gradients", "hostile", "layout"):
            _say(f"{case.name}: {'failed' if failure else found} ({time.monotonic() - began:.1f} s)")
        for rule in ("flash", "element", "lse"):
            used = found.get(rule)
            if isinstance(used, float) and used > worst.get(rule, (-1.0, ""))[0]:
                worst[rule] = (used, case.name)
        records.note(case.name, failure, found, began)
    child.close()
    for rule, (used, name) in worst.items():
        _say(f"the most of rule {rule} that was used: {used:.3f}, by {name}")
    return failed, 0


def _sanitize(pattern: str, deadline: float, records: Records) -> tuple[int, int]:
    failed = 0
    runs = [r for r in RUNS if re.search(pattern, r.name)]
    for n, run in enumerate(runs):
        if time.monotonic() > deadline:
            return failed, len(runs) - n
        began, failure = time.monotonic(), ""
        try:
            sanitized(run)
        except Failed as error:
            failed, failure = failed + 1, str(error)
            _say(f"FAILED {failure}")
        _say(f"{run.name}: {'failed' if failure else 'clean'} ({time.monotonic() - began:.1f} s)")
        records.note(run.name, failure, {}, began)
    return failed, 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, print, record."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description="the tests on a GPU, without pytest")
    parser.add_argument("--only", default="", metavar="REGEX", help="only cases whose name this is found in")
    parser.add_argument("--budget", type=float, default=1e9, metavar="SECONDS", help="ask nothing more after this time")
    parser.add_argument("--kernel", type=Path, nargs="+", default=[], metavar="FILE", help="test these emitted files, not what ships")
    parser.add_argument("--no-sanitizer", action="store_true", help="leave compute-sanitizer out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    given = parser.parse_args(arguments)
    deadline, records = time.monotonic() + given.budget, Records(given.json)
    failed, left = _cases(_chosen(given.only, given.kernel), deadline, records)
    if not given.no_sanitizer and not given.kernel:
        try:
            more = _sanitize(given.only, deadline, records)
            failed, left = failed + more[0], left + more[1]
        except FileNotFoundError as error:
            _say(f"FAILED {error}")
            failed += 1
    passed = len(records) - sum(bool(r["failure"]) for r in records)
    _say(f"{passed} passed, {failed} failed, {left} not asked for want of time")
    return 1 if failed or left else 0


if __name__ == "__main__":
    sys.exit(main())
