"""Where a role stands, with as few instructions as can be: on Blackwell they share issue slots with the exponentials."""

from __future__ import annotations

from twill.emit.tiles import iteration
from twill.emit.tiles.iteration import Iteration

__all__ = ["start"]


def start(depths: tuple[int, ...], peeked: tuple[str, ...] = ()) -> Iteration:
    """As `twill.emit.tiles.iteration.start`; rings of two slots toggle."""
    return iteration.start(depths, peeked, toggles=True)
