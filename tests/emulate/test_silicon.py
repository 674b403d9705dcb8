"""The comparison of the emulator with a GPU, without a GPU: numbers, tables, and all of it with an emulated device in the child."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.silicon import compare as comparing
from benchmarks.silicon.cases import Case, load_cases, pack, save_cases
from benchmarks.silicon.child import compared, outcome, units_apart
from benchmarks.silicon.tables import comparison, contradictions, faults
from twill.emulate.numbers import Expected, from_bits, to_bits


def test_units_in_the_last_place_cross_zero() -> None:
    a = np.array([0x3F80, 0x3F80, 0x0000, 0x8001, 0x8000, 0x7F80], np.uint16)
    b = np.array([0x3F81, 0x3F7F, 0x8000, 0x0001, 0x0002, 0x7F7F], np.uint16)
    np.testing.assert_array_equal(units_apart(a, b), [1, 1, 0, 2, 2, 1])
    near = np.array([1.0, -1.0, 0.0], np.float32)
    np.testing.assert_array_equal(units_apart(near.view(np.uint32), np.nextafter(near, np.float32(2)).view(np.uint32)), [1, 1, 1])


def test_bf16_rounds_to_nearest_even() -> None:
    values = np.array([1.0, 1.00390625, 1.01171875, -3.1415926, 65504.0])
    np.testing.assert_array_equal(to_bits(values, "bf16"), [0x3F80, 0x3F80, 0x3F82, 0xC049, 0x4780])
    np.testing.assert_allclose(from_bits(to_bits(values, "bf16"), "bf16"), values, rtol=2.0**-8)
    np.testing.assert_array_equal(to_bits(values, "fp16"), values.astype(np.float16).view(np.uint16))


def test_what_is_not_a_number_is_told() -> None:
    wanted = np.array([0x3F80, 0x4000, 0x0000], np.uint16)
    found = compared(np.array([0x3F81, 0x7FC1, 0x0000], np.uint16), wanted)
    assert (found["elements"], found["equal"], found["one"], found["not_finite"]) == (3, 1, 1, 1)
    assert found["largest"] == 2.0**-7


def test_outcomes() -> None:
    """One problem, of which the outputs hold two copies: the second may be off as well."""
    o, lse = np.full((1, 1, 1, 2), 0x3F80, np.uint16), np.array([[[2.0]]], np.float32)
    right = {"o": np.tile(o, (2, 1, 1, 1)), "lse": np.tile(lse, (2, 1, 1))}
    expected = Expected(np.ones((1, 1, 1, 2)), np.full((1, 1, 1), 2.0), np.full((1, 1, 1, 2), 0.01))

    def after(name: str, value: float) -> str:
        got = {n: x.copy() for n, x in right.items()}
        got[name].reshape(-1)[-1] = value
        return outcome(got, right, expected)

    assert after("o", 0x3F80) == "same"
    assert after("o", 0x3F81) == "differs"
    assert after("o", 0x3F90) == "wrong"
    assert after("o", 0x7FC1) == "wrong"
    assert after("lse", 2.0001) == "differs"
    assert after("lse", 2.1) == "wrong"


def test_contradictions_and_tables() -> None:
    about = {"family": "wait dropped", "line": 7, "source": "a.py:1", "text": "x", "scheduler": "late", "remarks": ""}
    cases = [Case(f"f{i}", "fault", (), (), fault=about | {"caught": c}) for i, c in enumerate((["race"], [], [], ["race"]))]
    results = {f"f{i}": {"ways": {"alone": "same", "crowded": w}} for i, w in enumerate(("hang", "wrong", "differs", "same"))}
    assert contradictions(cases, results) == ["f1"]
    lines = list(faults(cases, results))
    assert lines[2] == "| wait dropped | 4 | 1 | 0 | 1 | 1 | 1 | 1 of 2 | 2 |"
    assert [x.partition(":")[0] for x in lines if x.startswith("*")] == ["* f1", "* f3"]
    pair = [Case(n, "ours", (), ()) for n in ("near", "far", "dead")]
    near = {"elements": 4, "equal": 3, "one": 1, "most": 1, "norm": 1e-4, "not_finite": 0, "repeats": True, "apart_of_bound": 0.5}
    compared_results = {
        "near": {"outputs": {"o": near}},
        "far": {"outputs": {"o": near | {"apart_of_bound": 3.0}}},
        "dead": {"error": "gone"},
    }
    assert contradictions(pair, compared_results) == ["far", "dead"]
    assert list(comparison(pair, compared_results))[2].startswith("| near | o | 4 | 75.000% | 25.000% | 0.000% | 1 |")


def test_all_of_it_with_an_emulated_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel, a fault that hangs, one that computes wrongly, one that is refused, one that does nothing; one is said to be unseen."""
    pytest.importorskip("cutlass", reason="kernels are compiled by CuTe DSL: install 'twill-gpu[kernels]'")
    pytest.importorskip("filelock")
    from benchmarks.silicon.emulated import emulated
    from benchmarks.silicon.ours import Ours
    from twill.emulate.mutants import mutants
    from twill.emulate.ptx.plant import planted

    this = Ours.make("sm90_attn_fwd_d64", False, tmp_path)
    case = this.case((130, 200, 1, 1), tmp_path, 0, 1)
    call = replace(case.calls[0], code=pack(this.ptx.encode(), tmp_path / "ptx.xz"))
    case = emulated(replace(case, calls=(call,)), tmp_path, [(this.kernel.code, this.kernel.recorder)])
    control = replace(case, name="control", group="control")
    made = list(mutants(this.kernel.code.kernel))
    texts = {"nothing": this.ptx}
    for name, family in (("hangs", "bytes halved"), ("wrong", "multiplication dropped")):
        m = next(m for m in made if m.family == family)
        texts[name] = planted(this.ptx, m.old, m.new, m.registers)
    texts["refused"] = this.ptx.replace("wgmma.fence.sync.aligned", "wgmma.unknown", 1)
    about = {"line": 0, "source": "", "text": "", "scheduler": "late", "remarks": "", "of": "control"}
    planted_cases = [
        replace(control, name=name, group="fault", calls=(replace(call, code=pack(text.encode(), tmp_path / f"{name}.xz")),),
                fault=about | {"family": name, "caught": [] if name in ("nothing", "wrong") else ["x"]})
        for name, text in texts.items()
    ]  # fmt: skip
    save_cases(tmp_path, [case, control, *planted_cases])
    assert load_cases(tmp_path)[0] == case
    monkeypatch.setattr(comparing, "MODULE", "tests.emulate.silicon_child")
    against = comparing.compare(tmp_path, tmp_path / "out", jobs=2, repeats=2, budget_s=200)
    found = json.loads((tmp_path / "out" / "results.json").read_text())["results"]
    assert found["nothing"]["ways"] == {"alone": "same", "crowded": "same"}
    assert [found[n]["ways"] for n in ("hangs", "wrong", "refused")] == [{"alone": "hang"}, {"alone": "wrong"}, {"last": "fault"}]
    o = found[case.name]["outputs"]["o"]
    assert o["equal"] == o["elements"] == 130 * 64
    assert against == 1
    assert "against the emulator: wrong\nnot run: nothing" in (tmp_path / "out" / "tables.md").read_text()
