"""Corrupt one thing of a good graph and see it refused."""

import json

import pytest

from twill.errors import GraphError
from twill.model.builder import GraphBuilder
from twill.model.costs import Work
from twill.model.graph import Edge, LoopGraph, parse_graph
from twill.model.graphs.attn_bwd import attn_bwd
from twill.model.machine import load_machine
from twill.model.validate import validate_graph

MACHINE = load_machine("h200")
GOOD = attn_bwd(MACHINE)


def corrupted(change):
    data = GOOD.model_dump(mode="json")
    change(data)
    return LoopGraph.model_validate(data)


def set_op(index, **fields):
    return lambda data: data["ops"][index].update(fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["ops"].append(d["ops"][0]), "ops are called"),
        (lambda d: d["buffers"].append(d["buffers"][0]), "buffers are called"),
        (lambda d: d["values"].append(d["values"][0]), "register values are called"),
        (lambda d: d["edges"][0].update(dst="NOBODY"), "NOBODY"),
        (lambda d: d["edges"][0].update(src="NOBODY"), "NOBODY"),
        (lambda d: d["buffers"][0].update(writers=["NOBODY"]), "NOBODY"),
        (lambda d: d["buffers"][0]["readers"][0].update(op="NOBODY"), "NOBODY"),
        (lambda d: d["values"][0].update(producer="NOBODY"), "NOBODY"),
        (lambda d: d["values"][0]["readers"][0].update(op="NOBODY"), "NOBODY"),
        (lambda d: d.update(symmetries=[[["NOBODY"], ["QK_a"]]]), "NOBODY"),
        (lambda d: d["ops"][0]["reservations"][0].update(unit="tmem"), "tmem"),
        (lambda d: d["ops"][0]["reservations"][0].update(amount=101), "of which h200 has 100"),
        (lambda d: d["buffers"][0].update(memory="tmem"), "memory"),
        (lambda d: d.update(reserved={"tmem": 1}), "memory"),
        (lambda d: d["buffers"][0].update(readers=[]), "never"),
        (lambda d: d.update(symmetries=[[["QK_a"], ["QK_b"]]]), "changes the graph"),
        (lambda d: d.update(symmetries=[[["QK_a", "QK_b"], ["QK_b", "QK_a"]]]), "pair"),
        (lambda d: d.update(symmetries=[[["QK_a", "DP_a"], ["QK_b"]]]), "pair"),
        (lambda d: d.update(symmetries=[[["LQ"], ["LDO"]]]), "changes the graph"),
    ],
)
def test_refused(change, message):
    with pytest.raises(GraphError, match=message) as error:
        validate_graph(corrupted(change), MACHINE)
    assert error.value.hint


def test_synchronous_op_cannot_be_idle_before_its_result():
    index = next(i for i, op in enumerate(GOOD.ops) if not op.asynchronous)
    with pytest.raises(GraphError, match="synchronous"):
        validate_graph(corrupted(set_op(index, issue_cycles=1)), MACHINE)


def test_graph_costed_for_another_machine():
    with pytest.raises(GraphError, match="costed for machine 'h200'"):
        validate_graph(GOOD, load_machine("h100"))


def test_op_that_takes_no_time():
    with pytest.raises(GraphError, match="no time"):
        validate_graph(corrupted(set_op(0, latency_cycles=0, issue_cycles=0, reservations=[])), MACHINE)


def test_waiting_in_a_circle_within_one_iteration():
    back = Edge(src="DQ_a", dst="QK_a", kind="order", latency_cycles=1)
    with pytest.raises(GraphError, match="wait for one another"):
        validate_graph(GOOD.model_copy(update={"edges": (*GOOD.edges, back)}), MACHINE)
    validate_graph(GOOD.model_copy(update={"edges": (*GOOD.edges, back.model_copy(update={"distance": 1})), "symmetries": ()}), MACHINE)


@pytest.mark.parametrize(
    "change",
    [
        set_op(0, latency_cycles=-1),
        set_op(0, issue_cycles=-1),
        set_op(0, warps=0),
        set_op(0, name="a b"),
        set_op(0, colour="red"),
        lambda d: d["ops"][0]["reservations"][0].update(cycles=0),
        lambda d: d["ops"][0]["reservations"][0].update(amount=-1),
        lambda d: d["edges"][0].update(latency_cycles=-1),
        lambda d: d["edges"][0].update(distance=-1),
        lambda d: d["edges"][0].update(cross_group_cycles=-1),
        lambda d: d["edges"][0].update(kind="telepathy"),
        lambda d: d["buffers"][0].update(size=0),
        lambda d: d["values"][0].update(registers=0),
        lambda d: d["buffers"][0]["readers"][0].update(hold_cycles=-1),
        lambda d: d.update(ops=[]),
        lambda d: d.pop("ops"),
    ],
)
def test_fields_out_of_range_are_refused_when_read(change):
    data = GOOD.model_dump(mode="json")
    change(data)
    with pytest.raises(GraphError, match=r"file\.json"):
        parse_graph(json.dumps(data), "file.json")


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", '"text"', "[" * 100_000])
def test_what_is_not_a_graph(text):
    with pytest.raises(GraphError, match=r"file\.json") as error:
        parse_graph(text, "file.json")
    assert error.value.hint


def test_another_schema_version():
    with pytest.raises(GraphError, match="schema_version 2"):
        parse_graph(json.dumps({**GOOD.model_dump(mode="json"), "schema_version": 2}), "file.json")


@pytest.mark.parametrize(
    "again",
    [
        lambda b: b.load("LX", "Y", 1024),
        lambda b: b.buffer("X", "smem", 1024),
        lambda b: b.value("E", "EXP", 4),
    ],
)
def test_builder_refuses_a_name_twice(again):
    b = GraphBuilder("g", MACHINE)
    b.load("LX", "X", 1024)
    b.compute("EXP", "exp2", work=(Work("mufu", 1024),))
    b.value("E", "EXP", 8)
    with pytest.raises(GraphError, match="two"):
        again(b)
