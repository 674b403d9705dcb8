"""What is tested on a GPU, as data: each case is one question to the child process (`tests.gpu.child`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product

from tests.gpu import regenerated
from twill.bench.shapes import EMPTY_PAIRS, HEAD_DIMS, PAIRS

__all__ = ["HEAD_DIMS", "ORDERED", "PAIRS", "Case", "everything", "grid", "of_kernel"]

HEADS = 6
KV_HEADS = (6, 3, 1)
LONG = 2048


ORDERED = "ordered"
"""Detail of cases whose gradients are to be the same to the bit in every run."""


@dataclass(frozen=True, slots=True)
class Case:
    """One check of one kernel; ``detail`` says what else the check needs to know, ``kernel`` a file to register first.

    Instead of a file it may be `regenerated.ANOTHER`.
    """

    check: str
    head_dim: int = 128
    head_dim_v: int = 128
    dtype: str = "bf16"
    causal: bool = False
    batch: int = 2
    heads: int = HEADS
    kv_heads: int = HEADS
    seqlen_q: int = 1000
    seqlen_k: int = 1000
    detail: str = ""
    kernel: str = ""
    timeout_s: float = 60.0

    @property
    def name(self) -> str:
        dims = f"d{self.head_dim}" if self.head_dim == self.head_dim_v else f"d{self.head_dim}-{self.head_dim_v}"
        mask = "-causal" if self.causal else ""
        lengths = f"{self.seqlen_q}x{self.seqlen_k}-b{self.batch}h{self.heads}kv{self.kv_heads}"
        return f"{self.check}{'-' if self.detail else ''}{self.detail}-{dims}-{self.dtype}{mask}-{lengths}".replace(" ", "_")

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def grid() -> Iterator[Case]:
    """Every head dim, type and mask with every pair of lengths; the ways to share heads take turns."""
    for n, (dims, dtype, causal, pair) in enumerate(product(HEAD_DIMS, ("bf16", "fp16"), (False, True), PAIRS + EMPTY_PAIRS)):
        batch = 2 if max(pair) > LONG else 9
        kv_heads = KV_HEADS[(n + n // len(KV_HEADS)) % len(KV_HEADS)]
        yield Case("values", *dims, dtype, causal, batch, HEADS, kv_heads, *pair)


def _every_kernel(check: str, **more: object) -> Iterator[Case]:
    for (d, dv), causal in product(HEAD_DIMS, (False, True)):
        yield Case(check, d, dv, causal=causal, **more)  # type: ignore[arg-type]


def of_kernel(path: str, head_dim: int, head_dim_v: int) -> Iterator[Case]:
    """What a kernel file that does not ship has to get right."""
    pairs = tuple(p for p in PAIRS if max(p) <= LONG) + EMPTY_PAIRS
    for n, (dtype, causal, pair) in enumerate(product(("bf16", "fp16"), (False, True), pairs)):
        yield Case("values", head_dim, head_dim_v, dtype, causal, 9, HEADS, KV_HEADS[n % len(KV_HEADS)], *pair, kernel=path)
    for causal in (False, True):
        yield Case("repeats", head_dim, head_dim_v, causal=causal, kernel=path, timeout_s=120.0)


REGENERATED_PAIRS = ((1, 1), (3, 1), (63, 65), (65, 300), (129, 127), (193, 193), (239, 1), (512, 513), (1023, 1024), (5, 0))


def _regenerated() -> Iterator[Case]:
    """Kernels of other head dims: fewer pairs of lengths, for they are printed by what prints the others."""
    for n, (d, dtype, causal, pair) in enumerate(product(regenerated.HEAD_DIMS, ("bf16", "fp16"), (False, True), REGENERATED_PAIRS)):
        kv_heads = KV_HEADS[n % len(KV_HEADS)]
        yield Case("values", d, d, dtype, causal, 9, HEADS, kv_heads, *pair, kernel=regenerated.ANOTHER, timeout_s=360.0)


LAYOUTS = (
    "heads outside", "batch inside", "one of three packed", "every second position", "part of wider heads", "dim not contiguous",
    "odd row stride", "data off by one element", "batch expanded", "sequence expanded", "all expanded",
)  # fmt: skip
HOSTILE = ("large scores", "equal scores", "rising scores", "falling scores", "one key wins", "tiny scale")


def everything() -> Iterator[Case]:
    """All cases, the quick ones first."""
    yield from grid()
    yield from _regenerated()
    for detail in HOSTILE:
        yield from _every_kernel("hostile", detail=detail, seqlen_q=700, seqlen_k=900)
    for detail in LAYOUTS:
        yield Case("layout", detail=detail, causal=True)
        yield Case("layout", 64, 64, detail=detail)
    yield from _every_kernel("repeats", seqlen_q=1000, seqlen_k=1100, timeout_s=120.0)
    yield Case("batch of none", batch=0, seqlen_q=5, seqlen_k=5)
    yield Case("stream")
    yield Case("device of the operands")
    yield Case("two streams", causal=True, batch=1, heads=24, kv_heads=24)
    yield Case("graph", causal=True)
    yield Case("graph beside", causal=True, batch=1, heads=24, kv_heads=24)
    yield Case("compiled", causal=True, timeout_s=240.0)
    yield Case("compiled graphs", causal=True, timeout_s=240.0)
    yield Case("operator")
    yield Case("overhead", seqlen_q=128, seqlen_k=128)
    yield Case("many elements", batch=17000, heads=16, kv_heads=16, seqlen_q=64, seqlen_k=64, timeout_s=120.0)
    yield Case("many keys", batch=1, heads=16, kv_heads=16, seqlen_q=3, seqlen_k=1_100_000, causal=True, timeout_s=120.0)
    yield Case("many rows", batch=1, heads=32, kv_heads=1, seqlen_q=600_000, seqlen_k=1, causal=True, timeout_s=120.0)
    yield Case("refused", seqlen_q=5, seqlen_k=5)
