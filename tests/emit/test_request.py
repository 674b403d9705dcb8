"""What cannot be emitted is refused with its reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from twill.check import checked
from twill.cli.app import run
from twill.cli.files import read_schedule
from twill.cli.request import machine_of_schedule
from twill.emit.emitter import emit, request_of
from twill.emit.errors import EmitError
from twill.lower import Arrive, Execute, lower


def _case(name: str = "sm90_attn_fwd_d128") -> tuple[Any, Any]:
    schedule = read_schedule(name)
    found = checked(schedule, machine_of_schedule(schedule.machine.name, None))
    return found, lower(found)


def _with(found: Any, **parameters: str) -> Any:
    """The case with other parameters in its graph, unchecked."""
    graph = found.schedule.graph
    changed = graph.model_copy(update={"parameters": {**graph.parameters, **parameters}})
    return SimpleNamespace(schedule=found.schedule.model_copy(update={"graph": changed}), machine=found.machine)


@pytest.mark.parametrize("name", ["sm100_attn_bwd_d64"])
def test_other_graphs_and_machines(name: str) -> None:
    found, program = _case(name)
    with pytest.raises(EmitError, match=f"no emitter for graph {found.schedule.graph.name} on {found.machine.name}"):
        request_of(found, program)


def test_p_and_ds_through_smem() -> None:
    with pytest.raises(EmitError, match="P and dS through SMEM cannot be emitted yet"):
        request_of(*_case("sm90_attn_bwd_d256"))


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"poly_share": "0.125"}, "exponentials by polynomials are not emitted for sm90 yet"),
        ({"tile": "384x80"}, "sub-tiles of 128 rows: a warpgroup here has 64"),
        ({"head_dim": "76"}, "head dims 76 and 128 are not multiples of 8"),
    ],
)
def test_parameters(parameters: dict[str, str], reason: str) -> None:
    found, program = _case("sm90_attn_fwd_d192_dv128")
    with pytest.raises(EmitError, match=reason):
        request_of(_with(found, **parameters), program)


def test_a_program_of_another_schedule() -> None:
    found, _ = _case()
    _, program = _case("sm90_attn_fwd_d64")
    with pytest.raises(EmitError, match="the program is of schedule"):
        request_of(found, program)


def test_exponentials_ahead_of_maxima_on_blackwell() -> None:
    found, program = _case("sm100_attn_fwd_d128")
    with pytest.raises(EmitError, match="rescale policy old_max cannot be emitted for sm100 yet"):
        request_of(_with(found, rescale="old_max"), program)


def test_exponentials_behind_their_maxima() -> None:
    """A schedule of another policy, said to be of old_max: its maxima come first."""
    found, program = _case("sm90_attn_fwd_d128")
    with pytest.raises(EmitError, match="takes the maxima of exponentials of another period"):
        emit(_with(found, rescale="old_max"), program, "a test")


def test_o_that_does_not_fit_in_the_place_of_q() -> None:
    found, program = _case("sm100_attn_fwd_d256")
    with pytest.raises(EmitError, match="head dim of V 256 is larger than that of Q 192"):
        request_of(_with(found, head_dim="192"), program)


def _moved(program: Any, op: str, to: str) -> Any:
    """The program with an op in another role, unchecked."""
    moving = next(x for r in program.roles for x in r.body if isinstance(x, Execute) and x.op == op)
    roles = (replace(r, body=(*(x for x in r.body if x != moving), *([moving] if r.name == to else []))) for r in program.roles)
    return replace(program, roles=tuple(roles))


@pytest.mark.parametrize(
    ("op", "to", "reason"),
    [
        ("SUM_a", "softmax_b", "the softmax of sub-tile 0 is split between roles"),
        ("RESC_a", "mma", "role mma issues MMAs and does other work beside"),
        ("PV_b1", "load", "role load issues MMAs and does other work beside"),
    ],
)
def test_roles_that_no_tile_operation_can_fill_on_blackwell(op: str, to: str, reason: str) -> None:
    found, program = _case("sm100_attn_fwd_d128")
    request_of(found, program)
    with pytest.raises(EmitError, match=reason):
        request_of(found, _moved(program, op, to))


def test_who_waits_at_a_named_barrier_arrives_just_before() -> None:
    found, program = _case("sm100_attn_fwd_d128")
    roles = []
    for r in program.roles:
        arrivals = [x for x in r.body if isinstance(x, Arrive) and x.barrier == "MAX_b_to_RESC_b" and r.name == "rescale"]
        roles.append(replace(r, body=(*arrivals, *(x for x in r.body if x not in arrivals))))
    with pytest.raises(EmitError, match="role rescale arrives at MAX_b_to_RESC_b long before it waits there"):
        request_of(found, replace(program, roles=tuple(roles)))


def test_conditional_rescaling_on_blackwell(tmp_path: Path) -> None:
    to = tmp_path / "k.py"
    assert run(["emit", "--arch", "sm100", "attn_fwd", "--head-dim", "72", "--set", "rescale=conditional", "-o", str(to)]) == 0
    text = to.read_text(encoding="utf-8")
    assert "tiles.rescale_if_grown(" in text
    assert "tiles.rescale(" not in text
    assert text.count("keep=8.0") == 2
    assert "tiles.Tiles(head_dim=72, head_dim_v=72, keys=128, subtiles=2, chunks=(96, 32), poly_share=0.3125)" in text
    assert 'Q_full": tiles.RingShape(slots=2, arrivals=1, tx_bytes=20480)' in text


def test_a_graph_is_solved_and_emitted_in_one_go(tmp_path: Path) -> None:
    """Head dims between the usual ones: tiles are as wide as the MMA wants them, tensors as wide as they are."""
    to = tmp_path / "k.py"
    assert run(["emit", "--arch", "sm90", "attn_fwd", "--head-dim", "72", "-o", str(to)]) == 0
    text = to.read_text(encoding="utf-8")
    assert "Command:   twill emit --arch sm90 attn_fwd --head-dim 72\n" in text
    assert "tiles.Tiles(head_dim=72, head_dim_v=72," in text
    assert "tiles.RingShape(slots=3, arrivals=1, tx_bytes=10240)" in text


def test_a_schedule_is_not_changed_by_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["emit", "sm90_attn_fwd_d128", "--head-dim", "64"]) == 2
    assert "--head-dim would change the schedule" in capsys.readouterr().err


def test_the_command_line_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["emit", "sm100_attn_bwd_d64"]) == EmitError.exit_code == 1
    error = capsys.readouterr().err
    assert "no emitter for graph attn_bwd" in error
    assert "next step" in error
