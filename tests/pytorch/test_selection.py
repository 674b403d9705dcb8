"""Which kernel runs is decided by the kernel files and by measured lengths, and a user's own file goes first."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import twill
from tests.pytorch.conftest import PaperGpu
from twill.pytorch import AttentionError, catalogue, kernels, selection
from twill.pytorch.catalogue import KernelFile, backward_kernels, read_kernel
from twill.pytorch.selection import Workload, choose, choose_backward, measured, predicted_cycles

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "kernels"
D128 = Workload("sm90", 132, 128, 128, False, 64, 8192, 8192)


def _file(name: str, rows: int, keys: int, cycles: int, *, own: bool = False) -> KernelFile:
    return KernelFile(FOLDER / f"{name}.py", "sm90", 128, 128, rows, keys, cycles, "0" * 64, own)


WIDE, TALL = _file("wide", 128, 128, 2284), _file("tall", 192, 80, 2082)


def _of(monkeypatch: pytest.MonkeyPatch, *files: KernelFile, lines: tuple[tuple[str, bool, int], ...] = ()) -> None:
    monkeypatch.setattr(selection, "kernels", lambda: files)
    monkeypatch.setattr(selection, "measured", lambda: lines)


def test_every_shipped_kernel_is_in_the_catalogue() -> None:
    assert {k.name for k in kernels()} == {p.stem for p in FOLDER.glob("*_attn_fwd_*.py")}
    assert all(k.path == FOLDER / f"{k.name}.py" and not k.own for k in kernels())


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*_attn_fwd_*.py")), ids=lambda p: p.stem)
def test_facts_are_those_of_the_file(path: Path) -> None:
    """Read a second time with other means."""
    text, kernel = path.read_text(), read_kernel(path)
    tiles = re.search(r"^TILES = tiles\.Tiles\(head_dim=(\d+), head_dim_v=(\d+), keys=(\d+), subtiles=(\d+)", text, re.MULTILINE)
    assert tiles is not None
    rows = {"sm90": 64, "sm100": 128, "sm103": 128}[kernel.arch]
    assert (kernel.head_dim, kernel.head_dim_v, kernel.keys, kernel.rows // rows) == tuple(int(n) for n in tiles.groups())
    assert f'SCHEDULE = "{kernel.schedule}"' in text
    assert f"I = {kernel.interval_cycles} cycles" in text
    assert path.name.startswith(f"{kernel.arch}_attn_fwd_d{kernel.head_dim}")


@pytest.mark.parametrize("kernel", kernels(), ids=lambda k: k.name)
def test_every_head_dim_that_ships_gets_a_kernel_of_that_head_dim(kernel: KernelFile) -> None:
    found = choose(replace(D128, arch=kernel.arch, head_dim=kernel.head_dim, head_dim_v=kernel.head_dim_v))
    assert (found.arch, found.head_dim, found.head_dim_v) == (kernel.arch, kernel.head_dim, kernel.head_dim_v)


def test_measured_lines_name_kernels_that_ship() -> None:
    assert {name for name, _, _ in measured()} <= {k.name for k in (*kernels(), *backward_kernels())}
    assert len({(name, causal) for name, causal, _ in measured()}) == len(measured())


def test_prediction_counts_the_busiest_sm() -> None:
    """By hand: 33 x 2 blocks on 132 SMs is one wave, 64 x 43 is 20.8 waves; 7 keys are one tile."""
    assert predicted_cycles(WIDE, replace(D128, tiles_of_heads=2, seqlen_q=33 * 128, seqlen_k=7)) == 2284
    assert predicted_cycles(TALL, D128) == 21 * 103 * 2082
    assert predicted_cycles(WIDE, D128) == 32 * 64 * 2284


@pytest.mark.parametrize(("seqlen", "best"), [(128, WIDE), (2048, WIDE), (8192, TALL), (16384, TALL)])
def test_of_two_the_one_predicted_to_be_faster(monkeypatch: pytest.MonkeyPatch, seqlen: int, best: KernelFile) -> None:
    """32k tokens, 16 heads: the case in which both orders were measured, and came out like this."""
    _of(monkeypatch, WIDE, TALL)
    assert choose(replace(D128, tiles_of_heads=16 * 32768 // seqlen, seqlen_q=seqlen, seqlen_k=seqlen)) == best


def test_measured_lengths_go_before_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (("tall", False, 4096), ("wide", False, 1024), ("tall", True, 10**9))
    _of(monkeypatch, WIDE, TALL, lines=lines)
    assert choose(replace(D128, seqlen_q=1024)) == WIDE
    assert choose(replace(D128, seqlen_q=1025)) == TALL
    assert choose(replace(D128, seqlen_q=1, causal=True)) == TALL
    # beyond all lines the prediction decides
    beyond = replace(D128, seqlen_q=8192)
    assert choose(beyond) == min((WIDE, TALL), key=lambda k: predicted_cycles(k, beyond))


def test_the_latest_of_the_users_own_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, later = (replace(WIDE, path=Path(name), own=True) for name in ("mine.py", "later.py"))
    _of(monkeypatch, WIDE, mine, later, lines=(("wide", False, 10**9),))
    assert choose(D128) == later


def test_other_architectures_and_head_dims_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    _of(monkeypatch, WIDE, replace(TALL, arch="sm100"), replace(TALL, head_dim=64), replace(TALL, head_dim_v=64))
    assert choose(replace(D128, seqlen_q=10**6)) == WIDE


@pytest.fixture
def own_file(tmp_path: Path) -> Iterator[Path]:
    """The d 128 kernel as a file of head dim 88."""
    text = (FOLDER / "sm90_attn_fwd_d128.py").read_text().replace("head_dim=128, head_dim_v=128", "head_dim=88, head_dim_v=88")
    path = tmp_path / "mine.py"
    path.write_text(text)
    yield path
    for kernel in kernels():
        if kernel.own:
            twill.pytorch.unregister_kernel(kernel)


def test_a_registered_kernel_is_used(gpu: PaperGpu, own_file: Path) -> None:
    q = torch.randn(1, 3, 2, 88).to(torch.bfloat16)
    with pytest.raises(AttentionError, match="no kernel for head dim 88"):
        twill.attention(q, q, q)
    kernel = twill.register_kernel(own_file)
    twill.attention(q, q, q)
    assert gpu.last.kernel == "mine"
    twill.pytorch.unregister_kernel(kernel)
    with pytest.raises(AttentionError, match="no kernel for head dim 88"):
        twill.attention(q, q, q)


def test_registering_takes_effect_for_signatures_seen_before(gpu: PaperGpu, own_file: Path) -> None:
    own_file.write_text((FOLDER / "sm90_attn_fwd_d128.py").read_text())
    q = torch.randn(1, 3, 2, 128).to(torch.bfloat16)
    twill.attention(q, q, q)
    assert gpu.last.kernel.startswith("sm90_attn_fwd_d128")
    twill.register_kernel(str(own_file))
    twill.attention(q, q, q)
    assert gpu.last.kernel == "mine"


def test_registering_a_file_again_replaces_it(own_file: Path) -> None:
    first = twill.register_kernel(own_file)
    own_file.write_text(re.sub(r"I = \d+", "I = 2000", own_file.read_text()))
    second = twill.register_kernel(own_file)
    assert first.interval_cycles != second.interval_cycles == 2000
    assert [k for k in kernels() if k.own] == [second]


DAMAGE = {
    "no function": (lambda t: t.replace("def attn_fwd(", "def something("), "a function attn_fwd or attn_bwd"),
    "no tiles": (lambda t: t.replace("TILES = ", "SHAPES = "), "head_dim and head_dim_v and keys and subtiles in TILES"),
    "no keys": (lambda t: re.sub(r"keys=\d+, ", "", t), "keys in TILES"),
    "keys not a number": (lambda t: re.sub(r"keys=\d+", "keys=True", t), "keys in TILES"),
    "no schedule": (lambda t: re.sub(r"SCHEDULE = .*", "SCHEDULE = None", t), "names no schedule"),
    "no tile library": (lambda t: t.replace("from twill.emit.sm90 import tiles", "import tiles"), "imports no tile operations"),
    "no cycles": (lambda t: re.sub(r"I = \d+ cycles", "fast", t), "its cycles an iteration"),
    "half a file": (lambda t: t + ")", "cannot be read as Python"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_file_that_is_none_of_ours_is_refused(own_file: Path, name: str) -> None:
    damage, message = DAMAGE[name]
    damaged = damage(own_file.read_text())
    assert damaged != own_file.read_text()
    own_file.write_text(damaged)
    with pytest.raises(AttentionError, match=message):
        twill.register_kernel(own_file)
    assert not any(k.own for k in kernels())


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(AttentionError, match=r"nowhere\.py cannot be read"):
        twill.register_kernel("nowhere.py")


def test_reading_a_kernel_runs_nothing(own_file: Path) -> None:
    own_file.write_text(own_file.read_text() + "\nraise SystemExit(3)\n")
    ast.parse(own_file.read_text())
    assert twill.register_kernel(own_file).name == "mine"


def test_the_catalogue_is_read_once() -> None:
    importlib.import_module("twill.kernels")
    assert catalogue.kernels()[0] is catalogue.kernels()[0]


BACKWARD = sorted(FOLDER.glob("*_attn_bwd_*.py"))


@pytest.mark.parametrize("path", BACKWARD, ids=lambda p: p.stem)
def test_facts_of_kernels_of_gradients_are_those_of_the_file(path: Path) -> None:
    text, kernel = path.read_text(), read_kernel(path)
    tiles = re.search(r"^TILES = tiles\.Tiles\(head_dim=(\d+), head_dim_v=(\d+), queries=(\d+), keys=(\d+)", text, re.MULTILINE)
    assert tiles is not None
    assert (kernel.head_dim, kernel.head_dim_v, kernel.rows, kernel.keys) == tuple(int(n) for n in tiles.groups())
    assert kernel.makes == "attn_bwd" and f"I = {kernel.interval_cycles} cycles" in text
    assert kernel.name in {k.name for k in catalogue.backward_kernels()} - {k.name for k in kernels()}


def test_the_users_kernel_of_gradients_goes_first(tmp_path: Path) -> None:
    shipped = read_kernel(BACKWARD[0], own=False)
    assert choose_backward(shipped.arch, shipped.head_dim, shipped.head_dim_v) == shipped
    mine = tmp_path / "mine.py"
    mine.write_text(BACKWARD[0].read_text())
    added = twill.register_kernel(mine)
    try:
        assert choose_backward(shipped.arch, shipped.head_dim, shipped.head_dim_v) == added
        assert choose_backward(None, shipped.head_dim, shipped.head_dim_v) == added
        assert added not in kernels()
    finally:
        twill.pytorch.unregister_kernel(added)
    assert choose_backward(None, shipped.head_dim, shipped.head_dim_v) == shipped


def test_no_kernel_of_gradients_for_an_architecture() -> None:
    with pytest.raises(AttentionError, match="no kernel for it at head dim 96 on sm42; there are none"):
        choose_backward("sm42", 96, 96)


def test_smaller_tiles_but_for_long_sequences_under_a_mask() -> None:
    """As measured on an H200: up to 4,096 queries under a mask, and all without one."""
    lengths = (1, 2048, 4096, 4097, 16384)
    chosen = {(causal, n): choose_backward("sm90", 128, 128, causal, n).name for causal in (False, True) for n in lengths}
    assert {key for key, name in chosen.items() if name == "sm90_attn_bwd_d128"} == {(True, 4097), (True, 16384)}
    assert set(chosen.values()) == {"sm90_attn_bwd_d128", "sm90_attn_bwd_d128_q64"}
