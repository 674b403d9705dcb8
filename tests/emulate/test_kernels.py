"""The shipped kernels, compiled and run from their PTX."""

from __future__ import annotations

from functools import cache

import pytest

from twill.build import names

pytest.importorskip("cutlass", reason="kernels are compiled by CuTe DSL: install 'twill-gpu[kernels]'")
pytest.importorskip("filelock")

from twill.emulate.kernel import AttentionKernel
from twill.emulate.machine.schedulers import SCHEDULERS
from twill.emulate.mutants import mutants
from twill.emulate.ready import ready, shape_of

FORWARD = [n for n in names() if "_attn_fwd" in n]
LENGTHS = {"fwd": ((77, 131, 2), (130, 2100, 1)), "bwd": ((77, 131, 2), (600, 600, 1))}
"""Ragged with two heads that share one of K and V, and long enough that every ring wraps twice."""


@cache
def _kernel(name: str, causal: bool) -> AttentionKernel:
    return ready(name, causal=causal, cache="off")


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("name", names())
def test_right_and_without_a_finding(name: str, causal: bool) -> None:
    """By double precision and by the bit-level model, forward and backward."""
    kernel = _kernel(name, causal)
    for (seqlen_q, seqlen_k, heads), schedulers in zip(LENGTHS[name.split("_")[2]], (("late", "random"), ("eager", "newest")), strict=True):
        shape = shape_of(kernel, seqlen_q, seqlen_k, causal=causal, heads=heads)
        for scheduler in schedulers:
            result = kernel.run(shape, scheduler, seed=5)
            assert [f.text for f in result.findings.items] == []
            assert result.largest_error <= 1
            assert all(b.equal > 0.99 * b.size for b in result.beside.values())
            if heads == 1:
                rings = ("K_full", "V_full") if "_fwd" in name else ("Q_full", "dO_full", "dS_a_full")
                assert min(turn for ring, turn in result.coverage.turns.items() if ring.startswith(rings)) >= 2


@pytest.mark.parametrize("name", ["sm100_attn_fwd_d64", "sm100_attn_fwd_d256"])
def test_work_tiles_without_keys(name: str) -> None:
    """Some work tiles of a block see keys, others none: no warp runs ahead of another."""
    kernel = _kernel(name, True)
    for seqlen_q, seqlen_k in ((600, 1), (900, 130), (300, 0)):
        shape = shape_of(kernel, seqlen_q, seqlen_k, causal=True, heads=2)
        for scheduler in SCHEDULERS:
            result = kernel.run(shape, scheduler, seed=3, sm_count=1)
            assert [f.text for f in result.findings.items] == []
            assert result.largest_error <= 1


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("name", [n for n in FORWARD if n.startswith("sm90")])
def test_sub_tiles_without_rows_beside_others(name: str, causal: bool) -> None:
    """Of the first work tile of a head only the last sub-tile has rows, and that one sees fewer keys than those behind it."""
    kernel = _kernel(name, causal)
    shape = shape_of(kernel, 193, 700, causal=causal, heads=2)
    for scheduler in ("eager", "late"):
        result = kernel.run(shape, scheduler, seed=2, sm_count=1)
        assert [f.text for f in result.findings.items] == []
        assert result.largest_error <= 1


def test_work_tiles_of_two_heads_in_every_order() -> None:
    """Five work tiles a head, the first of both heads last, shared out between two blocks: sub-tiles take turns, skip and join."""
    kernel = _kernel("sm90_attn_fwd_d128", True)
    result = kernel.run(shape_of(kernel, 900, 900, causal=True, heads=2), "late", seed=4, sm_count=2)
    assert [f.text for f in result.findings.items] == []
    assert result.largest_error <= 1


def _in_loops(kernel: AttentionKernel, opcode: str) -> list[int]:
    """PTX lines of an opcode in segments that can come to themselves again."""
    flow = kernel.code.flow
    lines = []
    for segment in flow.segments:
        seen: set[int] = set()
        todo = [segment.index]
        while todo:
            for t in flow.segments[todo.pop()].successors:
                if t >= 0 and t not in seen:
                    seen.add(t)
                    todo.append(t)
        if segment.index in seen:
            lines += [x.line for x in flow.kernel.instructions[segment.begin : segment.end] if x.opcode == opcode]
    return lines


def test_a_planted_bug_is_found_and_its_barrier_named() -> None:
    """Drop one release of a buffer at a time, in the loops over keys and over work tiles."""
    whole = _kernel("sm90_attn_fwd_d64", False)
    shape = shape_of(whole, 1300, 1100, causal=False)
    seen = whole.run(shape, "late", seed=5, sm_count=1).coverage.seen
    run = {x.line for i in seen for s in [whole.code.flow.segments[i]] for x in whole.code.kernel.instructions[s.begin : s.end]}
    places = [line for line in _in_loops(whole, "mbarrier.arrive.shared.b64") if line in run]
    assert len(places) >= 8
    missed = []
    for line in places[::2]:
        code = whole.code.kernel
        at = next(i for i, x in enumerate(code.instructions) if x.line == line)
        mutant = next(m for m in mutants(code) if m.line == line and m.old is code.instructions[at])
        result = whole.changed(mutant.kernel).run(shape, "late", seed=5, sm_count=1)
        dead = [f.text for f in result.findings.errors if f.kind == "deadlock"]
        if not dead:
            missed.append(line)
        assert all("[" in text and "(softmax_a)" in text and "waits for parity" in text for text in dead)
        ring = whole.code.statement(line).partition('ring["')[2].partition('"')[0]
        assert all(not ring or f"{ring} is waited for by" in text for text in dead), "the ring that is not released"
    # what the last iteration of a block gives back, no load waits for
    assert len(missed) <= 1
