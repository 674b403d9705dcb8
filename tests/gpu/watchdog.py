"""A child process that answers cases, and is killed when it does not answer in time: a kernel that hangs is a failure, not a stuck job."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from tests.gpu.cases import Case

__all__ = ["ANSWER", "Child", "Failed"]

ANSWER = "@answer "
"""Begins the one line of output that is an answer; libraries print what they like on others."""
START_S = 120.0
END_S = 30.0
ROOT = Path(__file__).parents[2]


class Failed(Exception):
    """A case that the child refuted, did not survive, or did not answer."""


class Child:
    """Answers one case after the other; started when first asked, and again after it hung, died or saw a CUDA error."""

    def __init__(self, prefix: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        self._command = [*prefix, sys.executable, "-u", "-m", "tests.gpu.child"]
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._tail: list[str] = []

    def ask(self, case: Case) -> dict[str, object]:
        """What the check found.

        Raises
        ------
        Failed : with what is wrong, or the end of the child's output.
        """
        first = self._process is None
        to = _input(self._started())
        try:
            to.write(json.dumps(case.as_dict()) + "\n")
            to.flush()
        except OSError:
            raise self._died(case) from None
        answer = self._answer(case, case.timeout_s + (START_S if first else 0.0))
        if answer["fatal"]:
            self.close()
        if answer["failure"]:
            raise Failed(f"{case.name}: {answer['failure']}")
        return dict(answer["found"])

    def close(self) -> int | None:
        """End the child; its exit code, negative if it had to be killed."""
        process = self._process
        if process is None:
            return None
        with suppress(OSError):
            _input(process).close()
        try:
            process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            process.kill()
        return self._reaped()

    @property
    def output(self) -> str:
        """The end of what the child printed besides answers."""
        return "\n".join(self._tail[-60:])

    def _started(self) -> subprocess.Popen[str]:
        if self._process is not None:
            return self._process
        self._lines, self._tail = queue.Queue(), []
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
            env=None if self._environment is None else dict(self._environment),
        )  # fmt: skip
        assert self._process.stdout is not None
        threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()
        return self._process

    def _answer(self, case: Case, timeout_s: float) -> dict[str, dict[str, object] | str]:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(deadline - time.monotonic(), 0.0))
            except queue.Empty:
                self._kill()
                raise Failed(f"{case.name}: no answer in {timeout_s:.0f} s; the child was killed\n{self.output}") from None
            if line is None:
                self._lines.put(None)
                raise self._died(case)
            if line.startswith(ANSWER):
                return dict(json.loads(line.removeprefix(ANSWER)))
            self._tail.append(line)

    def _died(self, case: Case) -> Failed:
        code = self._reaped()
        what = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        return Failed(f"{case.name}: the child ended with {what}\n{self.output}")

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
        self._reaped()

    def _reaped(self) -> int | None:
        """Exit code of a child that has ended or is about to; the rest of its output goes to the tail."""
        process, self._process = self._process, None
        if process is None:
            return None
        with suppress(OSError):
            _input(process).close()
        code = process.wait()
        with suppress(queue.Empty):
            while (line := self._lines.get(timeout=END_S)) is not None:
                self._tail.append(line)
        return code


def _input(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdin is not None
    return process.stdin


def _read(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    with stream:
        for line in stream:
            lines.put(line.rstrip("\n"))
    lines.put(None)
