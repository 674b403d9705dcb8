"""Kernels from a folder of libraries: named, nothing else is used, and nothing that does not belong to the kernel file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

tvm_ffi = pytest.importorskip("tvm_ffi")

from twill.pytorch import AttentionError, kernels, libraries, use_libraries  # noqa: E402
from twill.pytorch.libraries import function_of  # noqa: E402

KERNEL = kernels()[0]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    use_libraries(None)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were loaded, in place of loading them."""
    files: list[str] = []

    def load_module(path: str) -> dict[str, Any]:
        files.append(path)
        return {"attn_fwd": lambda *given: path}

    monkeypatch.setattr(tvm_ffi, "load_module", load_module)
    return files


def _fill(folder: Path, **changes: object) -> Path:
    digest = hashlib.sha256(KERNEL.path.read_bytes()).hexdigest()
    entry = {"kernel": KERNEL.name, "variant": "bf16-causal", "kernel_sha256": digest, "file": "one.so", **changes}
    (folder / libraries.MANIFEST).write_text(json.dumps({"libraries": [entry]}))
    return folder


def test_taken_from_the_folder(tmp_path: Path, loaded: list[str]) -> None:
    use_libraries(_fill(tmp_path))
    assert function_of(KERNEL, "bf16", True, False)() == str(tmp_path / "one.so")
    assert loaded == [str(tmp_path / "one.so")]


def test_named_by_the_environment(tmp_path: Path, loaded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWILL_LIBRARIES", str(_fill(tmp_path)))
    function_of.cache_clear()
    function_of(KERNEL, "bf16", True, False)
    assert loaded == [str(tmp_path / "one.so")]
    given = tmp_path / "given"
    given.mkdir()
    use_libraries(_fill(given))
    function_of(KERNEL, "bf16", True, False)
    assert loaded[1:] == [str(given / "one.so")], "what was given in the program goes before the environment"


@pytest.mark.parametrize("variant", [("fp16", True, False), ("bf16", False, False), ("bf16", True, True)])
def test_a_variant_that_it_lacks(tmp_path: Path, loaded: list[str], variant: tuple[Any, bool, bool]) -> None:
    use_libraries(_fill(tmp_path))
    with pytest.raises(AttentionError, match=rf"has no library of {KERNEL.name}, .*\n.*python -m twill.pytorch.export -o"):
        function_of(KERNEL, *variant)
    assert not loaded


def test_another_text_of_the_kernel(tmp_path: Path, loaded: list[str]) -> None:
    use_libraries(_fill(tmp_path, kernel_sha256="0" * 64))
    with pytest.raises(AttentionError, match="was made from another text of that file"):
        function_of(KERNEL, "bf16", True, False)
    assert not loaded


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_not_such_a_folder(tmp_path: Path, loaded: list[str], text: str) -> None:
    (tmp_path / libraries.MANIFEST).write_text(text)
    use_libraries(tmp_path)
    with pytest.raises(AttentionError, match="is not a folder of libraries"):
        function_of(KERNEL, "bf16", True, False)
    use_libraries(tmp_path / "nowhere")
    with pytest.raises(AttentionError, match="is not a folder of libraries"):
        function_of(KERNEL, "bf16", True, False)
    assert not loaded


def test_nothing_is_loaded_while_a_graph_is_captured(tmp_path: Path, loaded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    use_libraries(_fill(tmp_path))
    monkeypatch.setattr(libraries, "_capturing", lambda: True)
    with pytest.raises(AttentionError, match=r"cannot be while a CUDA graph is captured\n.*call it once before"):
        function_of(KERNEL, "bf16", True, False)
    assert not loaded
    monkeypatch.setattr(libraries, "_capturing", lambda: False)
    function_of(KERNEL, "bf16", True, False)
    monkeypatch.setattr(libraries, "_capturing", lambda: True)
    function_of(KERNEL, "bf16", True, False)
    assert len(loaded) == 1
