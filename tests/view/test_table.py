"""The table of one period: golden text, and that it fits and tells the truth."""

from __future__ import annotations

import re
from functools import cache

import pytest

from twill.model.graph import LoopGraph
from twill.model.machine import load_machine
from twill.model.registry import GraphRequest, build_graph
from twill.model.schedule import Schedule
from twill.solver.solve import solve
from twill.view.console import plain_text
from twill.view.parts import STAGE_STYLES
from twill.view.table import bucket_cycles, period_table, show


@cache
def solved(machine: str, graph: str, head_dim: int | None = None) -> Schedule:
    chip = load_machine(machine)
    loop: LoopGraph = build_graph(graph, chip, GraphRequest(head_dim=head_dim))
    return solve(loop, chip, command="test").schedules[0]


def test_golden_toy() -> None:
    assert plain_text(show(solved("toy", "toy"))) == (
        "toy on toy (sm0): optimal\n"
        "\n"
        "cycle mma     tensor exp\n"
        "    0 S·0 P·1 S·0    P·1\n"
        "    1 O·1     O·1\n"
        "\n"
        "one row: 1 cycle; the first 1 column is what the warp groups issue, the others who holds the units\n"
        "OP·s: an op begins, of stage s; │ it goes on; +n: n more begin in the same row\n"
        "stages: ·0 the newest iteration   ·1 one iteration before\n"
        "\n"
        "I = 2 cycles, proved: equals the resource bound (tensor)\n"
        "L = 4 cycles, proved: 3 is impossible; 2 iterations in flight\n"
        "bottleneck: tensor, busy 100.0% of the time\n"
        "\n"
        "unit    use\n"
        "tensor  ████████████████████████████████████████  100.0%\n"
        "exp     ████████████████████░░░░░░░░░░░░░░░░░░░░   50.0%\n"
        "\n"
    )


@pytest.mark.parametrize(
    ("ii", "rows", "bucket"), [(2, 40, 1), (40, 40, 1), (41, 40, 2), (2839, 40, 80), (2839, 80, 40), (2839, 10_000, 1), (10_000, 1, 10_000)]
)
def test_bucket(ii: int, rows: int, bucket: int) -> None:
    assert bucket_cycles(ii, rows) == bucket
    assert -(-ii // bucket) <= rows


def test_fits_and_shows_every_op() -> None:
    schedule = solved("b200", "attn_fwd", 128)
    for width in (80, 100, 160):
        lines = plain_text(period_table(schedule, width=width), width).splitlines()
        assert max(map(len, lines)) <= width
        assert len(lines) == 1 + -(-schedule.ii_cycles // bucket_cycles(schedule.ii_cycles, 40))
    wide = plain_text(period_table(schedule, width=300), 300)
    for op in schedule.ops:
        assert re.search(rf"\b{re.escape(op.name)}·{op.stage}", wide), op.name


def test_ops_begin_where_the_schedule_says() -> None:
    schedule = solved("b200", "attn_fwd", 128)
    lines = plain_text(period_table(schedule, rows=10_000, width=400), 400).splitlines()
    for op in schedule.ops:
        row = lines[1 + op.start_cycle % schedule.ii_cycles]
        assert row.split()[0] == str(op.start_cycle % schedule.ii_cycles)
        assert f"{op.name}·{op.stage}" in row or "+" in row


def test_stages_are_coloured() -> None:
    from io import StringIO

    from rich.console import Console

    stream = StringIO()
    Console(file=stream, force_terminal=True, color_system="standard", width=100).print(show(solved("toy", "toy")))
    assert STAGE_STYLES[:2] == ("bold cyan", "yellow")
    assert "\x1b[1;36mS·0" in stream.getvalue()
    assert "\x1b[33mO·1" in stream.getvalue()
