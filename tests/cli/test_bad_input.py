"""Whatever the user gets wrong: one message with a next step, the right exit code, no traceback, no file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Result, Twill


def refused(result: Result, *words: str) -> None:
    assert result.code == 2, result
    assert result.out == ""
    assert result.err.startswith("twill: error: ")
    assert result.err.count("twill: error") == 1
    assert "\n  next step: " in result.err
    assert "Traceback" not in result.err
    for word in words:
        assert word in result.err, (word, result.err)


ATTN = ("attn_fwd", "--arch", "sm100")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("attn_fwdd", "--arch", "sm90"), ("unknown graph 'attn_fwdd'", "attn_fwd, attn_bwd")),
        (("attn_fwdd",), ("unknown graph 'attn_fwdd'",)),
        (("attn_fwd", "--arch", "sm80"), ("unknown architecture 'sm80'", "sm90, sm100, sm103")),
        (("attn_fwd", "--machine", "b2000"), ("unknown machine 'b2000'", "b200")),
        (("attn_fwd", "--machine", "h200", "--arch", "sm100"), ("h200 is of architecture sm90, not sm100",)),
        (("attn_fwd",), ("no machine is named", "--arch sm90|sm100|sm103")),
        (("toy", "--machine", "b200"), ("'toy' is not for machine 'b200'",)),
        ((*ATTN, "--without", "gravity"), ("there is no rule 'gravity'", "register-limit")),
        ((*ATTN, "--with", "gravity"), ("there is no rule 'gravity'",)),
        ((*ATTN, "--without", "local-registers"), ("off anyway",)),
        ((*ATTN, "--without", "dependence"), ("there is no rule 'dependence'",)),
        ((*ATTN, "--set", "speed=9"), ("no setting 'speed'", "rescale")),
        ((*ATTN, "--set", "rescale"), ("'rescale' is not of the form NAME=VALUE",)),
        ((*ATTN, "--set", "ctas=1", "--set", "ctas=2"), ("gives 'ctas' twice",)),
        ((*ATTN, "--set", "ctas=many"), ("ctas='many' is not a whole number",)),
        ((*ATTN, "--head-dim", "100"), ("100", "multiple")),
        ((*ATTN, "--head-dim", "0"), ("--head-dim 0 is not positive",)),
        ((*ATTN, "--head-dim", "-64"), ("--head-dim -64 is not positive",)),
        ((*ATTN, "--head-dim", "wide"), ("--head-dim", "twill solve --help")),
        ((*ATTN, "--tile", "128"), ("tile",)),
        ((*ATTN, "--tile", "axb"), ("tile",)),
        ((*ATTN, "--tile", "0x128"), ("tile",)),
        ((*ATTN, "--dtype", "fp7"), ("dtype 'fp7' is unknown",)),
        ((*ATTN, "--top", "0"), ("--top 0 is not a positive number",)),
        ((*ATTN, "--timeout", "0"), ("--timeout 0 is not",)),
        ((*ATTN, "--timeout", "-3"), ("--timeout -3 is not",)),
        ((*ATTN, "--timeout", "nan"), ("--timeout nan is not",)),
        ((*ATTN, "--timeout", "inf"), ("--timeout inf is not",)),
        ((*ATTN, "--registers", "0"), ("--registers 0 is not a positive number",)),
        ((*ATTN, "--registers", "-8"), ("--registers -8 is not a positive number",)),
        ((*ATTN, "--groups", "0"), ("--groups 0",)),
        ((*ATTN, "--groups", "99"), ("--groups 99",)),
        ((*ATTN, "--max-copies", "0"), ("--max-copies 0",)),
        ((*ATTN, "--max-ii", "0"), ("--max-ii 0",)),
        ((*ATTN, "--time-unit", "0"), ("--time-unit 0",)),
        ((*ATTN, "--seed", "-1"), ("--seed -1",)),
        ((*ATTN, "--frobnicate"), ("--frobnicate", "twill solve --help")),
        ((), ("Missing argument", "twill solve --help")),
        (("nowhere.json",), ("there is no file 'nowhere.json'",)),
    ],
)  # fmt: skip
def test_solve_refuses(twill: Twill, tmp_path: Path, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    refused(twill("solve", *arguments, "-o", tmp_path / "out.json"), *words)
    assert list(tmp_path.iterdir()) == []


def _older(g: dict[str, Any]) -> None:
    g["schema_version"] = 0


def _cycle(g: dict[str, Any]) -> None:
    g["edges"].append({**g["edges"][0], "src": "P", "dst": "S"})


def _unit(g: dict[str, Any]) -> None:
    g["ops"][0]["reservations"][0]["unit"] = "warp_drive"


def _negative(g: dict[str, Any]) -> None:
    g["ops"][0]["latency_cycles"] = -1


def _dangling(g: dict[str, Any]) -> None:
    g["edges"][0]["dst"] = "Z"


def _unknown_field(g: dict[str, Any]) -> None:
    g["colour"] = "red"


def _no_ops(g: dict[str, Any]) -> None:
    g["ops"] = []


def _machine(g: dict[str, Any]) -> None:
    g["machine"] = "abacus"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_older, ("schema_version 0", "version 1")),
        (_cycle, ("wait for one another", "distance >= 1")),
        (_unit, ("'warp_drive', a unit that toy does not have",)),
        (_negative, ("ops.0.latency_cycles", "greater than or equal to 0")),
        (_dangling, ("op 'Z', which does not exist",)),
        (_unknown_field, ("colour",)),
        (_no_ops, ("ops", "at least 1")),
        (_machine, ("costed for machine 'abacus'", "--machine FILE")),
    ],
)
def test_graph_file_refused(
    twill: Twill, tmp_path: Path, toy_graph: dict[str, Any], change: Callable[[dict[str, Any]], None], words: tuple[str, ...]
) -> None:
    change(toy_graph)
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(toy_graph))
    refused(twill("solve", path, "-o", tmp_path / "out.json"), *words)
    refused(twill("explain", path), *words)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["{", "", "[" * 100_000, "[1, 2]", "nonsense", "\x00"])
def test_malformed_graph_json(twill: Twill, tmp_path: Path, text: str) -> None:
    path = tmp_path / "graph.json"
    path.write_text(text)
    refused(twill("solve", path), "graph.json")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--arch", "sm90"), ("costed for machine 'toy', not for 'h200'",)),
        (("--machine", "b200"), ("costed for machine 'toy', not for 'b200'",)),
        (("--head-dim", "64"), ("--head-dim means nothing for a graph from a file",)),
        (("--set", "ctas=1"), ("--set means nothing",)),
    ],
)
def test_options_that_a_graph_file_refuses(
    twill: Twill, tmp_path: Path, toy_graph: dict[str, Any], arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(toy_graph))
    refused(twill("solve", path, *arguments), *words)


@pytest.mark.parametrize("command", ["check", "show", "explain"])
def test_schedule_file_refused(twill: Twill, tmp_path: Path, toy_file: Path, command: str) -> None:
    data = json.loads(toy_file.read_text())

    def written(**changes: Any) -> Path:
        path = tmp_path / "changed.json"
        path.write_text(json.dumps({**data, **changes}))
        return path

    refused(twill(command, written(length_cycles=5)), "the hash does not match", "--ignore-hash")
    refused(twill(command, written(schema_version=0)), "schema_version 0", "solve it again")
    refused(twill(command, written(ii_cycles="soon")), "ii_cycles")
    refused(twill(command, written(ops=[])), "hash")
    refused(twill(command, tmp_path / "nowhere.json"), "there is no file")
    refused(twill(command, "sm77_attn_fwd"), "sm77_attn_fwd")
    refused(twill(command, tmp_path))
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    refused(twill(command, tmp_path / "binary.json"), "UTF-8")
    (tmp_path / "half.json").write_text(toy_file.read_text()[:100])
    refused(twill(command, tmp_path / "half.json"), "is not JSON")
    (tmp_path / "list.json").write_text("[]")
    refused(twill(command, tmp_path / "list.json"))
    refused(twill(command), "Missing argument")


def test_folder_is_no_file(twill: Twill, tmp_path: Path, toy_file: Path) -> None:
    for command in ("check", "show", "solve", "explain"):
        refused(twill(command, tmp_path), "is a folder")
    refused(twill("check", toy_file, "--machine", tmp_path), "unknown machine")


def test_show_numbers(twill: Twill, toy_file: Path) -> None:
    refused(twill("show", toy_file, "--rows", "0"), "--rows 0")


def test_explain_numbers(twill: Twill, toy_file: Path) -> None:
    refused(twill("explain", toy_file, "--ii", "0"), "--ii 0")
    refused(twill("explain", toy_file, "--timeout", "0"), "--timeout 0")
    refused(twill("explain", toy_file, "--arch", "sm90"), "--arch means nothing")
    refused(twill("explain", toy_file, "--registers", "64"), "--registers means nothing")
    refused(twill("explain", "toy", "--time-unit", "2", "--ii", "3"), "multiple of the time unit of 2", "4")


def test_names_of_lists_and_schemas(twill: Twill) -> None:
    refused(twill("list", "gpus"), "no list of 'gpus'", "machines")
    refused(twill("schema", "kernel"), "no schema of 'kernel'", "schedule")
    refused(twill("dance"), "dance", "twill --help")


def test_unwritable_output(twill: Twill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(twill("solve", "toy", "-o", tmp_path / "no" / "out.json"), "there is no folder", "make the folder")
    refused(twill("solve", "toy", "-o", tmp_path), "it is a folder")

    def locked(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "touch", locked)
    refused(twill("solve", "toy", "-o", tmp_path / "out.json"), "Permission denied", "may write to")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_folder_without_permission(twill: Twill, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    refused(twill("solve", "toy", "-o", folder / "out.json"), "Permission denied")


def test_machine_file(twill: Twill, tmp_path: Path) -> None:
    path = tmp_path / "chip.toml"
    path.write_text("name = ")
    refused(twill("solve", "attn_fwd", "--machine", path), "is not TOML")
    path.write_text('name = "chip"')
    refused(twill("solve", "attn_fwd", "--machine", path), "chip.toml")
