"""The emitter's entry in the catalogue of errors."""

from __future__ import annotations

from twill.errors import EXIT_REFUSED, TwillError

__all__ = ["EmitError"]


class EmitError(TwillError):
    """A legal schedule for which there is no kernel: an op, a shape or a hand-over that the emitter does not know."""

    exit_code = EXIT_REFUSED
