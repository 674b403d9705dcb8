"""What needs real processes: signals, orphans, terminals, pipes, start-up."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Spawn

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

SLOW = ("solve", "--arch", "sm90", "attn_bwd", "--head-dim", "64")
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid and fields[0] != "Z":
                    found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def worker_of(process: subprocess.Popen[str]) -> int:
    """The pid of the solver process, once it runs its own program: until then its parent cannot react to anything."""

    def workers() -> list[int]:
        return [pid for pid in children(process.pid) if b"worker.py" in (Path("/proc") / str(pid) / "cmdline").read_bytes()]

    assert wait_for(lambda: bool(workers()))
    return workers()[0]


def stopped_worker(process: subprocess.Popen[str]) -> int:
    """The same, but stopped, so that the solve never ends."""
    worker = worker_of(process)
    os.kill(worker, signal.SIGSTOP)
    return worker


def test_interrupt_leaves_no_orphan(spawn: Spawn, tmp_path: Path) -> None:
    process = spawn(*SLOW, "-o", tmp_path / "out.json")
    worker = stopped_worker(process)
    # the imports that go on meanwhile are no part of this test
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert (out, err) == ("", "twill: interrupted; nothing was written\n")
    assert not alive(worker)
    assert list(tmp_path.iterdir()) == []


def test_interrupt_early(spawn: Spawn) -> None:
    process = spawn(*SLOW)
    time.sleep(0.12)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode in (130, -signal.SIGINT), err


def test_killed_worker(spawn: Spawn, tmp_path: Path) -> None:
    process = spawn(*SLOW, "-o", tmp_path / "out.json")
    os.kill(stopped_worker(process), signal.SIGKILL)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 3
    assert out == ""
    assert err.startswith("twill: error: the solver process ended unexpectedly")
    assert "next step: " in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_killed_parent_leaves_no_orphan(spawn: Spawn) -> None:
    process = spawn(*SLOW)
    worker = worker_of(process)
    process.kill()
    process.wait()
    assert wait_for(lambda: not alive(worker), 10.0)


def in_terminal(*arguments: object, **environment: str) -> str:
    """What a command writes to a terminal of 100 columns."""
    master, slave = pty.openpty()
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm-256color", "COLUMNS": "100", **environment}
    process = subprocess.Popen(
        [sys.executable, "-m", "twill.cli", *(str(a) for a in arguments)], stdout=slave, stderr=slave, stdin=slave, env=env,
    )  # fmt: skip
    os.close(slave)
    seen = b""
    end = time.monotonic() + 30
    while time.monotonic() < end and select.select([master], [], [], 30)[0]:
        try:
            data = os.read(master, 1 << 16)
        except OSError:
            break
        if not data:
            break
        seen += data
        if b"solving" in seen:
            # a status line is up: this is what the test waits for
            process.terminate()
    os.close(master)
    if process.wait(timeout=30) not in (0, -signal.SIGTERM):
        raise AssertionError(seen.decode())
    return seen.decode()


def test_colour_only_in_terminals(spawn: Spawn, toy_file: Path) -> None:
    assert COLOUR.search(in_terminal("show", toy_file))
    assert not COLOUR.search(in_terminal("show", toy_file, NO_COLOR="1"))
    for command in (("show", toy_file), ("list",), ("solve", "toy"), ("explain", toy_file)):
        process = spawn(*command)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (0, "")
        assert "\x1b" not in out


def test_progress_in_terminals() -> None:
    assert "solving attn_bwd on h200" in in_terminal(*SLOW)


def test_reader_that_goes_away(spawn: Spawn) -> None:
    process = spawn("list")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.wait(timeout=20) in (0, 141)
    assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (("--help",), ("z3", "rich", "pydantic", "networkx", "twill.model.graph", "twill.solver")),
        (("list", "rules"), ("z3", "ortools")),
        (("schema",), ("z3", "rich", "networkx", "twill.solver")),
        (("check", "FILE"), ("z3", "rich", "twill.solver")),
        (("show", "FILE"), ("z3", "networkx", "twill.solver")),
        (("solve", "toy", "--json"), ("z3", "rich", "ortools")),
    ],
)
def test_imports_only_what_it_needs(toy_file: Path, arguments: tuple[str, ...], absent: tuple[str, ...]) -> None:
    argv = [str(toy_file) if a == "FILE" else a for a in arguments]
    code = f"import sys; from twill.cli.app import run; run({argv!r}); print(*sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert set(absent).isdisjoint(done.stderr.split())
