"""The shipped kernels, compiled and run from their PTX."""

from __future__ import annotations

from functools import cache

import pytest

from twill.build import names

pytest.importorskip("cutlass", reason="kernels are compiled by CuTe DSL: install 'twill-gpu[kernels]'")
pytest.importorskip("filelock")

from twill.build.compiler import compiled
from twill.build.kernelfile import ARCHITECTURES, Variant, find, read
from twill.emulate.kernel import AttentionKernel, head_dims
from twill.emulate.machine.schedulers import SCHEDULERS
from twill.emulate.numbers import Shape

KERNELS = [n for n in names() if "_attn_fwd" in n]


@cache
def _kernel(name: str, causal: bool) -> tuple[AttentionKernel, tuple[int, int]]:
    file = read(find(name))
    made = compiled(file, Variant("bf16", causal, True), ARCHITECTURES[file.tiles][0], cache="off")
    ready = AttentionKernel(file.path, made.ptx.read_text(), made.folder / "kernel.o", file.host, file.parameters)
    return ready, head_dims(file.path)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("name", KERNELS)
def test_right_and_without_a_finding(name: str, causal: bool) -> None:
    """A ragged shape, and one in which every ring of K and V wraps twice."""
    kernel, (head_dim, head_dim_v) = _kernel(name, causal)
    for seqlen_q, seqlen_k, heads, schedulers in ((77, 131, 2, ("late", "random")), (130, 2100, 1, ("eager", "newest"))):
        shape = Shape(1, seqlen_q, seqlen_k, heads, 1, head_dim, head_dim_v, causal, "bf16")
        for scheduler in schedulers:
            result = kernel.run(shape, scheduler, seed=5)
            assert [f.text for f in result.findings.items] == []
            assert result.largest_error <= 1
            if seqlen_k > 1000:
                assert min(turn for ring, turn in result.coverage.turns.items() if ring.startswith(("K_full", "V_full"))) >= 2


@pytest.mark.parametrize("name", ["sm100_attn_fwd_d64", "sm100_attn_fwd_d256"])
def test_work_tiles_without_keys(name: str) -> None:
    """Some work tiles of a block see keys, others none: no warp runs ahead of another."""
    kernel, (head_dim, head_dim_v) = _kernel(name, True)
    for seqlen_q, seqlen_k in ((600, 1), (900, 130), (300, 0)):
        shape = Shape(1, seqlen_q, seqlen_k, 2, 1, head_dim, head_dim_v, True, "bf16")
        for scheduler in SCHEDULERS:
            result = kernel.run(shape, scheduler, seed=3, sm_count=1)
            assert [f.text for f in result.findings.items] == []
            assert result.largest_error <= 1


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("name", [n for n in KERNELS if n.startswith("sm90")])
def test_sub_tiles_without_rows_beside_others(name: str, causal: bool) -> None:
    """Of the first work tile of a head only the last sub-tile has rows, and that one sees fewer keys than those behind it."""
    kernel, (head_dim, head_dim_v) = _kernel(name, causal)
    shape = Shape(1, 193, 700, 2, 1, head_dim, head_dim_v, causal, "bf16")
    for scheduler in ("eager", "late"):
        result = kernel.run(shape, scheduler, seed=2, sm_count=1)
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
    file = read(find("sm90_attn_fwd_d64"))
    made = compiled(file, Variant("bf16", False, True), "sm_90a", cache="off")
    lines = made.ptx.read_text().split("\n")
    whole = AttentionKernel(file.path, made.ptx.read_text(), made.folder / "kernel.o", file.host, file.parameters)
    shape = Shape(1, 1300, 1100, 1, 1, 64, 64, False, "bf16")
    seen = whole.run(shape, "late", seed=5, sm_count=1).coverage.seen
    run = {x.line for i in seen for s in [whole.code.flow.segments[i]] for x in whole.code.kernel.instructions[s.begin : s.end]}
    places = [line for line in _in_loops(whole, "mbarrier.arrive.shared.b64") if line in run]
    assert len(places) >= 8
    missed = []
    for line in places[::2]:
        ptx = "\n".join([*lines[: line - 1], ";", *lines[line:]])
        kernel = AttentionKernel(file.path, ptx, made.folder / "kernel.o", file.host, file.parameters)
        result = kernel.run(shape, "late", seed=5, sm_count=1)
        dead = [f.text for f in result.findings.errors if f.kind == "deadlock"]
        if not dead:
            missed.append(line)
        assert all("[" in text and "(softmax_a)" in text and "waits for parity" in text for text in dead)
    # what the last iteration of a block gives back, no load waits for
    assert len(missed) <= 1
