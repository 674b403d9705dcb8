"""``twill list`` and ``twill schema``; the schemas under docs/schema are current."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from twill.schedules import names

from twill.cli.schema import FORMATS, schema_text
from twill.model.graphs.toy import toy
from twill.model.machine import ARCH_DEFAULT_MACHINE, load_machine, machine_names
from twill.model.registry import GRAPHS
from twill.solver.problem import RULES

from .conftest import Twill

SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"


def first_words(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line and not line.startswith(" ")]


def test_lists(twill: Twill) -> None:
    assert set(first_words(twill("list", "rules").out)) == {"rule", *RULES}
    assert set(first_words(twill("list", "machines").out)) == {"machine", *machine_names()}
    assert set(first_words(twill("list", "graphs").out)) == {"graph", *GRAPHS}
    machines = twill("list", "machines").out
    for arch, machine in ARCH_DEFAULT_MACHINE.items():
        assert any(line.startswith(machine) and f"--arch {arch}" in line for line in machines.splitlines())
    graphs = twill("list", "graphs").out
    for spec in GRAPHS.values():
        assert all(setting in graphs for setting in spec.settings)


def test_list_of_schedules(twill: Twill) -> None:
    out = twill("list", "schedules").out
    assert set(first_words(out)) == ({"schedule", *names()} if names() else {"no"})


def test_everything_is_listed(twill: Twill) -> None:
    parts = [twill("list", what).out for what in ("graphs", "machines", "rules", "schedules")]
    assert twill("list").out == "\n".join(parts)


@pytest.mark.parametrize("what", FORMATS)
def test_schemas_in_docs_are_current(twill: Twill, what: str) -> None:
    printed = twill("schema", what)
    assert (printed.code, printed.out) == (0, schema_text(what))
    committed = (SCHEMAS / f"{what}.json").read_text()
    assert committed == printed.out, f"run: twill schema {what} > docs/schema/{what}.json"


def test_schemas_describe_the_files(twill: Twill) -> None:
    machine = load_machine("toy")
    jsonschema.validate(machine.model_dump(mode="json"), json.loads(schema_text("machine")))
    jsonschema.validate(json.loads(toy(machine).to_json()), json.loads(schema_text("graph")))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema_version": 1}, json.loads(schema_text("schedule")))
    assert twill("schema").out == schema_text("schedule")


def test_help(twill: Twill) -> None:
    for arguments in ((), ("--help",)):
        result = twill(*arguments)
        assert (result.code, result.err) == (0, "")
        assert all(command in result.out for command in ("solve", "explain", "check", "show", "list", "schema", "Exit codes"))
    solve = twill("solve", "--help").out
    for flag in ("--arch", "--machine", "--head-dim", "--head-dim-v", "--tile", "--subtiles", "--dtype", "--set", "--registers", "--groups",
                 "--max-copies", "--max-ii", "--time-unit", "--without", "--with", "--top", "--timeout", "--seed", "--crosscheck", "-o",
                 "--json"):  # fmt: skip
        assert flag in solve
