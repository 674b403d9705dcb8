"""What is timed: shapes of attention, their work, and what a GPU would take if its tensor cores were all that counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product

__all__ = ["BACKWARD_ROWS", "ROWS", "Row"]

TOKENS = 32768
FLOPS_A_CYCLE = 4096
"""Dense bf16 or fp16 operations of one Hopper SM's tensor cores a cycle (H100 whitepaper: 989 TFLOP/s, 132 SMs, 1.83 GHz)."""
SCALE_CYCLES = 2048
"""Tensor-core cycles of 128 queries by 128 keys at head dim 128, the unit in which schedules give I."""


@dataclass(frozen=True, slots=True)
class Row:
    """One shape; queries and keys are equally many. With ``gradients`` it is the backward that is timed."""

    head_dim: int
    head_dim_v: int
    seqlen: int
    causal: bool
    batch: int
    heads: int
    dtype: str = "bf16"
    gradients: bool = False

    @property
    def name(self) -> str:
        dims = f"d{self.head_dim}" + (f"-{self.head_dim_v}" if self.head_dim_v != self.head_dim else "")
        flags = ("-causal" if self.causal else "") + ("-backward" if self.gradients else "")
        return f"{dims}-{self.dtype}-s{self.seqlen}-b{self.batch}h{self.heads}{flags}"

    @property
    def flops(self) -> float:
        """Two matrix products, five of a backward; a causal mask leaves half of the keys, as usual in comparisons."""
        keys = self.seqlen / 2 if self.causal else self.seqlen
        dims = 3 * self.head_dim + 2 * self.head_dim_v if self.gradients else self.head_dim + self.head_dim_v
        return 2.0 * self.batch * self.heads * self.seqlen * keys * dims

    def scaled_cycles(self, cycles: float, sm_count: int) -> float:
        """Cycles of the whole kernel in units of schedules: 2048 would be tensor cores busy all the time on all SMs."""
        return cycles * SCALE_CYCLES / (self.flops / (FLOPS_A_CYCLE * sm_count))

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def _rows() -> Iterator[Row]:
    masks = (False, True)
    for seqlen, causal in product((16384, 8192, 4096, 2048, 1024), masks):
        yield Row(128, 128, seqlen, causal, TOKENS // seqlen, 16)
    for (d, dv, heads), causal in product(((64, 64, 32), (96, 96, 16), (192, 128, 16), (256, 256, 8)), masks):
        yield Row(d, dv, 8192, causal, TOKENS // 8192, heads)
    for seqlen in (2048, 4096, 8192, 16384):
        yield Row(128, 128, seqlen, False, 4, 32, "fp16")


ROWS = tuple(_rows())
"""32k tokens in bf16; fp16, batch 4 and 32 heads is the case of the paper that twill follows."""


def _backward_rows() -> Iterator[Row]:
    masks = (False, True)
    for (d, heads), seqlen, causal in product(((128, 16), (96, 16), (64, 32)), (16384, 8192, 4096, 2048, 1024), masks):
        yield Row(d, d, seqlen, causal, TOKENS // seqlen, heads, gradients=True)
    for (d, dv, heads), causal in product(((192, 128, 16), (256, 256, 8)), masks):
        yield Row(d, dv, 8192, causal, TOKENS // 8192, heads, gradients=True)


BACKWARD_ROWS = tuple(_backward_rows())
"""32k tokens in bf16."""
