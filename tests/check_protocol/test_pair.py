"""Two blocks that share their MMAs: their program is free of deadlocks and races, and every wait across blocks is needed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from twill.check import checked
from twill.check.protocol import check_pair
from twill.check.protocol.check import check_order
from twill.check.protocol.pair import paired
from twill.lower import Arrive, Execute, Wait, WarpProgram, lower
from twill.model.graph import LoopGraph
from twill.model.machine import load_machine
from twill.model.registry import GraphRequest, build_graph
from twill.solver.solve import solve


@cache
def _pair(head_dim: int) -> tuple[WarpProgram, LoopGraph]:
    machine = load_machine("b200")
    graph = build_graph("attn_fwd", machine, GraphRequest(head_dim=head_dim, settings={"ctas": "2"}))
    return lower(checked(solve(graph, machine).schedules[0], machine)), graph


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_both_blocks_together(head_dim: int) -> None:
    program, graph = _pair(head_dim)
    both = check_pair(program, graph)
    assert both.findings == ()
    # two blocks in step run as fast as one
    assert both.cycle_ratio_cycles == check_order(program, graph).cycle_ratio_cycles


def test_what_is_there_twice() -> None:
    program, graph = _pair(128)
    both, double = paired(program, graph)
    roles = {r.name: r for r in both.roles}
    assert set(roles) == {"load", "mma", "softmax_a", "softmax_b", "rescale", "load'", "softmax_a'", "softmax_b'", "rescale'"}
    executed = [x.op for r in both.roles for x in r.body if isinstance(x, Execute)]
    assert sorted(executed) == sorted(op.name for op in double.ops)
    assert {op for op in executed if op.startswith(("QK", "PV"))} == {"QK_a", "QK_b", "PV_a0", "PV_a1", "PV_b0", "PV_b1"}
    arrivals = {b.name: b.arrivals for b in both.barriers}
    assert arrivals["EXP_a0_to_PV_a0"] == 8
    assert "EXP_a0_to_PV_a0'" not in arrivals
    assert arrivals["SP_a_full"] == arrivals["SP_a_full'"] == 1
    assert both.barrier("K_full").tx_bytes == 2 * program.barrier("K_full").tx_bytes == 128 * 128 * 2
    told = {x.barrier for x in roles["mma"].body if isinstance(x, Arrive)}
    assert {"SP_a_full", "SP_a_full'", "V_empty", "V_empty'"} <= told


def _without(program: WarpProgram, role: str, k: int) -> WarpProgram:
    roles = [replace(r, body=(*r.body[:k], *r.body[k + 1 :])) if r.name == role else r for r in program.roles]
    return replace(program, roles=tuple(roles))


@pytest.mark.parametrize("head_dim", [64, 128])
def test_every_wait_is_needed(head_dim: int) -> None:
    """Of either block: what is refused names the dependence that is no longer kept."""
    both, graph = paired(*_pair(head_dim))
    waits = [(r.name, k, x) for r in both.roles for k, x in enumerate(r.body) if isinstance(x, Wait)]
    assert sum(role.endswith("'") for role, _, _ in waits) >= 6
    for role, k, x in waits:
        found = check_order(_without(both, role, k), graph).findings
        assert found, (role, x)
        assert any("'" in f.message for f in found) or not role.endswith("'")


@pytest.mark.parametrize("head_dim", [64, 128])
def test_arrivals_of_both_blocks_complete_a_phase(head_dim: int) -> None:
    both, _ = paired(*_pair(head_dim))
    for b in both.barriers:
        assert sum(x.count for r in both.roles for x in r.body if isinstance(x, Arrive) and x.barrier == b.name) == b.arrivals
        assert any(isinstance(x, Wait) and x.barrier == b.name for r in both.roles for x in r.body)


def test_a_block_that_is_wrong_alone_is_refused_as_such() -> None:
    program, graph = _pair(128)
    broken = replace(program, barriers=tuple(replace(b, arrivals=b.arrivals + 1) for b in program.barriers))
    assert {f.rule for f in check_pair(broken, graph).findings} == {"structure"}
