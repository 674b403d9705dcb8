"""What an emitted file does in a period is what its schedule's program does; a file that was edited is told from it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from twill.build.kernelfile import KernelFile, find, names, read
from twill.build.program import program_of, shipped_schedule
from twill.build.report import differences
from twill.build.roles import Event, seats


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
    for seat in places:
        for role in seat.roles:
            assert len(role.skeleton) >= 6
            assert {e.name for e in role.skeleton if e.kind == "wait"} <= {"K_full", "V_full", "K_empty", "V_empty"}


def _period(kernel: KernelFile, role: str) -> list[str]:
    """The lines of a role's period."""
    text = kernel.text[kernel.text.index(f"def {role}_period") :]
    return text[: text.index("\n\n\n")].splitlines()[2:]


def test_two_lines_of_a_period_swapped() -> None:
    kernel = read(find("sm90_attn_fwd_d128"))
    schedule = shipped_schedule(kernel)
    assert schedule is not None
    program = program_of(schedule)
    lines = _period(kernel, "softmax_a")
    for one, other in itertools.pairwise(lines):
        changed = _edited(kernel, (f"{one}\n{other}\n", f"{other}\n{one}\n"))
        (problem,) = differences(seats(changed), program)
        assert problem.kind == "program"
        assert "role softmax_a of the file does not go through" in problem.text


def test_a_role_more() -> None:
    kernel = read(find("sm90_attn_fwd_d128"))
    schedule = shipped_schedule(kernel)
    assert schedule is not None
    program = dict(program_of(schedule))
    program["rescale"] = program.pop("load")
    (problem,) = differences(seats(kernel), program)
    assert "the file has roles" in problem.text


def test_seats_and_unknown_operations() -> None:
    kernel = read(find("sm90_attn_fwd_d64"))
    assert [(s.registers, [r.name for r in s.roles]) for s in seats(kernel)] == [
        (160, ["softmax_a"]), (160, ["softmax_b"]), (160, ["softmax_c"]), (24, ["load"]),
    ]  # fmt: skip
    line = _period(kernel, "softmax_a")[0]
    changed = _edited(kernel, (f"{line}\n{_period(kernel, 'softmax_a')[1]}\n", f"    tiles.softcap(tile_a, n)\n{line}\n"))
    first = seats(changed)[0].roles[0].period[0]
    assert first == Event("op", "softcap_a")


def test_no_schedule_has_the_hash(tmp_path: Path) -> None:
    kernel = read(find("sm90_attn_fwd_d128"))
    path = tmp_path / "mine.py"
    path.write_text(kernel.text.replace(kernel.schedule_hash, "0" * 64))
    assert shipped_schedule(read(path)) is None
