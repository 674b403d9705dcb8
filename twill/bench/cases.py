"""What is verified: every head dim, type and mask over pairs of lengths, grouped by the compiled kernel that each takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import Literal

from twill.bench.shapes import EMPTY_PAIRS, HEAD_DIMS, PAIRS

__all__ = ["Case", "Variant", "cases", "variants"]

HEADS = 6
KV_HEADS = (6, 3, 1)
LONG = 2048
QUICK_PAIRS = ((1, 1), (65, 300), (191, 241), (113, 203), (799, 3), (512, 513), (1023, 1024))


@dataclass(frozen=True, slots=True)
class Variant:
    """One compiled kernel."""

    head_dim: int
    head_dim_v: int
    dtype: Literal["bf16", "fp16"]
    causal: bool

    @property
    def name(self) -> str:
        dims = f"d{self.head_dim}" + (f"-{self.head_dim_v}" if self.head_dim_v != self.head_dim else "")
        return f"{dims}-{self.dtype}{'-causal' if self.causal else ''}"

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Case:
    """A shape for a variant; ``repeats`` runs have to give the same bits."""

    variant: Variant
    batch: int
    heads: int
    kv_heads: int
    seqlen_q: int
    seqlen_k: int
    repeats: int = 0

    @property
    def name(self) -> str:
        again = f"-{self.repeats}-times" if self.repeats else ""
        return f"{self.variant.name}-{self.seqlen_q}x{self.seqlen_k}-b{self.batch}h{self.heads}kv{self.kv_heads}{again}"

    def as_dict(self) -> dict[str, object]:
        return {**self.variant.as_dict(), **{k: v for k, v in asdict(self).items() if k != "variant"}}


def variants(head_dims: tuple[tuple[int, int], ...] = HEAD_DIMS) -> Iterator[Variant]:
    """bf16 first: it is what is timed."""
    dtypes: tuple[Literal["bf16", "fp16"], ...] = ("bf16", "fp16")
    for dtype, (d, dv), causal in product(dtypes, head_dims, (False, True)):
        yield Variant(d, dv, dtype, causal)


def cases(variant: Variant, *, quick: bool = False) -> Iterator[Case]:
    """Small shapes first; the ways to share heads take turns; at last the same bits again and again."""
    pairs = sorted(QUICK_PAIRS if quick else PAIRS + EMPTY_PAIRS, key=lambda pair: (max(pair) > LONG, 0))
    for n, pair in enumerate(pairs):
        yield Case(variant, 2 if max(pair) > LONG else 9, HEADS, KV_HEADS[n % len(KV_HEADS)], *pair)
    yield Case(variant, 2, HEADS, HEADS, 1000, 1100, repeats=50 if quick else 500)
