"""Kernels from a folder of libraries: named, nothing else is used, and nothing that does not belong to the kernel file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

tvm_ffi = pytest.importorskip("tvm_ffi")

from twill.build import BuildError, Variant  # noqa: E402
from twill.build.libraries import LIST, Entry, entry_of, note  # noqa: E402
from twill.pytorch import AttentionError, kernels, libraries, use_libraries  # noqa: E402
from twill.pytorch.catalogue import backward_kernels  # noqa: E402
from twill.pytorch.libraries import function_of  # noqa: E402

KERNEL = next(k for k in kernels() if k.arch == "sm90")
ENTRY = entry_of(KERNEL.path, Variant("bf16", True, False), "sm_90a", "one.so")


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


def _fill(folder: Path, *entries: Entry) -> Path:
    note(folder, entries or (ENTRY,))
    return folder


def test_taken_from_the_folder(tmp_path: Path, loaded: list[str]) -> None:
    use_libraries(_fill(tmp_path))
    assert function_of(KERNEL, "bf16", True, False)() == str(tmp_path / "one.so")
    assert loaded == [str(tmp_path / "one.so")]


def test_a_kernel_of_gradients_is_another_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = backward_kernels()[0]
    entry = entry_of(kernel.path, Variant("bf16", True, False), "sm_90a", "back.so")
    monkeypatch.setattr(tvm_ffi, "load_module", lambda path: {"attn_bwd": lambda *given: path})
    use_libraries(_fill(tmp_path, entry))
    assert function_of(kernel, "bf16", True, False)() == str(tmp_path / "back.so")


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


def test_a_list_grows_and_the_latest_entry_counts(tmp_path: Path, loaded: list[str]) -> None:
    _fill(tmp_path)
    _fill(tmp_path, replace(ENTRY, variant="fp16", file="two.so"), replace(ENTRY, file="three.so"))
    use_libraries(tmp_path)
    function_of(KERNEL, "bf16", True, False)
    function_of(KERNEL, "fp16", False, False)
    assert [Path(p).name for p in loaded] == ["three.so", "two.so"]


@pytest.mark.parametrize("variant", [("fp16", True, False), ("bf16", False, False), ("bf16", True, True)])
def test_a_variant_that_it_lacks(tmp_path: Path, loaded: list[str], variant: tuple[Any, bool, bool]) -> None:
    use_libraries(_fill(tmp_path))
    with pytest.raises(BuildError, match=rf"has no library of {KERNEL.name} .*\n.*`twill build --all -o") as raised:
        function_of(KERNEL, *variant)
    flags = f"--dtype {variant[0]}{' --causal' if variant[1] else ''}{' --lse' if variant[2] else ''}"
    assert f"`twill build {KERNEL.path} {flags} -o {tmp_path}`" in str(raised.value)
    assert not loaded


def test_another_target(tmp_path: Path, loaded: list[str]) -> None:
    use_libraries(_fill(tmp_path, replace(ENTRY, arch="sm_100a")))
    with pytest.raises(BuildError, match="has no library of"):
        function_of(KERNEL, "bf16", True, False)
    assert not loaded


def test_another_text_of_the_kernel(tmp_path: Path, loaded: list[str]) -> None:
    use_libraries(_fill(tmp_path, replace(ENTRY, kernel_sha256="0" * 64)))
    with pytest.raises(BuildError, match="was made from another text of"):
        function_of(KERNEL, "bf16", True, False)
    assert not loaded


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"schema_version": 2, "libraries": []}', '{"schema_version": 1, "libraries": [{}]}']
)
def test_not_such_a_folder(tmp_path: Path, loaded: list[str], text: str) -> None:
    (tmp_path / LIST).write_text(text)
    for folder in (tmp_path, tmp_path / "nowhere"):
        use_libraries(folder)
        with pytest.raises(BuildError, match="is not a folder of libraries"):
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


def test_the_list_says_what_it_holds(tmp_path: Path) -> None:
    data = json.loads((_fill(tmp_path) / LIST).read_text())
    assert data["schema_version"] == 1
    assert data["libraries"] == [
        {"kernel": KERNEL.name, "variant": "bf16-causal", "kernel_sha256": ENTRY.kernel_sha256, "arch": "sm_90a", "file": "one.so"}
    ]
