"""Fixtures of the command-line tests: a runner in this process, and inputs to break."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from twill.cli.app import run
from twill.model.graphs.toy import toy
from twill.model.machine import load_machine
from twill.model.schedule import Schedule
from twill.solver.solve import solve


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


Twill = Callable[..., Result]
Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def twill(capsys: pytest.CaptureFixture[str]) -> Twill:
    """Run one command line in this process."""

    def call(*arguments: object) -> Result:
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def spawn() -> Any:
    """Start a command line as a process of its own, which does not outlive the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "twill.cli", *(str(a) for a in arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, **environment}, start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def toy_schedule() -> Schedule:
    machine = load_machine("toy")
    return solve(toy(machine), machine, command="twill solve toy").schedules[0]


@pytest.fixture
def toy_file(toy_schedule: Schedule, tmp_path: Path) -> Path:
    path = tmp_path / "toy.json"
    path.write_text(toy_schedule.to_json())
    return path


@pytest.fixture
def toy_graph() -> dict[str, Any]:
    """The toy graph as JSON data, to be changed."""
    data: dict[str, Any] = json.loads(toy(load_machine("toy")).to_json())
    return data
