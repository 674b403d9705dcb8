"""Ways for a tensor of shape (batch, seq, heads, dim) to lie in memory. Each is made from a function that gives so many elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["COPIED", "READ_IN_PLACE"]

Flat = Callable[[int], Any]

READ_IN_PLACE: dict[str, Callable[[Flat, int, int, int, int], Any]] = {
    "contiguous": lambda flat, b, s, h, d: flat(b * s * h * d).view(b, s, h, d),
    "heads outside": lambda flat, b, s, h, d: flat(b * s * h * d).view(b, h, s, d).transpose(1, 2),
    "batch inside": lambda flat, b, s, h, d: flat(b * s * h * d).view(s, b, h, d).transpose(0, 1),
    "one of three packed": lambda flat, b, s, h, d: flat(3 * b * s * h * d).view(b, s, 3, h, d)[:, :, 1],
    "every second position": lambda flat, b, s, h, d: flat(2 * b * s * h * d).view(b, 2 * s, h, d)[:, ::2],
    "part of wider heads": lambda flat, b, s, h, d: flat(b * s * h * 2 * d).view(b, s, h, 2 * d)[..., 8 : 8 + d],
}
"""Those that a tensor map can describe."""

COPIED: dict[str, Callable[[Flat, int, int, int, int], Any]] = {
    "dim not contiguous": lambda flat, b, s, h, d: flat(b * s * h * d).view(b, s, d, h).transpose(2, 3),
    "odd row stride": lambda flat, b, s, h, d: flat(b * s * h * (d + 4)).view(b, s, h, d + 4)[..., :d],
    "data off by one element": lambda flat, b, s, h, d: flat(b * s * h * d + 1)[1:].view(b, s, h, d),
    "data off by seven elements": lambda flat, b, s, h, d: flat(b * s * h * d + 7)[7:].view(b, s, h, d),
    "batch expanded": lambda flat, b, s, h, d: flat(s * h * d).view(1, s, h, d).expand(b, -1, -1, -1),
    "sequence expanded": lambda flat, b, s, h, d: flat(b * h * d).view(b, 1, h, d).expand(-1, s, -1, -1),
    "all expanded": lambda flat, b, s, h, d: flat(d).view(1, 1, 1, d).expand(b, s, h, -1),
}
"""Those that it cannot, or may not."""
