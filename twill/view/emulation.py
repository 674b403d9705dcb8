"""What a run under the emulator shows, as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twill.emulate.kernel import Result
    from twill.emulate.machine.code import Code

__all__ = ["report"]


def report(result: Result, code: Code, seconds: float) -> Iterator[str]:
    """Lines of a report on one run."""
    findings, coverage = result.findings, result.coverage
    errors = findings.errors
    verdict = "no finding" if not findings.items else f"{len(errors)} errors, {len(findings.items) - len(errors)} warnings"
    error = (
        f"largest error {result.largest_error:.2f} of what rounding allows"
        if result.largest_error == result.largest_error
        else "not compared"
    )
    yield f"{result.scheduler}: {verdict}; {error}; {seconds:.1f} s"
    near = ", ".join(f"{name} {b.equal / max(b.size, 1):.2%} equal, at most {b.units} units off" for name, b in result.beside.items())
    if near:
        yield f"  beside the bit-level model: {near}"
    turns = sorted(coverage.turns.items())
    rings: dict[str, list[int]] = {}
    for name, turn in turns:
        rings.setdefault(name.partition("[")[0], []).append(turn)
    used = ", ".join(f"{name} {min(t)}-{max(t)}" if min(t) != max(t) else f"{name} {t[0]}" for name, t in rings.items())
    run = {i for s in code.flow.segments if s.index in coverage.seen for i in range(s.begin, s.end)}
    rescaling = {i for i, x in enumerate(code.kernel.instructions) if "rescale" in code.statement(x.line)}
    of_all = f"{len(run)} of {len(code.kernel.instructions)} instructions"
    of_that = f", {len(run & rescaling)} of {len(rescaling)} of rescaling" if rescaling else ""
    yield f"  covered: {coverage.blocks} blocks, {coverage.segments} segments, {of_all}{of_that}"
    yield f"  phases of barriers: {used}" if used else "  no barriers"
    for f, places, times in findings.grouped():
        where = "; ".join(x for x in (f.where, f"PTX line {f.line}" if f.line else "", f.statement, f.source) if x)
        again = f" (and {places - 1} more like it, met {times} times)" if places > 1 else f" (met {times} times)" if times > 1 else ""
        yield f"  {f.severity}: {f.kind}: {f.text}" + (f" [{where}]" if where else "") + again
