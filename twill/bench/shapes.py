"""What attention is asked for when a kernel is verified: head dims, and lengths of queries and keys."""

from __future__ import annotations

__all__ = ["EMPTY_PAIRS", "HEAD_DIMS", "PAIRS"]

HEAD_DIMS = ((64, 64), (96, 96), (128, 128), (192, 128), (256, 256))
"""Of Q and K, and of V."""

PAIRS = (
    (1, 1), (2, 3), (1, 129), (3, 1), (63, 65), (64, 64), (65, 300), (64, 128), (128, 128), (129, 127), (192, 80), (191, 241), (193, 193),
    (113, 203), (256, 256), (239, 1), (799, 3), (108, 511), (384, 256), (640, 128), (512, 513), (1024, 1023), (1023, 1024), (2048, 2048),
    (4096, 4096), (4224, 4223),
)  # fmt: skip
"""Lengths of queries and keys: each side of every tile size that the kernels use, one much longer than the other, and long ones."""

EMPTY_PAIRS = ((0, 5), (5, 0), (0, 0))
