"""Head dims as kernels have them: rounded up to the depth of an MMA, and as part of a name."""

from __future__ import annotations

__all__ = ["MMA_DEPTH", "HeadDims"]

MMA_DEPTH = 16
"""What one MMA multiplies of a 16-bit operand."""


def _padded(head_dim: int) -> int:
    return -(-head_dim // MMA_DEPTH) * MMA_DEPTH


class HeadDims:
    """For what has a ``head_dim`` of Q and K and a ``head_dim_v`` of V and O."""

    __slots__ = ()
    head_dim: int
    head_dim_v: int

    @property
    def columns(self) -> int:
        """Columns of Q and K in SMEM: the head dim rounded up to the depth of an MMA."""
        return _padded(self.head_dim)

    @property
    def columns_v(self) -> int:
        """Columns of V and O in SMEM."""
        return _padded(self.head_dim_v)

    @property
    def dims(self) -> str:
        """As the name of a kernel has them: d128, d192_dv128."""
        return f"d{self.head_dim}" + (f"_dv{self.head_dim_v}" if self.head_dim_v != self.head_dim else "")
