"""Where a period is cut changes nothing about the trace, and the cut that is taken has the fewest stages of all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twill.emit.rotation import _in_flight, rotated
from twill.lower import Arrive, Execute, Instruction, Role, Wait, WaitOwn

INSTRUCTIONS = st.one_of(
    st.builds(Execute, st.sampled_from(["QK_a", "MAX_a", "PV_a"]), st.integers(0, 3)),
    st.builds(Wait, st.just("K_full"), st.integers(0, 3), st.integers(0, 2)),
    st.builds(Arrive, st.just("K_empty"), st.integers(0, 3), st.just(4)),
    st.builds(lambda stage, behind: WaitOwn(len(behind), stage, tuple(behind)), st.integers(0, 3), st.lists(st.integers(0, 3), max_size=2)),
)
MMAS = frozenset({"QK_a", "PV_a"})


def _plain(x: Instruction, iteration: int) -> tuple[object, ...]:
    """An instruction without the number of its stage."""
    match x:
        case Execute():
            return ("op", x.op, iteration)
        case Wait():
            return ("wait", x.barrier, iteration - x.distance)
        case Arrive():
            return ("arrive", x.barrier, iteration)
        case WaitOwn():
            return ("own", x.pending, iteration)


@given(st.lists(INSTRUCTIONS, min_size=1, max_size=8).map(tuple))
def test_the_trace_stays(body: tuple[Instruction, ...]) -> None:
    role = Role("softmax_a", 4, 192, body)
    turned = rotated(role, MMAS)
    assert turned.stages <= role.stages or min(x.stage for x in body) > 0 or _in_flight(role, MMAS) > _in_flight(turned, MMAS) == 0
    for trips in range(7):
        assert [_plain(*x) for x in turned.trace(trips)] == [_plain(*x) for x in role.trace(trips)]


def test_a_period_that_ends_with_qk_begins_with_it() -> None:
    body = (Execute("PV_a", 2), WaitOwn(0, 2), Execute("MAX_a", 1), Execute("QK_a", 0))
    turned = rotated(Role("softmax_a", 4, 192, body), MMAS)
    assert turned.stages == 2
    assert [x.stage for x in turned.body if isinstance(x, Execute)] == [0, 1, 0]
    assert turned.body[0] == Execute("QK_a", 0)
