"""Backward kernels under the emulator: dQ, dK and dV against double precision, no race, no deadlock; a wrong kernel is found out."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cutlass")

from twill.build.compiler import compiled
from twill.build.kernelfile import Variant, read
from twill.cli.emit import kernel_of
from twill.emulate.backward import BackwardKernel
from twill.emulate.gradients import gradients, problem
from twill.emulate.numbers import Shape

KERNELS = {"sm90_attn_bwd_d64": 64, "sm90_attn_bwd_d96": 96, "sm90_attn_bwd_d128": 128, "sm90_attn_bwd_d128_q64": 128}


def _kernel(name: str, causal: bool, folder: Path, deterministic: bool = False) -> BackwardKernel:
    emitted = folder / f"{name}.py"
    emitted.write_text(kernel_of(name), encoding="utf-8")
    file = read(emitted)
    made = compiled(file, Variant("bf16", causal, True, deterministic), "sm_90a")
    return BackwardKernel(file.path, made.ptx.read_text(encoding="utf-8"), made.folder / "kernel.o", file.host, file.parameters)


def _shape(name: str, causal: bool, seqlen_q: int, seqlen_k: int, heads: int, kv_heads: int) -> Shape:
    return Shape(1, seqlen_q, seqlen_k, heads, kv_heads, KERNELS[name], KERNELS[name], causal, "bf16")


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("scheduler", ["eager", "late"])
@pytest.mark.parametrize(
    ("causal", "lengths", "heads"),
    [
        (False, (200, 333), (2, 1)),
        (True, (257, 520), (2, 2)),
        (True, (333, 200), (4, 2)),
        (False, (1, 300), (1, 1)),
    ],
)
def test_gradients_are_right(
    name: str, scheduler: str, causal: bool, lengths: tuple[int, int], heads: tuple[int, int], tmp_path: Path
) -> None:
    result = _kernel(name, causal, tmp_path).run(_shape(name, causal, *lengths, *heads), scheduler)
    assert not result.findings.errors
    assert result.largest_error < 1


@pytest.mark.parametrize("name", ["sm90_attn_bwd_d64", "sm90_attn_bwd_d96", "sm90_attn_bwd_d128_q64"])
@pytest.mark.parametrize(("causal", "lengths"), [(False, (300, 400)), (True, (333, 520)), (True, (400, 300))])
def test_deterministic_gradients_are_the_same_whoever_goes_first(name: str, causal: bool, lengths: tuple[int, int], tmp_path: Path) -> None:
    kernel, shape = _kernel(name, causal, tmp_path, deterministic=True), _shape(name, causal, *lengths, 4, 2)
    results = [kernel.run(shape, scheduler, sm_count=n) for scheduler, n in (("eager", 1), ("late", 2), ("newest", 3), ("random", 2))]
    for result in results:
        assert not result.findings.errors
        assert result.largest_error < 1
        assert result.outputs == results[0].outputs


def test_the_loop_of_another_mask_is_found_out(tmp_path: Path) -> None:
    """The kernel without a mask, asked for what needs one."""
    kernel = _kernel("sm90_attn_bwd_d128", False, tmp_path)
    result = kernel.run(_shape("sm90_attn_bwd_d128", True, 200, 200, 1, 1))
    assert {f.kind for f in result.findings.errors} == {"wrong value"}


def test_gradients_by_hand() -> None:
    """One query, one key: P is 1, so that dV = dO and dS = 0."""
    shape = Shape(1, 1, 1, 1, 1, 16, 16, False, "bf16")
    given = problem(shape, 0)
    found = gradients(given, shape)
    assert abs(found.values["dq"]).max() < 0.2
    assert abs(found.values["dv"][0, 0, 0] - _doubles(given.do)).max() < 1e-6


def _doubles(bits):  # type: ignore[no-untyped-def]
    from twill.emulate.numbers import from_bits

    return from_bits(bits, "bf16")[0, 0, 0]
