"""Hand-written orders cost what was measured on an H200, in the measured order."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import pytest

from twill.check.protocol import Order, cost_order, parse_order
from twill.cli.app import run
from twill.errors import ScheduleFileError, UsageError

ALL = sorted((Path(__file__).parents[2] / "docs/examples/orders").glob("*.json"))
FILES = [f for f in ALL if parse_order(f.read_text(), f.name).measured]
TOLERANCE = 0.07


def _order(name: str) -> Order:
    file = next(f for f in FILES if f.stem == name)
    return parse_order(file.read_text(), file.name)


def _middle(order: Order) -> float:
    assert order.measured
    return (order.measured.low_cycles + order.measured.high_cycles) / 2


@pytest.mark.parametrize("name", [f.stem for f in FILES])
def test_within_what_was_measured(name: str) -> None:
    order = _order(name)
    assert cost_order(order).period_cycles == pytest.approx(_middle(order), rel=TOLERANCE)


def test_in_the_measured_order() -> None:
    """Of two loops of one shape, the one measured slower costs more."""
    for head_dim in (64, 128):
        orders = [o for o in (_order(f.stem) for f in FILES) if o.graph.head_dim == head_dim and len(o.roles) == 2]
        costs = {o.name: cost_order(o).period_cycles for o in orders}
        for x, y in permutations(orders, 2):
            if _middle(x) < _middle(y):
                assert costs[x.name] < costs[y.name], (x.name, y.name)
    free, strict, serial = (cost_order(_order(n)).period_cycles for n in ("fa3_d128", "strict_pingpong_d128", "serial_d128"))
    assert free < strict < serial


def test_no_order_beats_the_tensor_core() -> None:
    for file in ALL:
        order = parse_order(file.read_text(), file.name)
        consumers = sum(any(s.op and s.op.startswith("MAX") for s in role.steps) for role in order.roles)
        assert order.graph.head_dim and consumers
        assert cost_order(order).period_cycles >= 512 * order.graph.head_dim / 128 * 2 * consumers


def test_an_order_that_waits_for_ever_is_refused() -> None:
    order = _order("fa3_pingpong_d128")
    data = order.model_dump()
    # both warpgroups wait for the other's turn of the same period
    data["roles"][0]["steps"][0]["ahead"] = 0
    with pytest.raises(UsageError, match="waits for ever: softmax_a at"):
        cost_order(Order.model_validate(data))


def test_unknown_and_repeated_ops_are_refused() -> None:
    data = _order("fa3_d128").model_dump()
    data["roles"][0]["steps"][0]["op"] = "QK_z"
    with pytest.raises(UsageError, match="no op 'QK_z'"):
        cost_order(Order.model_validate(data))
    data["roles"][0]["steps"][0]["op"] = "QK_b"
    with pytest.raises(UsageError, match="QK_b twice"):
        cost_order(Order.model_validate(data))


@pytest.mark.parametrize(
    "text",
    ["{", '{"name": "x"}', '{"name": "x", "graph": {"name": "attn_fwd", "machine": "h200"}, "roles": [{"name": "a", "steps": [{}]}]}'],
)
def test_malformed_files_are_refused(text: str) -> None:
    with pytest.raises(ScheduleFileError):
        parse_order(text, "order.json")


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    file = next(f for f in FILES if f.stem == "fa3_d128")
    assert run(["cost", str(file)]) == 0
    said = capsys.readouterr().out
    assert "measured 2403" in said
    assert "in the model: I = 2564" in said
    assert run(["cost", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured"]["low_cycles"] == 2403
    assert run(["cost", str(file.with_name("fa4_d128.json"))]) == 0
    said = capsys.readouterr().out
    assert "I = 2883" in said
    assert "predicted: 1599 TFLOP/s, 71.0% of the matrix peak" in said
    assert "published 1613 TFLOP/s" in said
