"""Where renderables go: a terminal in colour, anything else as plain text of a fixed width."""

from __future__ import annotations

import io
from typing import IO

from rich.console import Console, RenderableType

__all__ = ["PLAIN_WIDTH", "make_console", "plain_text", "show"]

PLAIN_WIDTH = 100


def make_console(stream: IO[str]) -> Console:
    """A console on a stream; escape codes only on a terminal, and not there either where NO_COLOR is set."""
    width = None if stream.isatty() else PLAIN_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def show(renderable: RenderableType, stream: IO[str]) -> None:
    """Print to a terminal as wide as it is, or to anything else as plain text."""
    if stream.isatty():
        make_console(stream).print(renderable)
    else:
        stream.write(plain_text(renderable))


def plain_text(renderable: RenderableType, width: int = PLAIN_WIDTH) -> str:
    """A renderable as text without colours, no line longer than ``width`` and none with blanks at its end."""
    buffer = io.StringIO()
    Console(file=buffer, width=width, highlight=False, markup=False, emoji=False, color_system=None, force_terminal=False).print(renderable)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"
