"""The shapes that every forward kernel has to get right: what is asked is among them, and a kernel for tensor memory passes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from twill.cli.app import run
from twill.emulate.numbers import Shape, attention, from_bits, inputs
from twill.emulate.shapes import SHAPES, outcome, prepared


def test_what_is_asked_is_among_them() -> None:
    tiles_of = {s.purpose: -(-s.seqlen_q // 256) * s.heads * s.batch for s in SHAPES}
    assert any(s.seqlen_q == 1 for s in SHAPES)
    assert any(s.seqlen_q % 64 and s.seqlen_k % 64 and s.heads > s.kv_heads for s in SHAPES)
    assert {s.seqlen_q < s.seqlen_k for s in SHAPES if s.causal} == {True, False}
    assert any(tiles_of[s.purpose] > s.sm_count == 1 for s in SHAPES)
    assert any(s.seqlen_k == 0 for s in SHAPES)
    assert {s.dtype for s in SHAPES} == {"bf16", "fp16"}
    # five slots of 128 keys are the deepest ring
    assert any(s.seqlen_k > 2 * 5 * 128 for s in SHAPES)


def test_rising_scores_grow_beyond_any_threshold() -> None:
    """From each tile of 128 keys to the one before it, for most rows and so in every warp."""
    shape = Shape(1, 64, 1000, 1, 1, 128, 128, False, "bf16", rising=True)
    given = inputs(shape, 3)
    q, k = from_bits(given.q, "bf16")[0, :, 0], from_bits(given.k, "bf16")[0, :, 0]
    scores = q @ k.T * given.scale * np.log2(np.e)
    tops = np.stack([scores[:, at : at + 128].max(axis=1) for at in range(0, 1000, 128)])
    grown = tops[:-1] > tops[1:] + 8
    assert grown.mean() > 0.7
    assert grown.reshape(-1, 2, 32).any(axis=2).all()
    assert np.isfinite(attention(given, shape).o).all()


def test_a_kernel_for_tensor_memory() -> None:
    pytest.importorskip("cutlass", reason="kernels are compiled by CuTe DSL: install 'twill-gpu[kernels]'")
    pytest.importorskip("filelock")
    by_purpose = {s.purpose: s for s in SHAPES}
    kernel = prepared("sm103_attn_fwd_d128", False, "bf16")
    rising = outcome(kernel, by_purpose["rescaled in every tile"], ("late", "newest"))
    one_row = outcome(kernel, by_purpose["one row, one key"], ("eager",))
    for found in (rising, one_row):
        assert found.findings == ()
        assert found.largest_error <= 1
    assert rising.rescaled > 0.95 > 0.1 > one_row.rescaled
    assert rising.rounds >= 2


@pytest.mark.timeout(600)
@pytest.mark.parametrize("head_dim", [8, 104])
def test_other_head_dims_by_one_command(head_dim: int, tmp_path: Path) -> None:
    """The smallest one too: its tiles leave SMEM for more slots than barriers have room for."""
    pytest.importorskip("cutlass", reason="kernels are compiled by CuTe DSL: install 'twill-gpu[kernels]'")
    pytest.importorskip("filelock")
    to = tmp_path / "kernel.py"
    assert run(["emit", "--arch", "sm100", "attn_fwd", "--head-dim", str(head_dim), "-o", str(to)]) == 0
    by_purpose = {s.purpose: s for s in SHAPES}
    kernel = prepared(str(to), True, "bf16")
    for purpose in ("more keys, causal", "more queries, causal: rows without keys"):
        found = outcome(kernel, by_purpose[purpose], ("late", "random"))
        assert found.findings == ()
        assert found.largest_error <= 1
