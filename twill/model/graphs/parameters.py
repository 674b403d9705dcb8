"""Parameters of the shipped graphs, checked before anything is built."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from twill.errors import ParameterError

__all__ = ["DTYPE_BYTES", "Rescale", "Tile", "check_head_dim", "parse_chunks", "parse_tile"]

DTYPE_BYTES = {"bf16": 2, "fp16": 2}

LARGEST_TILE = 1024
"""Rows or columns of the largest tile worth asking for; whether a tile below fits is for the solver to say."""

Rescale = Literal["always", "conditional", "old_max"]


@dataclass(frozen=True, slots=True)
class Tile:
    """``m`` query rows by ``n`` keys."""

    m: int
    n: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}"


def parse_tile(text: str) -> Tile:
    """Read ``MxN``.

    Raises
    ------
    ParameterError : not of that form, not multiples of 8, or absurdly large.
    """
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if not match:
        raise ParameterError(f"--tile {text!r} is not of the form MxN", "write --tile 128x128, say")
    tile = Tile(int(match[1]), int(match[2]))
    if tile.m == 0 or tile.n == 0 or tile.m % 8 or tile.n % 16:
        raise ParameterError(f"tile {tile}: M must be a positive multiple of 8 and N of 16", "use 128x128, say")
    if tile.m > LARGEST_TILE or tile.n > LARGEST_TILE:
        raise ParameterError(f"tile {tile} is larger than {LARGEST_TILE}x{LARGEST_TILE}, which fits no SM", "use 128x128, say")
    return tile


def check_head_dim(name: str, value: int) -> None:
    """Head dims are multiples of 8 from 8 to 256."""
    if value % 8 or not 8 <= value <= 256:
        near = min(256, max(8, round(value / 8) * 8))
        raise ParameterError(f"{name} {value} is not a multiple of 8 between 8 and 256", f"use {near}, and pad the tensors with zeros")


def parse_chunks(text: str, columns: int) -> tuple[int, ...]:
    """Widths of the chunks of a tile of ``columns``: a count (``4``) or widths (``96+32``).

    Raises
    ------
    ParameterError : the widths do not sum to ``columns`` in multiples of 16.
    """
    try:
        if not text.isascii():
            raise ValueError(text)
        numbers = tuple(int(part) for part in text.split("+"))
    except ValueError:
        raise ParameterError(f"chunks {text!r} is neither a count nor widths such as 96+32", "write chunks=2 or chunks=96+32") from None
    if len(numbers) == 1 and 0 < numbers[0] <= columns // 16:
        count = numbers[0]
        steps = columns // 16
        widths = tuple(16 * (steps // count + (i < steps % count)) for i in range(count))
    else:
        widths = numbers
    if any(w <= 0 or w % 16 for w in widths) or sum(widths) != columns:
        raise ParameterError(
            f"chunks {text!r} do not add up to {columns} columns in multiples of 16", "write a count, or widths such as 96+32"
        )
    return widths
