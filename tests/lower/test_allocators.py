"""Named barriers and registers: what the hardware has, and a message where that is not enough."""

from __future__ import annotations

import pytest

from twill.errors import LowerError
from twill.lower.allocators import NamedBarriers, register_requests, warpgroups
from twill.model.machine import load_machine

FILE = load_machine("h200").registers


def test_fifteen_named_barriers() -> None:
    ids = NamedBarriers()
    assert [ids.take(f"b{n}") for n in range(15)] == list(range(1, 16))
    with pytest.raises(LowerError, match="no named barrier is left for one_more"):
        ids.take("one_more")


def test_roles_of_one_warp_share_a_warpgroup_and_its_request() -> None:
    warps = {"load": 1, "softmax": 4, "mma": 1}
    assert warpgroups(warps) == (("softmax",), ("load", "mma"))
    wanted = {"load": 24, "softmax": 240, "mma": 48}
    assert register_requests(warps, wanted, FILE) == {"load": 48, "softmax": 240, "mma": 48}


@pytest.mark.parametrize("ask", [20, 100, 264])
def test_requests_that_setmaxnreg_does_not_take(ask: int) -> None:
    with pytest.raises(LowerError, match=f"wants {ask} registers"):
        register_requests({"softmax": 4}, {"softmax": ask}, FILE)


def test_register_file() -> None:
    warps = {"a": 4, "b": 4, "load": 1}
    assert register_requests(warps, {"a": 240, "b": 240, "load": 32}, FILE)["load"] == 32
    with pytest.raises(LowerError, match="ask for 66560 registers in all; the register file holds 65536"):
        register_requests(warps, {"a": 240, "b": 240, "load": 40}, FILE)
