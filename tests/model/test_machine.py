"""Machine files: complete, sourced, and refused when malformed."""

import tomllib
from importlib import resources

import pytest

from twill.errors import MachineError, UsageError
from twill.model.machine import ARCH_DEFAULT_MACHINE, Figure, load_machine, machine_names

TEXT = {name: (resources.files("twill.model") / "machines" / f"{name}.toml").read_text(encoding="utf-8") for name in machine_names()}


def figures(data, path=""):
    """Every table with a value in it, wherever it is."""
    if isinstance(data, dict):
        if "value" in data:
            yield path, data
        else:
            for key, inner in data.items():
                yield from figures(inner, f"{path}.{key}")


def test_the_shipped_machines():
    assert {"h100", "h200", "b200", "b300", "toy"} <= set(machine_names())
    assert set(ARCH_DEFAULT_MACHINE.values()) <= set(machine_names())
    assert all(load_machine(m).arch == arch for arch, m in ARCH_DEFAULT_MACHINE.items())


@pytest.mark.parametrize("name", machine_names())
def test_every_figure_has_unit_source_and_evidence(name):
    found = list(figures(tomllib.loads(TEXT[name])))
    assert len(found) >= 10
    for path, figure in found:
        assert set(figure) == {"value", "unit", "source", "evidence"}, path
        parsed = Figure.model_validate(figure)
        assert parsed.source.strip(), path
        assert parsed.unit.strip(), path
        if parsed.evidence == "own":
            assert any(mark in parsed.source for mark in ("2026-", "machine code", "costs.")), path


@pytest.mark.parametrize("name", machine_names())
def test_no_number_without_a_figure(name):
    """Bare numbers are structure (schema, counts, alignment), never costs."""

    def bare(data, path=""):
        if isinstance(data, dict) and "value" not in data:
            for key, inner in data.items():
                yield from bare(inner, f"{path}.{key}")
        elif isinstance(data, (int, float)) and not isinstance(data, bool):
            yield path

    allowed = {"schema_version", "mma_warps", "max_ctas", "alignment"}
    assert {path.rsplit(".", 1)[1] for path in bare(tomllib.loads(TEXT[name]))} <= allowed


@pytest.mark.parametrize(
    ("name", "figure", "value"),
    [
        ("h200", "mma_flops_per_cycle", 4096),
        ("b200", "mma_flops_per_cycle", 8192),
        ("b200", "mufu_lanes", 16),
        ("b300", "mufu_lanes", 32),
        ("h200", "tma_load_fixed", 460),
        ("b200", "handover_mbarrier", 92),
    ],
)
def test_documented_figures(name, figure, value):
    assert load_machine(name).cost(figure) == value


@pytest.mark.parametrize("name", ["h100", "h200", "b200", "b300"])
def test_documented_sizes(name):
    machine = load_machine(name)
    assert machine.memory_size("smem") == 232448
    assert machine.registers.file.value == 65536
    if machine.accumulator == "tmem":
        assert machine.memory_size("tmem") == 512


def test_unknown_machine_lists_the_known_ones():
    with pytest.raises(UsageError, match="no_such") as error:
        load_machine("no_such")
    assert "h200" in error.value.hint


def test_a_machine_file_by_path(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(TEXT["h200"].replace('name = "h200"', 'name = "mine"'), encoding="utf-8")
    assert load_machine(path).name == "mine"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema_version = 1", "schema_version = ", "not TOML"),
        ("schema_version = 1", "schema_version = 2", "schema_version"),
        ('accumulator = "registers"', 'accumulator = "memory"', "accumulator"),
        ('unit = "flop/clk"', 'unit = ""', "unit"),
        ('source = "PTX ISA, wgmma.mma_async shapes"', 'source = ""', "source"),
        ('evidence = "own"', 'evidence = "hearsay"', "evidence"),
        ("value = 232448", "value = -1", "value"),
        ("mma_warps = 4", "mma_warps = 0", "mma_warps"),
        ("mma_warps = 4", "mma_warps = 4\ncolour = 3", "colour"),
        ("max_ctas = 1\n", "", "max_ctas"),
    ],
)
def test_malformed_machine_file(tmp_path, old, new, message):
    path = tmp_path / "bad.toml"
    assert old in TEXT["h200"]
    path.write_text(TEXT["h200"].replace(old, new), encoding="utf-8")
    with pytest.raises(MachineError, match=message) as error:
        load_machine(path)
    assert error.value.hint


def test_not_text(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MachineError, match="cannot read"):
        load_machine(path)


def test_missing_cost_figure_names_the_entry_to_add():
    with pytest.raises(MachineError, match="tmem_load_fixed") as error:
        load_machine("h200").cost("tmem_load_fixed")
    assert "costs" in error.value.hint
