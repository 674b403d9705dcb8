"""The examples in the documentation run and give graphs that validate."""

import re
import runpy
from pathlib import Path

import pytest

from twill.model.graph import LoopGraph, parse_graph
from twill.model.machine import load_machine
from twill.model.registry import GRAPHS
from twill.model.validate import validate_graph

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "graphs.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks(code):
    names = {}
    exec(compile(code, "graphs.md", "exec"), names)
    assert isinstance(names["graph"], LoopGraph)
    assert parse_graph(names["graph"].to_json(), "graphs.md") == names["graph"]


def test_json_block():
    (text,) = blocks("json")
    validate_graph(parse_graph(text, "graphs.md"), load_machine("h200"))


def test_table_of_graphs_is_complete():
    for name, spec in GRAPHS.items():
        (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |")]
        assert all(word in row for word in (*spec.takes, *spec.settings))


def test_linear_attention_script(tmp_path, capsys):
    example = runpy.run_path(str(DOCS / "examples" / "linear_attention.py"))
    example["main"](tmp_path)
    for machine in ("h200", "b200"):
        graph = parse_graph((tmp_path / f"linear_attn-{machine}.json").read_text(encoding="utf-8"), machine)
        validate_graph(graph, load_machine(machine))
        assert graph.machine == machine
    assert "of the chunk before" in capsys.readouterr().out
