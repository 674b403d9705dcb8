"""What goes wrong before a kernel runs; what goes wrong inside it is a `Finding`."""

__all__ = ["EmulationError"]


class EmulationError(Exception):
    """The emulator cannot go on. Says what is wrong and, as ``hint``, the next step."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}\n  next: {hint}")
        self.message = message
        self.hint = hint
