"""Tests here need a GPU that a kernel of ours runs on; elsewhere they are skipped, with the reason."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from twill.bench.watchdog import Child

HERE = Path(__file__).parent


@cache
def missing() -> str | None:
    """What is missing, if anything."""
    for package in ("torch", "tvm_ffi"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
    import torch

    if not torch.cuda.is_available():
        return "there is no CUDA device"
    major, minor = torch.cuda.get_device_capability()
    return None if (major, minor) == (9, 0) else f"there are kernels for compute capability 9.0; this device has {major}.{minor}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("gpu"):
            reason = missing()
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def child() -> Iterator[Child]:
    made = Child("tests.gpu.child")
    yield made
    made.close()
