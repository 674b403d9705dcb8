"""``twill build`` from the command line."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from twill.build.kernelfile import find, read
from twill.build.roles import seats
from twill.cli.app import run

INSTALLED = all(importlib.util.find_spec(name) is not None for name in ("cutlass", "tvm_ffi", "filelock"))
needs_compiler = pytest.mark.skipif(not INSTALLED, reason="the extra 'kernels' is not installed")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "one kernel or --all is to be built"),
        (["sm90_attn_fwd_d128", "--all"], "one kernel or --all is to be built"),
        (["--all", "--schedule", "sm90_attn_fwd_d128"], "--schedule is of one kernel"),
        (["sm90_attn_fwd_d128", "--dtype", "fp8"], "there is no element type fp8"),
        (["sm90_attn_fwd_d1280"], "there is no shipped kernel"),
        (["nowhere.cubin"], "there is no file 'nowhere.cubin'"),
        (["sm90_attn_fwd_d128", "--arch", "sm_80"], "is written for sm_90a, not for sm_80"),
    ],
)
def test_bad_command_lines(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["build", *arguments]) in (1, 2)
    error = capsys.readouterr().err
    assert reason in error
    assert "next step" in error


@needs_compiler
def test_report_files_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["build", "sm90_attn_fwd_d64", "--dtype", "fp16", "--lse", "--cache", str(tmp_path / "cache")]
    assert run([*common, "-o", str(tmp_path / "kept"), "--report"]) == 0
    text = capsys.readouterr().out
    assert "sm90_attn_fwd_d64, fp16-lse, sm_90a" in text
    assert "0 bytes of stack, 0 of local memory" in text
    for word in ("wait K_full", "QK", "wait own MMAs, 1 pending", "arrive V_empty", "EXP", "LK"):
        assert word in text
    kept = sorted(p.name for p in (tmp_path / "kept").iterdir())
    assert kept == ["libraries.json", *(f"sm90_attn_fwd_d64-fp16-lse.{end}" for end in ("cubin", "ptx", "so"))]

    assert run([*common, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["kernel"], data["variant"], data["problems"]) == ("sm90_attn_fwd_d64", "fp16-lse", [])
    codes = {code.name for seat in seats(read(find("sm90_attn_fwd_d64"))) for code in seat.roles}
    assert {x["role"] for x in data["loops"]} == codes

    cubin = tmp_path / "kept" / "sm90_attn_fwd_d64-fp16-lse.cubin"
    assert run(["build", str(cubin), "--json"]) == 0
    (counted,) = json.loads(capsys.readouterr().out)
    assert counted["instructions"] == data["instructions"]
    of_roles = {x["turn"]["address"]: x["turn"] for x in data["loops"]}
    assert of_roles.items() <= {x["address"]: x for x in counted["turns"]}.items()
    assert run(["build", str(cubin)]) == 0
    assert "bytes of stack" in capsys.readouterr().out

    assert run([*common, "--schedule", "sm90_attn_fwd_d128"]) == 2
    assert "was emitted from schedule" in capsys.readouterr().err


@needs_compiler
def test_a_problem_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An edited file that compiles well, but is not what its schedule says."""
    text = find("sm90_attn_fwd_d128").read_text()
    code = seats(read(find("sm90_attn_fwd_d128")))[0].roles[0]
    one = text.index("    tiles.wait", text.index(f"def {code.name}_period"))
    other = text.index("    tiles.", text.index("\n", one))
    end = text.index("    tiles.", text.index("\n", other))
    path = tmp_path / "edited.py"
    path.write_text(text[:one] + text[other:end] + text[one:other] + text[end:])
    assert run(["build", str(path), "--cache", str(tmp_path / "cache")]) == 1
    error = capsys.readouterr().err
    assert "edited (bf16): role softmax_a of the file does not go through" in error
    assert "next step: emit the kernel again from this schedule" in error
