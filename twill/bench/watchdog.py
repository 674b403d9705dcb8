"""A child process that answers questions, and is killed when it does not in time: a kernel that hangs is a failure, not a stuck job.

The child is a module that calls `serve`. A question is a line of JSON, and so is an answer.
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

__all__ = ["Child", "Failed", "serve"]

ANSWER = "@answer "
"""Begins the one line of output that is an answer; libraries print what they like on others."""
START_S = 120.0
END_S = 30.0
FRAMES = 6
"""How much of a traceback is told."""


class Failed(Exception):
    """A question that the child answered with a failure, did not survive, or did not answer."""


class Child:
    """Answers one question after the other; started when first asked, and again after it hung, died or saw a CUDA error."""

    def __init__(self, module: str, prefix: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        self._command = [*prefix, sys.executable, "-u", "-m", module]
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._tail: list[str] = []

    def ask(self, name: str, question: Mapping[str, object], timeout_s: float) -> dict[str, Any]:
        """The answer. ``name`` is for messages; a child that has to be started first gets `START_S` more.

        Raises
        ------
        Failed : with what is wrong, or the end of the child's output.
        """
        allowed_s = timeout_s + (START_S if self._process is None else 0.0)
        to = _input(self._started())
        try:
            to.write(json.dumps(dict(question)) + "\n")
            to.flush()
        except OSError:
            raise self._died(name) from None
        answer = self._answer(name, allowed_s)
        if answer["fatal"]:
            self.close()
        if answer["failure"]:
            raise Failed(f"{name}: {answer['failure']}")
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

    def kill(self) -> None:
        """End the child at once, whatever its kernels do."""
        if self._process is not None:
            self._process.kill()
        self._reaped()

    @property
    def output(self) -> str:
        """The end of what the child printed besides answers."""
        return "\n".join(self._tail[-60:])

    def _started(self) -> subprocess.Popen[str]:
        if self._process is not None:
            return self._process
        self._lines, self._tail = queue.Queue(), []
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=None if self._environment is None else dict(self._environment),
        )  # fmt: skip
        assert self._process.stdout is not None
        threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()
        return self._process

    def _answer(self, name: str, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(deadline - time.monotonic(), 0.0))
            except queue.Empty:
                self.kill()
                raise Failed(f"{name}: no answer in {timeout_s:.0f} s; the child was killed\n{self.output}") from None
            if line is None:
                self._lines.put(None)
                raise self._died(name)
            if line.startswith(ANSWER):
                return dict(json.loads(line.removeprefix(ANSWER)))
            self._tail.append(line)

    def _died(self, name: str) -> Failed:
        code = self._reaped()
        what = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        return Failed(f"{name}: the child ended with {what}\n{self.output}")

    def _reaped(self) -> int | None:
        """Exit code of a child that has ended or is about to; the rest of its output goes to the tail."""
        process, self._process = self._process, None
        if process is None:
            return None
        with suppress(OSError):
            _input(process).close()
        try:
            code = process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            return None  # killed, but its driver does not let go of it
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


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Be the child: answer every line of the input. An exception is a failure, and one of CUDA is fatal to the process as well."""
    for line in sys.stdin:
        said: dict[str, Any] = {"failure": "", "fatal": False, "found": {}}
        try:
            said["found"] = answer(json.loads(line))
        except AssertionError as error:
            said["failure"] = str(error) or traceback.format_exc(limit=-FRAMES)
        except Exception as error:
            said["failure"] = traceback.format_exc(limit=-FRAMES)
            said["fatal"] = "CUDA" in str(error)
        sys.stdout.write(ANSWER + json.dumps(said) + "\n")
        sys.stdout.flush()
