"""Single rules, each by the message that it is to give."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twill.check.protocol import ProtocolFinding, check_protocol
from twill.lower.program import Access, Instruction, Storage, Wait, WaitOwn, WarpProgram

from .programs import blackwell, blackwell_graph, hopper, hopper_graph


def _with_body(p: WarpProgram, role: str, change: dict[int, Instruction | None]) -> WarpProgram:
    roles = []
    for r in p.roles:
        body = [change.get(n, x) if r.name == role else x for n, x in enumerate(r.body)]
        roles.append(replace(r, body=tuple(x for x in body if x is not None)))
    return replace(p, roles=tuple(roles))


def _only(findings: tuple[ProtocolFinding, ...], rule: str) -> ProtocolFinding:
    assert {f.rule for f in findings} == {rule}, findings
    return findings[0]


def test_ring_reused_too_early_names_the_trip_count_that_shows_it() -> None:
    """The load of tile 3 waits for the release of tile -1 instead of 0."""
    p = _with_body(hopper(), "load", {0: Wait("K_empty", 0, 4)})
    found = [f for f in check_protocol(p, hopper_graph()).findings if f.rule == "race"]
    assert {(f.role, f.barrier, f.edge) for f in found} >= {("load", "K_empty", f"release K by QK_{x}") for x in "ab"}
    assert all("trip count 4" in f.message for f in found)


def test_wait_that_counts_wrong_only_in_the_prologue() -> None:
    """Without ``behind`` one group stays pending in period 0, and that is QK itself."""
    p = _with_body(hopper(), "softmax_a", {6: WaitOwn(1, 0)})
    found = _only(check_protocol(p, hopper_graph()).findings, "structure")
    assert found.role == "softmax_a"
    assert "period 0 of trip count 1" in found.message


def test_deadlock_names_everybody_on_the_cycle() -> None:
    p = _with_body(hopper(), "softmax_a", {1: Wait("turn_a", 0, 0)})
    found = _only(check_protocol(p, hopper_graph()).findings, "deadlock")
    assert set(found.role.split(", ")) == {"softmax_a", "softmax_b"}
    assert set(found.barrier.split(", ")) == {"turn_a", "turn_b"}


def test_wait_behind_what_needs_it() -> None:
    p = blackwell()
    body = p.roles[1].body
    found = check_protocol(_with_body(p, "mma", {2: body[3], 3: body[2]}), blackwell_graph()).findings
    # the dependence is not kept, and the accumulator is touched by both at once
    assert {f.rule for f in found} == {"edge", "race"}
    assert ("mma", "O_a_scaled", "edge RESC_a->PV_a0") in {(f.role, f.barrier, f.edge) for f in found}


def test_named_barrier_takes_no_arrival_before_the_wait() -> None:
    """As an mbarrier, a phase may collect arrivals early; a named barrier would count them for the phase before."""
    p = hopper()
    b = _with_body(p, "softmax_b", {1: None, 5: None})
    named = tuple(x for x in b.barriers if x.name != "turn_a")
    one_way = replace(_with_body(b, "softmax_a", {1: None}), barriers=named)
    waits = replace(one_way, roles=tuple(
        replace(r, body=(Wait("turn_b", 0, 0), *r.body)) if r.name == "softmax_b" else r for r in one_way.roles
    ))  # fmt: skip
    found = check_protocol(waits, hopper_graph()).findings
    assert any(f.rule == "phase" and f.barrier == "turn_b" for f in found)


@pytest.mark.parametrize("offset", [256, 320])
def test_overlaid_scores(offset: int) -> None:
    """The scores of one sub-tile over those of the other: nothing keeps their lives apart."""
    p = blackwell()
    storage = tuple(replace(s, offset=offset) if s.name == "SP_b" else s for s in p.storage)
    found = check_protocol(replace(p, storage=storage), blackwell_graph()).findings
    assert any("addresses that SP_" in f.message and "share" in f.message for f in found)


def test_overlay_that_is_kept_apart_passes() -> None:
    """A second statistics slot at the same address, written and read inside the life of no other."""
    p = hopper()
    extra = (Storage("first", "smem", 229376, 512, 1, False), Storage("second", "smem", 229376, 512, 1, False))
    roles = []
    for r in p.roles:
        body = []
        for x in r.body:
            match getattr(x, "op", ""):
                case "MAX_a":
                    x = replace(x, accesses=(Access("first", "write"),))
                case "EXP_a":
                    x = replace(x, accesses=(Access("first", "read"),))
                case "SUM_a":
                    x = replace(x, accesses=(Access("second", "write"),))
                case "CVT_a":
                    x = replace(x, accesses=(Access("second", "read"),))
            body.append(x)
        roles.append(replace(r, body=tuple(body)))
    fine = replace(p, roles=tuple(roles), storage=(*p.storage, *extra))
    assert check_protocol(fine, hopper_graph()).ok
    swapped = [replace(x, accesses=(Access("first", "read"),)) if getattr(x, "op", "") == "CVT_a" else x for x in roles[1].body]
    clobbered = replace(fine, roles=(roles[0], replace(roles[1], body=tuple(swapped)), roles[2]))
    assert any(f.rule == "race" for f in check_protocol(clobbered, hopper_graph()).findings)
