"""An emitted file does what its WarpProgram says, instruction by instruction, for every trip count."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import product
from operator import sub
from pathlib import Path
from types import SimpleNamespace

import pytest

from twill.check import CheckedSchedule, checked
from twill.cli.files import read_schedule
from twill.cli.request import machine_of_schedule
from twill.emit.emitter import emit
from twill.emit.errors import EmitError
from twill.lower import Arrive, Execute, Role, Wait, WarpProgram, lower

from . import replay

HERE = Path(__file__).parent
SHIPPED = tuple(f"sm90_attn_fwd_{dims}" for dims in ("d64", "d96", "d128", "d192_dv128", "d256"))
BLACKWELL = tuple(f"{arch}_attn_fwd_{dims}" for arch in ("sm100", "sm103") for dims in ("d64", "d96", "d128", "d192_dv128", "d256"))
OTHERS = tuple(str(p) for p in sorted((HERE / "schedules").glob("*.json")))
"""Other legal schedules of d 128: one iteration in flight; three warpgroups with conditional rescaling, as solved and in FA3's order."""
TRIPS = range(8)


@cache
def case(name: str) -> tuple[CheckedSchedule, WarpProgram, str]:
    schedule = read_schedule(name)
    found = checked(schedule, machine_of_schedule(schedule.machine.name, None))
    program = lower(found)
    return found, program, emit(found, program, "a test")


def expected(role: Role, trips: int) -> list[replay.Event]:
    """The trace of a role in the words of the recorder."""
    events: list[replay.Event] = []
    for x, iteration in role.trace(trips):
        if isinstance(x, Execute):
            events.append(("op", x.op, iteration))
        elif isinstance(x, Wait):
            events.append(("wait", x.barrier, iteration - x.distance))
        elif isinstance(x, Arrive):
            events.append(("arrive", x.barrier, iteration))
        else:
            events.append(("wait_mma", x.pending))
    return events


def _of_the_program(events: list[replay.Event]) -> list[replay.Event]:
    """Without what a work tile adds around the loop."""
    return [e for e in events if e[0] not in ("commit_slot", "finish")]


@pytest.mark.parametrize("name", (*SHIPPED, *BLACKWELL, *OTHERS))
def test_every_role_executes_its_trace(name: str) -> None:
    _, program, text = case(name)
    emitted = replay.load(text)
    for role in program.roles:
        for trips in TRIPS:
            assert _of_the_program(emitted.run(role.name, trips).events) == expected(role, trips), (role.name, trips)


@pytest.mark.parametrize("name", (*SHIPPED, *BLACKWELL, *OTHERS))
@pytest.mark.parametrize("causal", [False, True])
def test_masked_iterations_are_masked(name: str, causal: bool) -> None:
    """A tile that needs a mask gets one; in the steady state no other pays for it."""
    _, program, text = case(name)
    emitted = replay.load(text)
    for role in program.roles:
        for trips in TRIPS:
            for masked in range(1, trips + 1) if causal else (1,):
                recorder = emitted.run(role.name, trips, masked, causal)
                assert _of_the_program(recorder.events) == expected(role, trips)
                late = [i for i, m in recorder.masked if m]
                assert set(range(masked)) & {i for i, _ in recorder.masked} <= set(late)
                assert len(set(late) - set(range(masked))) <= role.stages


@pytest.mark.parametrize("name", SHIPPED)
def test_iterations_without_a_key_are_passed_over(name: str) -> None:
    """A sub-tile that sees no key of the last tiles hands them back, and then does all the rest."""
    _, program, text = case(name)
    emitted = replay.load(text)
    for role in program.roles:
        if role.warps < 4:
            continue
        passed = [e for e in expected(role, 1) if e[0] in ("wait", "arrive")]
        assert {e[0] for e in passed} == {"wait", "arrive"}
        for trips, skipped in product(TRIPS, (1, 2, 3)):
            recorder = emitted.run(role.name, trips, causal=True, skipped=skipped)
            over = [(*e[:2], e[2] + k) for k in range(skipped) for e in passed]
            rest = [(*e[:2], e[2] + skipped) if e[0] in ("wait", "arrive", "op") else e for e in expected(role, trips)]
            assert _of_the_program(recorder.events) == over + rest, (role.name, trips, skipped)


def _behind(events: list[replay.Event], by: int) -> list[replay.Event]:
    return [(*e[:2], e[2] + by) if e[0] in ("wait", "arrive", "op") else e for e in events]


@pytest.mark.parametrize("name", [name for name in SHIPPED if "d64" not in name])
def test_work_tiles_run_into_one_another(name: str) -> None:
    """The first QK of the next flies beside the last PV of the one before, O is stored between the waits for them; where either has no
    iteration, or too many are passed over, one ends before the other begins."""
    _, program, text = case(name)
    emitted = replay.load(text)
    for role in program.roles:
        if role.warps < 4:
            continue
        passed = [e for e in expected(role, 1) if e[0] in ("wait", "arrive")]
        for one, other, skipped in product(TRIPS, TRIPS, range(5)):
            works = [SimpleNamespace(trips=one, masked=1, skipped=0), SimpleNamespace(trips=other, masked=1, skipped=skipped)]
            found = emitted.run_all(role.name, works, causal=True).events
            over = [e for k in range(skipped) for e in _behind(passed, one + k)]
            before, after = expected(role, one), _behind(expected(role, other), one + skipped)
            if one and other and skipped < emitted.names["STORAGE"]["V"].stages:
                end = max(k for k, e in enumerate(before) if e[0] == "wait_mma")
                begin = min(k for k, e in enumerate(after) if e[0] == "wait_mma")
                assert before[end] == after[begin] == ("wait_mma", 0)
                both = [*before[:end], *over, *after[:begin], ("wait_mma", 1), *before[end + 1 :], ("finish",), *after[begin:]]
            else:
                both = [*before, ("finish",), *over, *after]
            assert found == [*both, ("finish",)], (role.name, one, other, skipped)


@pytest.mark.parametrize("name", (*SHIPPED, *OTHERS))
def test_storage_and_barriers_are_those_of_the_program(name: str) -> None:
    _, program, text = case(name)
    names = replay.load(text).names
    placed = {k: (b.offset, b.stride, b.stages) for k, b in names["STORAGE"].items()}
    end = max(s.offset + s.stride * s.stages for s in program.storage)
    if all(s.name != "O_staging" for s in program.storage) and "O_staging" in placed:
        assert placed.pop("O_staging")[0] >= end
    assert placed == {s.name: (s.offset, s.stride, s.stages) for s in program.storage}
    rings = {k: (b.slots, b.arrivals, getattr(b, "tx_bytes", 0)) for k, b in names["BARRIERS"].items()}
    tiles, warps = names["TILES"], sum(r.warps for r in program.roles)
    assert {name: rings.pop(name) for name in ("Q_full", "Q_empty", "work_full", "work_empty")} == {
        "Q_full": (tiles.subtiles, 1, 64 * tiles.head_dim * 2),
        "Q_empty": (tiles.subtiles, 4, 0),
        "work_full": (2, 1, 0),
        "work_empty": (2, warps, 0),
    }
    assert rings == {b.name: (b.slots, b.arrivals, b.tx_bytes) for b in program.barriers}
    for b in program.barriers:
        assert "; ".join(b.guards) in text


@pytest.mark.parametrize("name", BLACKWELL)
def test_tensor_memory_and_barriers_are_those_of_the_program(name: str) -> None:
    found, program, text = case(name)
    names = replay.load(text).names
    placed = {k: (b.offset, b.stride, b.stages) for k, b in {**names["STORAGE"], **names["COLUMNS"]}.items()}
    frame, totals = placed.pop("frame"), placed.pop("totals")
    assert placed == {s.name: (s.offset, s.stride, s.stages) for s in program.storage}
    assert names["COLUMNS"].keys() == {s.name for s in program.storage if s.memory == "tmem"}
    capacity = found.machine.memory_size("smem")
    slots = [s.offset for s in program.storage if s.memory == "smem" and s.offset > frame[0]]
    assert frame[0] == capacity - found.schedule.graph.reserved["smem"]
    assert frame[0] + frame[1] == min(slots)
    assert max(slots) + 512 == totals[0]
    assert totals[0] + totals[1] * totals[2] <= capacity
    rings = {k: (b.slots, b.arrivals, getattr(b, "tx_bytes", 0)) for k, b in names["BARRIERS"].items() if hasattr(b, "slots")}
    tiles, staged = names["TILES"], "O_staging" in placed
    around = ("Q_full", "Q_empty", "O_full", "O_empty", "totals_full", "totals_empty", "tmem_empty", "work_full", "work_empty")
    assert {n: rings.pop(n) for n in around} == {
        "Q_full": (tiles.subtiles, 1, 128 * tiles.head_dim * 2),
        "Q_empty": (tiles.subtiles, 1 if staged else 4, 0),
        "O_full": (tiles.subtiles, 1, 0),
        "O_empty": (tiles.subtiles, 4, 0),
        "totals_full": (tiles.subtiles, 4, 0),
        "totals_empty": (tiles.subtiles, 4, 0),
        "tmem_empty": (1, 4, 0),
        "work_full": (2, 1, 0),
        "work_empty": (2, sum(r.warps for r in program.roles), 0),
    }
    assert rings == {b.name: (b.slots, b.arrivals, b.tx_bytes) for b in program.barriers if b.kind == "mbarrier"}
    named = {k: (b.number, b.threads) for k, b in names["BARRIERS"].items() if hasattr(b, "number")}
    assert named == {b.name: (b.named_id, 32 * b.arrivals) for b in program.barriers if b.kind == "named"}


@pytest.mark.parametrize("name", BLACKWELL)
def test_q_and_o_are_released_behind_the_mmas_that_use_them(name: str) -> None:
    """For every number of iterations, one release of Q and one news of O a sub-tile, behind the last MMA that uses them."""
    text = case(name)[2]
    emitted = replay.load(text)
    for trips in TRIPS:
        recorder = emitted.run("mma", trips)
        said = [e for e in recorder.events if e[0] == "op" or e[0] == "commit_slot"]
        for subtile in range(emitted.names["TILES"].subtiles):
            for ring, op in (("O_full", "PV"), ("Q_empty", "QK")):
                at = [k for k, e in enumerate(said) if e == ("commit_slot", ring, subtile)]
                assert len(at) == (1 if ring == "O_full" or "O_staging" in emitted.names["STORAGE"] else 0)
                mmas = [k for k, e in enumerate(said) if e[0] == "op" and e[1].startswith(f"{op}_{'abc'[subtile]}")]
                assert all(k < a for k in mmas for a in at)


@pytest.mark.parametrize("name", (*SHIPPED, *OTHERS))
def test_registers_are_those_that_the_block_was_launched_with(name: str) -> None:
    _, program, text = case(name)
    seats = re.findall(r"setmaxregister_(increase|decrease)\((\d+)\)", text)
    granted = [int(r) for _, r in seats]
    threads = int(re.findall(r"block=\((\d+), 1, 1\)", text)[0])
    ends = [int(w) for w in re.findall(r"if block.warp < (\d+):", text)] + [threads // 32]
    granted = [g for g, n in zip(granted, map(sub, ends, [0, *ends]), strict=True) for _ in range(n // 4)]
    at_launch = 65536 // threads // 8 * 8
    assert 128 * sum(granted) <= at_launch * threads
    wanted = [r.registers_per_thread for r in program.roles if r.warps == 4]
    assert all(g >= w for g, w in zip(granted, wanted, strict=False))
    assert all((kind == "increase") == (int(g) > at_launch) for kind, g in seats)


def test_roles_of_many_stages_have_code_for_short_loops() -> None:
    """The row sum two iterations late: three copies of the scores, and trip counts below the depth of the pipeline."""
    found, program, _ = case("sm90_attn_fwd_d128")
    late = []
    for role in program.roles:
        body = [x for x in role.body if not (isinstance(x, Execute) and x.op == "SUM_a")]
        if len(body) < len(role.body):
            body.append(Execute("SUM_a", 2))
        late.append(replace(role, body=tuple(body)))
    changed = replace(program, roles=tuple(late))
    text = emit(found, changed, "a test")
    assert "if work.trips == 1:" in text
    assert "tiles.consumer(block, subtile=0, keep=8.0, scores=3, factors=3)" in text
    emitted = replay.load(text)
    for role in changed.roles:
        for trips in TRIPS:
            assert _of_the_program(emitted.run(role.name, trips).events) == expected(role, trips), (role.name, trips)


def test_two_copies_of_p_are_refused() -> None:
    found, program, _ = case("sm90_attn_fwd_d128")
    roles = []
    for role in program.roles:
        pv = [x for x in role.body if isinstance(x, Execute) and x.op == "PV_a"]
        body = tuple(replace(x, stage=x.stage + 2) if x in pv else x for x in role.body)
        roles.append(replace(role, body=body))
    with pytest.raises(EmitError, match="two copies of P are not emitted yet"):
        emit(found, replace(program, roles=tuple(roles)), "a test")


def test_same_input_same_bytes() -> None:
    found, program, text = case("sm90_attn_fwd_d128")
    assert emit(found, program, "a test") == text
    assert found.schedule.hash in text
    assert "Command:   a test" in text


def test_two_schedules_of_one_graph_give_two_orders() -> None:
    bodies = set()
    for name in ("sm90_attn_fwd_d128", *(n for n in OTHERS if "one_copy" in n)):
        text = case(name)[2]
        bodies.add(re.search(r"def softmax(_a)?_period.*?@cute", text, re.S).group(0))  # type: ignore[union-attr]
    assert len(bodies) == 2
