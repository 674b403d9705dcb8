"""Where the GPU tests get kernels for head dims that do not ship."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.gpu import child, regenerated
from tests.gpu.cases import Case, everything
from tests.gpu.regenerated import ANOTHER, file_of
from twill.pytorch import functional, kernels
from twill.pytorch.catalogue import read_kernel


@pytest.fixture(autouse=True)
def _nothing_made_before() -> None:
    file_of.cache_clear()


def test_from_the_folder_of_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "sm90_attn_fwd_d80.py"
    there.write_text("")
    monkeypatch.setenv("TWILL_LIBRARIES", str(tmp_path))
    monkeypatch.setattr(regenerated.importlib.util, "find_spec", lambda name: None)
    assert file_of(80) == there
    with pytest.raises(FileNotFoundError, match=r"no sm90_attn_fwd_d72\.py in the folder of libraries, and no solver"):
        file_of(72)


@pytest.mark.skipif(importlib.util.find_spec("z3") is None, reason="there is no solver")
def test_made_and_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWILL_LIBRARIES", raising=False)
    monkeypatch.setattr(child, "registered", set())
    case = Case("values", 80, 80, kernel=ANOTHER)
    child._register(case)
    child._register(case)
    added = [k for k in kernels() if k.own]
    try:
        assert [(k.path, k.head_dim, k.head_dim_v, k.arch) for k in added] == [(file_of(80), 80, 80, "sm90")]
        assert read_kernel(file_of(80)) == added[0]
    finally:
        for kernel in added:
            functional.unregister_kernel(kernel)


def test_every_one_of_them_is_asked_for() -> None:
    asked = {(c.head_dim, c.dtype, c.causal) for c in everything() if c.kernel == ANOTHER}
    assert asked == {(d, t, c) for d in regenerated.HEAD_DIMS for t in ("bf16", "fp16") for c in (False, True)}
