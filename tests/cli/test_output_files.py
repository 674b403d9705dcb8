"""Where -o writes: regular files, through links, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from twill.cli.files import refuse_unwritable, write_atomically
from twill.errors import UsageError


def test_a_link_keeps_pointing_where_it_did(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    link.symlink_to(real)
    refuse_unwritable(link)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "real.json"]


def test_a_pipe_is_no_place_for_a_schedule(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="not a regular file"):
        refuse_unwritable(pipe)
