"""Kernels for pairs of blocks: roles do what their programs say, and barriers across blocks are declared for both."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from twill.check import CheckedSchedule, checked
from twill.cli.app import run
from twill.emit.emitter import emit, request_of
from twill.emit.errors import EmitError
from twill.lower import Arrive, WarpProgram, lower
from twill.model.machine import load_machine
from twill.model.registry import GraphRequest, build_graph
from twill.solver.solve import solve

from . import replay
from .test_replay import TRIPS, _of_the_program, expected

DIMS = ((64, 64), (128, 128), (192, 128))


@cache
def _case(head_dim: int, head_dim_v: int) -> tuple[CheckedSchedule, WarpProgram, str]:
    machine = load_machine("b200")
    graph = build_graph("attn_fwd", machine, GraphRequest(head_dim=head_dim, head_dim_v=head_dim_v, settings={"ctas": "2"}))
    found = checked(solve(graph, machine).schedules[0], machine)
    program = lower(found)
    return found, program, emit(found, program, "a test")


@pytest.mark.parametrize("dims", DIMS)
def test_every_role_executes_its_trace(dims: tuple[int, int]) -> None:
    _, program, text = _case(*dims)
    emitted = replay.load(text)
    for role in program.roles:
        for trips in TRIPS:
            assert _of_the_program(emitted.run(role.name, trips).events) == expected(role, trips), (role.name, trips)


@pytest.mark.parametrize("dims", DIMS)
def test_barriers_of_both_blocks(dims: tuple[int, int]) -> None:
    """What the issuer waits for comes from both blocks, its commits go to both, all else stays within one."""
    _, program, text = _case(*dims)
    names = replay.load(text).names
    rings = {
        k: (b.arrivals, getattr(b, "tx_bytes", 0), getattr(b, "pair", "")) for k, b in names["BARRIERS"].items() if hasattr(b, "slots")
    }
    for b in program.barriers:
        if b.kind == "named":
            continue
        makers = {r.name for r in program.roles for x in r.body if isinstance(x, Arrive) and x.barrier == b.name}
        if makers == {"mma"}:
            assert rings[b.name] == (b.arrivals, 0, "spread")
        elif b.name.startswith(("EXP_", "RESC_")):
            assert rings[b.name] == (8, 0, "gathered")
        elif makers == {"load"}:
            assert rings[b.name] == (1, 2 * b.tx_bytes, "gathered")
        else:
            assert rings[b.name] == (b.arrivals, b.tx_bytes, "")
    tiles, staged = names["TILES"], "O_staging" in names["STORAGE"]
    assert rings["Q_full"] == (1, 2 * 128 * tiles.head_dim * 2, "gathered")
    assert rings["Q_empty"] == ((1, 0, "spread") if staged else (4, 0, ""))
    assert (rings["O_full"], rings["O_empty"]) == ((1, 0, "spread"), (8, 0, "gathered"))
    assert (rings["totals_full"], rings["tmem_empty"]) == ((4, 0, ""), (4, 0, ""))
    assert tiles.ctas == 2


def test_one_block_issues_and_neither_leaves_first() -> None:
    text = _case(128, 128)[2]
    assert "        if (block.warp == 13) & (block.member == 0):\n            mma(block)\n" in text
    assert "        if (block.warp == 13) & (block.member != 0):\n            tiles.listen(block)\n" in text
    assert "    tiles.part(block)\n" in text
    assert "cluster=(2, 1, 1)" in text


def test_a_program_that_is_not_safe_for_two_is_refused() -> None:
    found, program, _ = _case(128, 128)
    # without its first wait
    roles = tuple(replace(r, body=r.body[1:]) if r.name == "mma" else r for r in program.roles)
    with pytest.raises(EmitError, match="the program of two blocks is not safe"):
        request_of(found, replace(program, roles=roles))


def test_the_command(tmp_path: Path) -> None:
    to = tmp_path / "k.py"
    assert run(["emit", "--arch", "sm103", "attn_fwd", "--head-dim", "64", "--set", "ctas=2", "-o", str(to)]) == 0
    assert "ctas=2" in to.read_text(encoding="utf-8")
