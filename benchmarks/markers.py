"""Generated parts of Markdown pages, between ``<!-- begin: NAME -->`` and ``<!-- end: NAME -->``."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["REPOSITORY", "differing", "put", "table", "write"]

REPOSITORY = Path(__file__).resolve().parent.parent


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- begin: {re.escape(name)} -->\n).*?(<!-- end: {re.escape(name)} -->)", re.DOTALL)


def put(text: str, name: str, body: str) -> str:
    """The page with this part replaced.

    Raises
    ------
    ValueError : the page has no such part.
    """
    if not _pattern(name).search(text):
        raise ValueError(f"there is no part {name!r} between markers")
    return _pattern(name).sub(lambda m: f"{m[1]}{body.rstrip()}\n{m[2]}", text)


def differing(page: Path, parts: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the parts that are not what the page says."""
    text = page.read_text()
    return tuple(name for name, body in parts.items() if put(text, name, body) != text)


def write(page: Path, parts: Mapping[str, str], *, check: bool) -> int:
    """Replace the parts, or with ``check`` only compare; an exit code."""
    if check:
        different = differing(page, parts)
        for name in different:
            sys.stdout.write(f"{page.name}: {name} differs from what the code makes\n")
        return 1 if different else 0
    text = page.read_text()
    for name, body in parts.items():
        text = put(text, name, body)
    page.write_text(text)
    return 0
