"""What goes wrong before a kernel runs; what goes wrong inside it is a `Finding`."""

from twill.errors import TwillError

__all__ = ["EmulationError"]


class EmulationError(TwillError):
    """The emulator cannot go on: PTX that it does not know, host code that refuses its arguments, a tool that is not installed."""
