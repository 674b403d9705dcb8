"""What an emitted file does in a period is what its schedule's program does; a file that was edited is told from it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from twill.build import BuildError
from twill.build.kernelfile import KernelFile, find, names, read
from twill.build.program import program_of, shipped_schedule
from twill.build.report import differences
from twill.build.roles import Event, RoleCode, seats, turning


def _edited(kernel: KernelFile, *changes: tuple[str, str]) -> KernelFile:
    text = kernel.text
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return replace(kernel, text=text)


@pytest.mark.parametrize("name", names())
def test_a_shipped_kernel_is_that_of_its_schedule(name: str) -> None:
    kernel = read(find(name))
    schedule = shipped_schedule(kernel)
    assert schedule is not None
    assert schedule.hash == kernel.schedule_hash
    program = program_of(schedule)
    places = seats(kernel)
    assert differences(places, program) == []
    if "_attn_bwd_" in name:
        assert [x for seat in places for x in seat.frame] == ["keys", "count_dq", "order_dq"]
        return
    assert [x for seat in places for x in seat.frame] == ["queries"]
    for seat in places:
        for code in seat.roles:
            assert len(code.skeleton) >= (5 if kernel.tiles == "sm90" else 4)
            if kernel.tiles == "sm90":
                assert {e.name for e in code.skeleton if e.kind == "wait"} <= {"K_full", "V_full", "K_empty", "V_empty"}


def _first(kernel: KernelFile) -> RoleCode:
    """The code of the first consumer."""
    return seats(kernel)[0].roles[0]


def _period(kernel: KernelFile) -> list[str]:
    """The lines of its period that do what the schedule says."""
    text = kernel.text[kernel.text.index(f"def {_first(kernel).name}_period") :]
    lines = text[: text.index("\n\n\n")].splitlines()[2:]
    return [x for x in lines if "tiles.peek" not in x and "tiles.advance" not in x]


def test_two_lines_of_a_period_swapped() -> None:
    kernel = read(find("sm90_attn_fwd_d128"))
    schedule = shipped_schedule(kernel)
    assert schedule is not None
    program = program_of(schedule)
    begin = kernel.text.index(f"def {_first(kernel).name}_period")
    before, period = kernel.text[:begin], kernel.text[begin:]
    changes = [
        replace(kernel, text=before + period.replace(f"{one}\n{other}\n", f"{other}\n{one}\n", 1))
        for one, other in itertools.pairwise(_period(kernel))
        if f"{one}\n{other}\n" in period[: period.index("\n\n\n")]
    ]
    assert len(changes) >= 8
    for changed in changes:
        problems = differences(seats(changed), program)
        assert [p.kind for p in problems] == ["program"] * len(_first(kernel).roles)
        assert f"role {_first(kernel).roles[0]} of the file does not go through " in problems[0].text


def test_other_roles() -> None:
    kernel = read(find("sm90_attn_fwd_d128"))
    schedule = shipped_schedule(kernel)
    assert schedule is not None
    program = dict(program_of(schedule))
    program["rescale"] = program.pop("load")
    (problem,) = differences(seats(kernel), program)
    assert "the file has roles" in problem.text


def test_seats() -> None:
    found = seats(read(find("sm90_attn_fwd_d64")))
    assert [x for s in found for code in s.roles for x in code.roles] == ["softmax_a", "softmax_b", "softmax_c", "load"]
    assert found[-1].registers == 32
    assert all(s.registers == 160 for s in found[:-1])


def test_unknown_operations_are_arithmetic_of_their_own_name() -> None:
    kernel = read(find("sm90_attn_fwd_d128"))
    line = _period(kernel)[0]
    changed = _edited(kernel, (f"{line}\n{_period(kernel)[1]}\n", f"    tiles.softcap(tile, i)\n{line}\n"))
    assert _first(changed).period[0] == Event("op", "softcap")


@pytest.mark.parametrize(
    ("old", "new"), [("ROLES = {", "RULES = {"), ("cute.arch.setmaxregister_increase", "print"), ("_period(", "_round(")]
)
def test_files_whose_roles_cannot_be_made_out(old: str, new: str) -> None:
    kernel = read(find("sm90_attn_fwd_d128"))
    assert old in kernel.text
    with pytest.raises(BuildError, match=r"role[\s\S]*next step: emit it with this version"):
        seats(replace(kernel, text=kernel.text.replace(old, new)))


def test_no_schedule_has_the_hash(tmp_path: Path) -> None:
    kernel = read(find("sm90_attn_fwd_d128"))
    path = tmp_path / "mine.py"
    path.write_text(kernel.text.replace(kernel.schedule_hash, "0" * 64))
    assert shipped_schedule(read(path)) is None


def test_mmas_that_run_round_the_loop() -> None:
    kernel = read(find("sm90_attn_fwd_d128"))
    assert turning(seats(kernel)) == ()
    begin = kernel.text.index(f"def {_first(kernel).name}_period")
    end = kernel.text.index("\n\n\n", begin)
    lines = kernel.text[begin:end].splitlines()
    without = "\n".join(x for x in lines if "tiles.wait_mma(" not in x)
    assert len(without.splitlines()) <= len(lines) - 2
    changed = kernel.text[:begin] + without + kernel.text[end:]
    assert turning(seats(replace(kernel, text=changed))) == _first(kernel).roles
    start = changed.index("    tiles.advance(i)", changed.index(f"def {_first(kernel).name}_period"))
    for pending, runs in (("0", ()), ("1", _first(kernel).roles)):
        waiting = f"{changed[:start]}    tiles.wait_mma({pending})\n{changed[start:]}"
        assert turning(seats(replace(kernel, text=waiting))) == runs
