"""Launches that may run at the same time never share a counter; those that cannot share one, which is cleared once."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch

from twill.pytorch import counters
from twill.pytorch.counters import counter_of


@dataclass
class Machine:
    stream: int = 0
    capturing: bool = False
    made: int = 0
    questions: int = 0

    def asked(self) -> bool:
        self.questions += 1
        return self.capturing


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    here = Machine()

    def new(device: int) -> torch.Tensor:
        here.made += 1
        return torch.zeros(1, dtype=torch.int32)

    monkeypatch.setattr(counters, "_counters", {})
    monkeypatch.setattr(counters, "_new", new)
    monkeypatch.setattr(torch, "zeros", lambda *given, real=torch.zeros, device=None, **more: real(*given, **more))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: here.asked())
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: here.stream, raising=False)
    return here


def test_one_a_stream(machine: Machine) -> None:
    first = counter_of(0)
    assert counter_of(0) is first
    machine.stream = 7
    second = counter_of(0)
    assert second is not first
    machine.stream = 0
    assert counter_of(0) is first
    assert machine.made == 2


def test_one_a_device(machine: Machine) -> None:
    assert counter_of(0) is not counter_of(1)


def test_a_graph_gets_a_new_one_for_every_launch(machine: Machine) -> None:
    """It may be replayed while the stream that it was captured on is used again."""
    machine.stream = 7
    before = counter_of(0)
    machine.capturing = True
    inside = [counter_of(0), counter_of(0)]
    machine.capturing = False
    assert len({id(x) for x in (before, *inside)}) == 3
    assert counter_of(0) is before


def test_the_default_stream_is_never_captured(machine: Machine) -> None:
    """Which saves a question a call."""
    counter_of(0)
    assert machine.questions == 0
    machine.stream = 7
    counter_of(0)
    assert machine.questions == 1


def test_made_together_and_by_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """What PyTorch's compiler runs for the first time takes all memory of its thread from a graph's pool, where no counter may stay."""
    threads: list[int] = []
    real = counters._cleared

    def cleared(device: torch.device) -> list[torch.Tensor]:
        threads.append(threading.get_ident())
        return real(torch.device("cpu"))

    monkeypatch.setattr(counters, "_cleared", cleared)
    monkeypatch.setattr(counters, "_spare", {})
    made = [counters._new(0) for _ in range(counters.AT_ONCE)]
    assert len(threads) == 1 and threads[0] != threading.get_ident()
    counters._new(1)
    counters._new(0)
    assert len(threads) == 3
    places = sorted(x.data_ptr() for x in made)
    assert min(b - a for a, b in pairwise(places)) == 128
    assert all((x.shape, x.dtype, x.tolist()) == ((1,), torch.int32, [0]) for x in made)
