"""The entry of the PyTorch functions in the catalogue of errors."""

from __future__ import annotations

from twill.errors import TwillError

__all__ = ["AttentionError"]


class AttentionError(TwillError, ValueError):
    """Tensors, or a device, that no kernel of ours can take. Raised before anything is launched."""
