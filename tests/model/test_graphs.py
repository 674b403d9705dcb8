"""Every shipped graph on every machine: builds, validates, round-trips, and could fit."""

import os
import subprocess
import sys

import pytest

from twill.errors import GraphError, ParameterError
from twill.model.graph import parse_graph
from twill.model.graphs.attn_bwd import AttnBwd, attn_bwd
from twill.model.graphs.attn_fwd import AttnFwd, attn_fwd
from twill.model.graphs.gemm import Gemm, gemm
from twill.model.graphs.linear_attn import LinearAttn, linear_attn
from twill.model.graphs.parameters import Tile
from twill.model.machine import load_machine
from twill.model.registry import GraphRequest, build_graph
from twill.model.validate import validate_graph

MACHINES = ("h100", "h200", "b200", "b300")
HEAD_DIMS = ((64, 64), (96, 96), (128, 128), (192, 128), (256, 256))
ODD_HEAD_DIMS = ((8, 8), (40, 40), (72, 72), (104, 104), (112, 64), (160, 128), (192, 192), (200, 200))


def cases():
    for machine in MACHINES:
        for d, dv in HEAD_DIMS:
            for name in ("attn_fwd", "attn_bwd", "linear_attn"):
                yield name, machine, GraphRequest(head_dim=d, head_dim_v=dv)
            if load_machine(machine).max_ctas > 1:
                for name in ("attn_fwd", "attn_bwd"):
                    yield name, machine, GraphRequest(head_dim=d, head_dim_v=dv, settings={"ctas": "2"})
        yield "gemm", machine, GraphRequest()
    yield "toy", "toy", GraphRequest()


def label(value):
    if isinstance(value, GraphRequest):
        return f"{value.head_dim}-{value.head_dim_v}-{value.settings.get('ctas', 'default')}"
    return str(value)


@pytest.mark.parametrize(("name", "machine_name", "request_"), list(cases()), ids=label)
def test_builds_validates_and_round_trips(name, machine_name, request_):
    machine = load_machine(machine_name)
    graph = build_graph(name, machine, request_)
    validate_graph(graph, machine)
    assert graph.machine == machine_name
    assert len(graph.ops) <= 24
    again = parse_graph(graph.to_json(), "test")
    assert again == graph
    assert again.hash == graph.hash == build_graph(name, machine, request_).hash


@pytest.mark.parametrize(("d", "dv"), ODD_HEAD_DIMS)
@pytest.mark.parametrize("machine_name", ["h200", "b200"])
def test_odd_head_dims_build(machine_name, d, dv):
    graph = attn_bwd(load_machine(machine_name), AttnBwd(head_dim=d, head_dim_v=dv))
    assert graph.parameters["head_dim"] == d
    assert graph.parameters["head_dim_v"] == dv


def rounded(buffer, machine):
    step = machine.memories[buffer.memory].alignment
    return -(-buffer.size // step) * step


@pytest.mark.parametrize("machine_name", MACHINES)
@pytest.mark.parametrize(
    ("name", "d", "dv"), [*(("attn_fwd", *h) for h in HEAD_DIMS), *(("attn_bwd", *h) for h in (*HEAD_DIMS, *ODD_HEAD_DIMS))]
)
def test_one_stage_of_everything_fits(name, machine_name, d, dv):
    machine = load_machine(machine_name)
    graph = build_graph(name, machine, GraphRequest(head_dim=d, head_dim_v=dv))
    smem = sum(rounded(b, machine) for b in graph.buffers if b.memory == "smem")
    assert smem <= machine.memory_size("smem") - graph.reserved["smem"]
    tmem = [b for b in graph.buffers if b.memory == "tmem"]
    if tmem:
        always = sum(rounded(b, machine) for b in tmem if b.persistent)
        assert always + max(rounded(b, machine) for b in tmem if not b.persistent) <= machine.memory_size("tmem")
    persistent = {}
    for value in graph.values:
        if value.persistent:
            subtile = graph.op(value.producer).subtile
            persistent[subtile] = persistent.get(subtile, 0) + value.registers
    overhead, limit = machine.registers.overhead_per_thread.value, machine.registers.per_thread_max.value
    assert all(total + overhead < limit for total in persistent.values())


def test_hash_does_not_depend_on_the_process():
    code = (
        "from twill.model.machine import load_machine\n"
        "from twill.model.registry import build_graph\n"
        "for g in ('attn_fwd', 'attn_bwd', 'gemm', 'linear_attn'):\n"
        "    for m in ('h200', 'b200'):\n"
        "        print(build_graph(g, load_machine(m)).hash)"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_hash_covers_costs_and_parameters():
    machine = load_machine("h200")
    graph = attn_bwd(machine)
    op = graph.ops[3]
    slower = graph.model_copy(
        update={"ops": tuple(o.model_copy(update={"issue_cycles": o.issue_cycles + 1}) if o == op else o for o in graph.ops)}
    )
    hashes = {graph.hash, slower.hash, attn_bwd(machine, AttnBwd(ds_from="bf16")).hash, attn_bwd(machine, AttnBwd(dtype="fp16")).hash}
    assert len(hashes) == 4


@pytest.mark.parametrize("machine_name", ["h200", "b200"])
@pytest.mark.parametrize("build", [attn_fwd, attn_bwd])
def test_subtiles_are_symmetric_and_breaking_one_is_noticed(build, machine_name):
    machine = load_machine(machine_name)
    graph = build(machine)
    assert graph.symmetries
    name = graph.symmetries[0][0][-1]
    broken = tuple(
        o.model_copy(update={"latency_cycles": o.latency_cycles + 1, "issue_cycles": o.issue_cycles + 1}) if o.name == name else o
        for o in graph.ops
    )
    with pytest.raises(GraphError, match="changes the graph"):
        validate_graph(graph.model_copy(update={"ops": broken}), machine)


def test_backward_forms():
    small, wide = (attn_bwd(load_machine("h200"), AttnBwd(head_dim=d)) for d in (128, 256))
    assert {e.kind for e in small.edges if (e.src, e.dst) == ("CVT_a", "DV_a")} == {"registers"}
    assert {e.kind for e in wide.edges if (e.src, e.dst) == ("CVT_a", "DV_a")} == {"smem"}
    assert {(e.src, e.dst) for e in small.edges if e.dst.startswith("DQ_") and e.src.startswith("DSST")} == {
        ("DSST_a", "DQ_a"), ("DSST_b", "DQ_a"), ("DSST_a", "DQ_b"), ("DSST_b", "DQ_b"),
    }  # fmt: skip
    assert small.parameters["tile"] == "80x128"
    assert wide.parameters["tile"] == "64x48"
    assert attn_bwd(load_machine("h200"), AttnBwd(head_dim=96)).parameters["dq_parts"] == 1


def test_backward_reduction_is_fixed_latency_and_free_to_be_issued_by_anyone():
    for machine in ("h200", "b200"):
        reds = [op for op in attn_bwd(load_machine(machine)).ops if op.kind == "reduce_add"]
        assert reds
        assert all(op.asynchronous and not op.variable_latency and op.unit == "tma" and op.warps == 1 for op in reds)


def test_shared_staging_is_used_in_turn():
    graph = attn_bwd(load_machine("b200"))
    assert graph.parameters["dq_parts"] == 4
    order = {(e.src, e.dst): e.latency_cycles for e in graph.edges if e.kind == "order"}
    assert order["RED0", "DQST2"] == order["RED1", "DQST3"] == graph.op("RED0").latency_cycles


@pytest.mark.parametrize(
    ("build", "machine", "parameters"),
    [
        (attn_bwd, "h200", AttnBwd(head_dim=12)),
        (attn_bwd, "h200", AttnBwd(head_dim=264)),
        (attn_bwd, "h200", AttnBwd(head_dim_v=0)),
        (attn_bwd, "h200", AttnBwd(dtype="fp8")),
        (attn_bwd, "h200", AttnBwd(ctas=2)),
        (attn_bwd, "h200", AttnBwd(subtiles=0)),
        (attn_bwd, "h200", AttnBwd(subtiles=3)),
        (attn_bwd, "h200", AttnBwd(tile=Tile(72, 128), dq_parts=3)),
        (attn_bwd, "h200", AttnBwd(head_dim=256, tile=Tile(80, 48))),
        (attn_bwd, "h200", AttnBwd(dq_parts=9)),
        (attn_bwd, "b200", AttnBwd(tile=Tile(64, 128))),
        (attn_bwd, "b200", AttnBwd(tile=Tile(128, 64))),
        (attn_bwd, "b200", AttnBwd(ctas=3)),
        (attn_bwd, "b200", AttnBwd(subtiles=3)),
        (attn_bwd, "b200", AttnBwd(ds_from="fp16")),
        (attn_fwd, "h200", AttnFwd(head_dim_v=0)),
        (attn_fwd, "h200", AttnFwd(subtiles=0)),
        (attn_fwd, "h200", AttnFwd(tile=Tile(100, 128))),
        (attn_fwd, "h200", AttnFwd(chunks="2")),
        (attn_fwd, "b200", AttnFwd(chunks="100")),
        (attn_fwd, "b200", AttnFwd(poly_share=1.0)),
        (attn_fwd, "b200", AttnFwd(rescale_rate=2.0)),
        (gemm, "h200", Gemm(tile=Tile(100, 128))),
        (gemm, "h200", Gemm(k=8)),
        (gemm, "h200", Gemm(subtiles=0)),
        (gemm, "h200", Gemm(ctas=2)),
        (gemm, "b200", Gemm(dtype="int8")),
        (linear_attn, "h200", LinearAttn(chunk=0)),
        (linear_attn, "b200", LinearAttn(chunk=64)),
        (linear_attn, "b200", LinearAttn(head_dim=4)),
    ],
)
def test_parameters_that_cannot_be_honoured(build, machine, parameters):
    with pytest.raises(ParameterError) as error:
        build(load_machine(machine), parameters)
    assert error.value.hint
