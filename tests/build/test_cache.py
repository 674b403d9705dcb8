"""The cache makes an entry once, notices damage, and keeps processes out of each other's way."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from twill.build.cache import entry, key_of, place
from twill.build.errors import BuildError

PARTS = {"kernel": "abc", "arch": "sm_90a"}


def _maker(content: str, calls: list[str]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        calls.append(content)
        (folder / "kernel.so").write_text(content)
        (folder / "kernel.ptx").write_text("ptx of " + content)

    return make


@pytest.fixture(autouse=True)
def _needs_filelock() -> None:
    pytest.importorskip("filelock")


def test_made_once(tmp_path: Path) -> None:
    calls: list[str] = []
    first = entry(tmp_path, PARTS, _maker("one", calls))
    second = entry(tmp_path, PARTS, _maker("two", calls))
    assert (first, calls) == (second, ["one"])
    assert (first / "kernel.so").read_text() == "one"


def test_every_part_counts(tmp_path: Path) -> None:
    calls: list[str] = []
    entry(tmp_path, PARTS, _maker("one", calls))
    for name in PARTS:
        entry(tmp_path, {**PARTS, name: "other"}, _maker(name, calls))
    assert calls == ["one", *PARTS]
    assert key_of({"a": "1", "b": "2"}) == key_of({"b": "2", "a": "1"}) != key_of({"a": "2", "b": "1"})


def _flip(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"!")


@pytest.mark.parametrize(
    "damage",
    [
        lambda e: _flip(e / "kernel.so"),
        lambda e: (e / "kernel.so").write_text(""),
        lambda e: (e / "kernel.ptx").unlink(),
        lambda e: (e / "manifest.json").unlink(),
        lambda e: (e / "manifest.json").write_text("{"),
        lambda e: (e / "manifest.json").write_text('{"files": {}}'),
        lambda e: (e / "manifest.json").write_text("[]"),
    ],
    ids=["a byte changed", "emptied", "a file lost", "no manifest", "half a manifest", "a manifest of nothing", "another manifest"],
)
def test_a_damaged_entry_is_made_again(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    calls: list[str] = []
    first = entry(tmp_path, PARTS, _maker("one", calls))
    damage(first)
    second = entry(tmp_path, PARTS, _maker("two", calls))
    assert calls == ["one", "two"]
    assert (second / "kernel.so").read_text() == "two"
    assert sorted(p.name for p in tmp_path.iterdir()) == [key_of(PARTS), key_of(PARTS) + ".lock"]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "kernel.so").write_text("half")
        raise BuildError("the compiler gave up")

    with pytest.raises(BuildError, match="gave up"):
        entry(tmp_path, PARTS, make)
    assert [p.name for p in tmp_path.iterdir()] == [key_of(PARTS) + ".lock"]


CHILD = """
    import os, sys, time
    from pathlib import Path
    from twill.build.cache import entry
    folder, mode = Path(sys.argv[1]), sys.argv[2]
    def make(draft):
        with (folder / "log").open("a") as log:
            log.write(f"{os.getpid()} begins\\n")
        (draft / "kernel.so").write_text(str(os.getpid()))
        (folder / "made").touch()
        time.sleep(60 if mode == "hang" else 1)
        with (folder / "log").open("a") as log:
            log.write(f"{os.getpid()} ends\\n")
    print(entry(folder / "cache", {"kernel": "abc"}, make))
"""


def _start(folder: Path, mode: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(CHILD), str(folder), mode], stdout=subprocess.PIPE, text=True)


def test_two_processes_at_once_make_it_once(tmp_path: Path) -> None:
    both = [_start(tmp_path), _start(tmp_path)]
    found = {p.communicate(timeout=60)[0] for p in both}
    assert [p.returncode for p in both] == [0, 0]
    assert len(found) == 1
    log = (tmp_path / "log").read_text().splitlines()
    assert len(log) == 2, "more than one process compiled"
    manifest = json.loads((Path(found.pop().strip()) / "manifest.json").read_text())
    assert manifest["made_from"] == {"kernel": "abc"}


def test_a_process_that_was_killed_holds_nobody_up(tmp_path: Path) -> None:
    hung = _start(tmp_path, "hang")
    deadline = time.monotonic() + 60
    while not (tmp_path / "made").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    hung.kill()
    hung.communicate()
    other = _start(tmp_path)
    target = Path(other.communicate(timeout=60)[0].strip())
    assert (target / "kernel.so").read_text() == str(other.pid)
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == [target.name, target.name + ".lock"]


def test_switched_off_it_makes_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWILL_CACHE", "off")
    assert place() is None
    calls: list[str] = []
    first, second = (entry(place(), PARTS, _maker(x, calls)) for x in ("one", "two"))
    assert calls == ["one", "two"]
    assert first != second
    assert (first / "kernel.so").read_text() == "one"


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWILL_CACHE", str(tmp_path / "from_variable"))
    assert place() == tmp_path / "from_variable"
    assert place(tmp_path / "given") == tmp_path / "given"
    assert place("off") is None
    monkeypatch.delenv("TWILL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pytest.importorskip("platformdirs")
    assert place() == tmp_path / "twill" / "kernels"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BuildError, match=r"cannot be written[\s\S]*TWILL_CACHE"):
        entry(tmp_path / "file" / "cache", PARTS, _maker("one", []))
