"""Talk to the solver process: load a formula, check it, keep to the time limit, leave no orphan."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from twill.errors import SolverError
from twill.solver.encoding.formula import ORIGIN, Diff, Formula, Literal

__all__ = ["OutOfTime", "Session", "render_clause"]


class OutOfTime(Exception):
    """The time limit of the whole solve has passed; the session is over."""


def _number(n: int) -> str:
    return str(n) if n >= 0 else f"(- {-n})"


def _atom(f: Formula, d: Diff) -> str:
    steps = f.bound(d) // f.unit
    if d.b == ORIGIN:
        return f"(>= t{d.a} {_number(steps)})"
    if d.a == ORIGIN:
        return f"(<= t{d.b} {_number(-steps)})"
    return f"(>= (- t{d.a} t{d.b}) {_number(steps)})"


def _literal(f: Formula, x: Literal) -> str:
    if isinstance(x, Diff):
        return _atom(f, x)
    return f"b{x}" if x > 0 else f"(not b{-x})"


def render_clause(f: Formula, literals: tuple[Literal, ...]) -> str:
    """A clause as an SMT-LIB term."""
    if not literals:
        return "false"
    if len(literals) == 1:
        return _literal(f, literals[0])
    return "(or " + " ".join(_literal(f, x) for x in literals) + ")"


def render(f: Formula, *, since: tuple[int, ...] = (0, 0), guards: dict[tuple[str, str], str] | None = None) -> str:
    """The constraints added since a mark as SMT-LIB; with ``guards`` those of a label hold only under its guard."""
    lines: list[str] = []

    def claim(term: str, label: tuple[str, str]) -> None:
        guard = guards.get(label) if guards else None
        lines.append(f"(assert (=> {guard} {term}))" if guard else f"(assert {term})")

    for clause in f.clauses[since[0] :]:
        claim(render_clause(f, clause.literals), clause.label)
    for s in f.sums[since[1] :]:
        weights = " ".join(str(w) for w, _ in s.terms)
        literals = " ".join(_literal(f, lit) for _, lit in s.terms)
        claim(f"((_ pble {s.bound} {weights}) {literals})" if s.bound >= 0 else "false", s.label)
    return "\n".join(lines)


class Session:
    """One solver process and the deadline of the solve. Use as a context manager."""

    def __init__(self, *, timeout_s: float, seed: int = 0, logic: str = "QF_IDL") -> None:
        self.deadline = time.monotonic() + timeout_s
        self.seed = seed
        self.logic = logic
        self.queries = 0
        self._declared = (0, 0)
        self.version = ""
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("worker.py"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._pending = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the solver process at once."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._selector.close()

    def remaining(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while b"\n" not in self._pending:
            left = self.remaining()
            if left <= 0 or not self._selector.select(left):
                raise OutOfTime
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                raise SolverError(
                    f"the solver process ended unexpectedly (exit code {self._process.wait()})",
                    "run the command again; if it happens again, lower memory use with fewer --groups or a larger --time-unit",
                )
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SolverError(f"z3 refused a query: {answer['error'][:200]}", "please report the command and its graph")
        return answer

    def _ask(self, **request: Any) -> dict[str, Any]:
        if not self.version:
            self.version = self._receive()["ready"]
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise SolverError("the solver process ended unexpectedly", "run the command again") from None
        return self._receive()

    def load(self, f: Formula, guards: dict[tuple[str, str], str] | None = None) -> None:
        """Start anew with this formula."""
        names = [f"(declare-const {name} Bool)\n" for name in sorted(set((guards or {}).values()))]
        self._declared = (0, 0)
        text = self._declare(f) + "".join(names) + render(f, guards=guards)
        self._ask(do="load", logic=self.logic, seed=self.seed, text=text)

    def _declare(self, f: Formula) -> str:
        """Declarations of the nodes and Booleans that are new since the last load or check."""
        nodes, booleans = self._declared
        self._declared = (max(nodes, f.nodes), max(booleans, len(f.booleans)))
        lines = [f"(declare-const t{i} Int)\n" for i in range(nodes, f.nodes)]
        lines += [f"(declare-const b{i + 1} Bool)\n" for i in range(booleans, len(f.booleans))]
        return "".join(lines)

    def check(
        self, f: Formula, *, since: tuple[int, int, int, int] | None = None, assume: list[str] | None = None, effort: int = 0
    ) -> dict[str, Any]:
        """Check the loaded formula together with what was added to it ``since`` a mark, which is forgotten afterwards.

        ``effort`` limits z3's deterministic resource counter (about 80 million a second), 0 means any.
        Returns ``{"result": "sat", "values": ...}``, ``unsat`` (with ``core`` under assumptions) or ``unknown``.

        Raises
        ------
        OutOfTime : the deadline passed while z3 was at work.
        SolverError : the process died.
        """
        self.queries += 1
        extra = render(f, since=since) if since is not None and since != f.mark() else ""
        return self._ask(do="check", text=self._declare(f) + extra, assume=assume or [], effort=effort)
