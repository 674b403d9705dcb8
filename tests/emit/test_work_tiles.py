"""Which work tiles there are and in what order they are given out, in Python's own numbers."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cutlass", reason="the tile library needs CuTe DSL: install 'twill-gpu[kernels]'")

from twill.emit.sm90 import tiles as sm90
from twill.emit.tiles import block, work

PLAIN = SimpleNamespace(Int32=int, select_=lambda condition, one, other: one if condition else other, min=min, max=max)
SHAPES = [
    (1, 4096, 32, 4096, 32), (2, 1000, 6, 1000, 3), (3, 700, 4, 9000, 4), (1, 64, 2, 64, 2), (1, 5000, 2, 100, 1), (64, 512, 8, 512, 8),
]  # fmt: skip
"""(batch, seqlen_q, heads, seqlen_k, kv_heads)"""


@pytest.fixture(autouse=True)
def _plain_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (block, work):
        monkeypatch.setattr(module, "cutlass", PLAIN)


def _block(shape: tuple[int, int, int, int, int], causal: bool, head_dim: int = 128) -> Any:
    batch, seqlen_q, heads, seqlen_k, kv_heads = shape
    t = sm90.Tiles(head_dim=head_dim, head_dim_v=head_dim, keys=80, subtiles=3)
    row_tiles = -(-seqlen_q // t.rows)
    return SimpleNamespace(
        tiles=t, causal=causal, seqlen_q=seqlen_q, seqlen_k=seqlen_k, heads=heads, heads_in_all=heads * batch, row_tiles=row_tiles,
        short_tiles=row_tiles // block.SHORT, work_tiles=row_tiles * heads * batch,
        missing_rows=row_tiles * t.rows - -(-seqlen_q // t.sub_rows) * t.sub_rows,
        quotients=lambda: (block.sections(t, causal, shape), heads // kv_heads),
    )  # fmt: skip


def _all(b: Any) -> list[work.Work]:
    return [work.place_of(b, number) for number in range(b.work_tiles)]


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_is_given_out_once(shape: tuple[int, int, int, int, int], causal: bool) -> None:
    b = _block(shape, causal)
    given = [(w.batch, w.head, w.first_row + b.missing_rows) for w in _all(b)]
    assert sorted(given) == list(product(range(shape[0]), range(shape[2]), range(0, b.row_tiles * b.tiles.rows, b.tiles.rows)))


def test_long_ones_come_first_and_keys_stay_in_l2() -> None:
    """32 heads, 16,384 keys of 512 bytes reckoned and 4,096 there: sections of 4, then the first third of the rows of all."""
    b = _block((1, 4096, 32, 4096, 32), True)
    b.quotients = lambda: (block.sections(b.tiles, True, (1, 16384, 32, 16384, 32)), 1)
    given = _all(b)
    assert b.quotients()[0] == (4, 32)
    heads = [{w.head for w in given[k : k + 4 * 15]} for k in range(0, 8 * 4 * 15, 4 * 15)]
    assert heads == [set(range(k, k + 4)) for k in range(0, 32, 4)]
    short = given[32 * 15 :]
    assert len(short) == 32 * 7
    assert max(w.trips for w in short) < min(w.trips for w in given[: 32 * 15])
    assert [w.trips for w in short] == sorted((w.trips for w in short), reverse=True)


def test_without_a_mask_heads_come_one_by_one() -> None:
    given = _all(_block((1, 4096, 3, 4096, 3), False))
    assert [w.head for w in given] == [0] * 22 + [1] * 22 + [2] * 22


def _busy(b: Any, blocks: int, short: int) -> float:
    """Iterations until the last of some blocks, each of which asks when it begins one work tile for the next, ends; 1 if none waits."""
    b.short_tiles = short
    todo = iter([w.trips for w in _all(b)])
    state = [(0, next(todo)) for _ in range(blocks)]
    ends, total = [], sum(w.trips for w in _all(b))
    while state:
        at, length = state.pop(min(range(len(state)), key=lambda k: state[k][0]))
        following = next(todo, None)
        ends.append(at + length)
        if following is not None:
            state.append((at + length, following))
    return max(ends) * blocks / total


def test_blocks_end_together() -> None:
    """The shape of a benchmark's row, 192/128 at 8,192 keys, on 132 blocks: less than 1 % is left open at the end, 6 % without."""
    b = _block((1, 8192, 64, 8192, 64), True)
    b.quotients = lambda: ((6, 64), 1)
    assert _busy(b, 132, b.row_tiles // block.SHORT) < 1.01
    assert _busy(b, 132, 0) > 1.05


@pytest.mark.parametrize("turn", [0, 1])
def test_warpgroups_take_turns_at_the_last_rows(turn: int) -> None:
    b = _block((1, 1000, 1, 1000, 1), True)
    given = work.place_of(b, 0)
    given = work.Work(**{**{f: getattr(given, f) for f in work.NAMES}, "reversed": turn})
    own = [work.sub_tile(b, given, s) for s in range(3)]
    rows = [given.first_row + 64 * k for k in range(3)]
    assert [w.first_row for w in own] == (rows[::-1] if turn else rows)
    assert [w.skipped + w.trips for w in own] == [given.trips] * 3
    assert [work.rank(b, given, work.rank(b, given, s)) for s in range(3)] == [0, 1, 2]
