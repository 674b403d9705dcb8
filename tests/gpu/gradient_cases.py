"""What is tested of gradients on a GPU, as data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tests.gpu.cases import HEADS, HOSTILE, KV_HEADS, LAYOUTS, LONG, ORDERED, Case
from twill.bench.shapes import EMPTY_PAIRS, PAIRS
from twill.build import names

__all__ = ["gradient_cases", "head_dims"]

NAME = re.compile(r"sm90_attn_bwd_d(\d+)(?:_dv(\d+))?")


def head_dims() -> tuple[tuple[int, int], ...]:
    """Of Q and K, and of V, for which a kernel of gradients ships."""
    found = (NAME.fullmatch(name) for name in names())
    return tuple(sorted((int(x[1]), int(x[2] or x[1])) for x in found if x))


def _grid() -> Iterator[Case]:
    for n, (dims, dtype, causal, pair) in enumerate(product(head_dims(), ("bf16", "fp16"), (False, True), PAIRS + EMPTY_PAIRS)):
        kv_heads = KV_HEADS[(n + n // len(KV_HEADS)) % len(KV_HEADS)]
        yield Case("gradients", *dims, dtype, causal, 1 if max(pair) > LONG else 4, HEADS, kv_heads, *pair)


def gradient_cases() -> Iterator[Case]:
    """All cases, the quick ones first."""
    yield from _grid()
    for d, dv in head_dims():
        for detail, causal in product(HOSTILE, (False, True)):
            yield Case("gradients hostile", d, dv, causal=causal, seqlen_q=700, seqlen_k=900, detail=detail)
        for detail in LAYOUTS if d == dv else ():
            yield Case("gradients layout", d, dv, causal=True, seqlen_q=500, seqlen_k=500, detail=detail)
        for causal in (False, True):
            yield Case("gradients repeats", d, dv, causal=causal, kv_heads=3, seqlen_k=1100, timeout_s=120.0)
        yield Case("gradients some", d, dv, causal=True)
        yield Case("gradients stream", d, dv)
        yield Case("gradients graph", d, dv, causal=True)
        for dtype, causal in product(("bf16", "fp16"), (False, True)):
            for lengths in ((1, 1), (200, 333), (700, 130), (1000, 1100), (2048, 2048)):
                kv_heads = KV_HEADS[len(str(lengths)) % len(KV_HEADS)]
                yield Case("gradients", d, dv, dtype, causal, 4, HEADS, kv_heads, *lengths, detail=ORDERED)
        for causal in (False, True):
            yield Case("gradients ordered", d, dv, causal=causal, batch=6, kv_heads=3, seqlen_k=1100, detail=ORDERED, timeout_s=120.0)
            long = Case("gradients ordered", d, dv, causal=causal, heads=2, kv_heads=2, seqlen_q=4096, seqlen_k=4096, timeout_s=120.0)
            yield replace(long, detail=ORDERED)
    for check in ("gradients compiled", "gradients compiled graphs"):
        yield Case(check, *head_dims()[0], causal=True, timeout_s=240.0)
    d, dv = head_dims()[0]
    batch = 2**31 // (64 * 16 * d) + 100
    yield Case("gradients many elements", d, dv, batch=batch, heads=16, kv_heads=16, seqlen_q=64, seqlen_k=64, timeout_s=240.0)
