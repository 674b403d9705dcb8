"""Parameters reach the graph that takes them and are refused by all others."""

import pytest

from twill.errors import ParameterError, UsageError
from twill.model.machine import load_machine
from twill.model.registry import FLAGS, GRAPHS, GraphRequest, build_graph

HOPPER, BLACKWELL, TOY = load_machine("h200"), load_machine("b200"), load_machine("toy")


def test_parameters_reach_the_graph():
    request = GraphRequest(
        head_dim=64,
        head_dim_v=128,
        tile="256x128",
        subtiles=2,
        dtype="fp16",
        settings={"chunks": "4", "rescale": "conditional", "ctas": "2"},
    )
    assert build_graph("attn_fwd", BLACKWELL, request).parameters == {
        "head_dim": 64, "head_dim_v": 128, "tile": "256x128", "subtiles": 2, "dtype": "fp16", "chunks": "4", "rescale": "conditional",
        "ctas": 2, "rescale_rate": 0.1, "poly_share": 0.25,
    }  # fmt: skip
    assert build_graph("gemm", HOPPER, GraphRequest(settings={"k": "32"})).parameters["k"] == 32
    assert build_graph("attn_bwd", HOPPER, GraphRequest(tile="64x128")).parameters["tile"] == "64x128"


def test_unknown_graph_lists_the_known_ones():
    with pytest.raises(UsageError, match="attn_sideways") as error:
        build_graph("attn_sideways", HOPPER)
    assert all(name in error.value.hint for name in GRAPHS)


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_unknown_setting_lists_the_known_ones(name):
    machine = TOY if name == "toy" else BLACKWELL
    with pytest.raises(UsageError, match="speed") as error:
        build_graph(name, machine, GraphRequest(settings={"speed": "11"}))
    assert all(setting in error.value.hint for setting in GRAPHS[name].settings)


VALUES = {"head_dim": 64, "head_dim_v": 64, "tile": "128x128", "subtiles": 1, "dtype": "bf16"}


@pytest.mark.parametrize(("name", "parameter"), [(n, p) for n, spec in GRAPHS.items() for p in FLAGS if p not in spec.takes])
def test_parameters_that_a_graph_does_not_take(name, parameter):
    machine = TOY if name == "toy" else BLACKWELL
    with pytest.raises(UsageError, match=FLAGS[parameter]):
        build_graph(name, machine, GraphRequest(**{parameter: VALUES[parameter]}))


@pytest.mark.parametrize(("name", "parameter"), [(n, p) for n, spec in GRAPHS.items() for p in spec.takes])
def test_every_parameter_that_a_graph_takes_changes_or_records(name, parameter):
    graph = build_graph(name, BLACKWELL, GraphRequest(**{parameter: VALUES[parameter]}))
    assert graph.parameters[parameter] == VALUES[parameter]


@pytest.mark.parametrize(("name", "setting"), [(n, s) for n, spec in GRAPHS.items() for s in spec.settings])
def test_settings_that_are_nonsense(name, setting):
    with pytest.raises(ParameterError) as error:
        build_graph(name, BLACKWELL, GraphRequest(settings={setting: "sideways"}))
    assert error.value.hint


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1.5"])
def test_rates_are_probabilities(text):
    with pytest.raises(ParameterError):
        build_graph("attn_fwd", BLACKWELL, GraphRequest(settings={"rescale_rate": text}))


@pytest.mark.parametrize(
    "request_",
    [
        GraphRequest(tile="128"),
        GraphRequest(tile="0x128"),
        GraphRequest(tile="128x8"),
        GraphRequest(tile="100000x100000"),
        GraphRequest(tile="-128x128"),
        GraphRequest(head_dim=0),
        GraphRequest(head_dim=-64),
        GraphRequest(head_dim=100),
        GraphRequest(head_dim_v=0),
        GraphRequest(subtiles=0),
        GraphRequest(subtiles=1000),
        GraphRequest(dtype="fp7"),
        GraphRequest(settings={"ctas": "0"}),
        GraphRequest(settings={"ctas": "16"}),
    ],
)
@pytest.mark.parametrize("name", ["attn_fwd", "attn_bwd"])
@pytest.mark.parametrize("machine", [HOPPER, BLACKWELL], ids=lambda m: m.name)
def test_absurd_parameters(name, machine, request_):
    with pytest.raises(ParameterError) as error:
        build_graph(name, machine, request_)
    assert error.value.hint


def test_example_machine_and_example_graph_belong_together():
    assert [op.name for op in build_graph("toy", TOY).ops] == ["S", "P", "O"]
    with pytest.raises(UsageError, match="not for machine"):
        build_graph("toy", HOPPER)
    with pytest.raises(UsageError, match="not for machine"):
        build_graph("attn_fwd", TOY)
