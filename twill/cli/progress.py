"""Progress of a solve: a status line on the standard error if that is a terminal, nothing otherwise."""

from __future__ import annotations

import importlib
import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.status import Status

__all__ = ["Progress", "import_meanwhile"]

DELAY_S = 0.4
"""Most solves are over before a status line is worth its import."""


class Progress:
    """Shows the latest line that it was told, from `DELAY_S` seconds on. Use as a context manager.

    ``wanted`` is false where the result itself goes to a program (``--json`` into a pipe).
    """

    def __init__(self, what: str, *, wanted: bool = True) -> None:
        self._line = what
        self._what = what
        self._lock = threading.Lock()
        self._status: Status | None = None
        self._over = False
        self._timer: threading.Timer | None = None
        if wanted and sys.stderr.isatty():
            self._timer = threading.Timer(DELAY_S, self._begin)
            self._timer.daemon = True

    def __enter__(self) -> Self:
        if self._timer is not None:
            self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            self._over = True
            if self._timer is not None:
                self._timer.cancel()
            if self._status is not None:
                self._status.stop()

    def say(self, line: str) -> None:
        """Replace the line."""
        with self._lock:
            self._line = f"{self._what}: {line}"
            if self._status is not None:
                self._status.update(self._line)

    def _begin(self) -> None:
        from twill.view.console import make_console

        with self._lock:
            if not self._over:
                self._status = make_console(sys.stderr).status(self._line)
                self._status.start()


def import_meanwhile(*modules: str) -> None:
    """Import modules in a thread, while the main thread waits for the solver process."""

    def load() -> None:
        for module in modules:
            importlib.import_module(module)

    threading.Thread(target=load).start()
