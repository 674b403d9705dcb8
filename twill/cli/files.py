"""Files in and out: reading with a message for every way it fails, writing all or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from twill.errors import ScheduleFileError, UsageError

if TYPE_CHECKING:
    from twill.model.schedule import Schedule

__all__ = ["further_path", "read_schedule", "read_text", "refuse_unwritable", "write_atomically"]


def read_text(path: str, what: str) -> str:
    """The text of a file; ``what`` says what it should be.

    Raises
    ------
    UsageError : no such file, a folder, or a file that cannot be read as UTF-8 text.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"there is no file {path!r}", f"give the path of {what}") from None
    except IsADirectoryError:
        raise UsageError(f"{path!r} is a folder", f"give the path of {what} in it") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path!r} is not UTF-8 text", f"give the path of {what}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path!r}: {error}", f"give the path of {what}") from None


def read_schedule(name_or_path: str, *, verify_hash: bool = True) -> Schedule:
    """A schedule from a file, or a shipped one by name.

    Raises
    ------
    UsageError : neither a file nor a shipped schedule.
    ScheduleFileError : the file is no schedule, or was edited.
    """
    from twill.model.schedule import parse_schedule

    if not Path(name_or_path).exists():
        from twill.schedules import load, names

        if name_or_path in names():
            shipped: Schedule = load(name_or_path)
            return shipped
        raise UsageError(f"there is no file {name_or_path!r}", "write one with `twill solve ... -o FILE`, or see `twill list schedules`")
    schedule = parse_schedule(read_text(name_or_path, "a schedule"), name_or_path, verify_hash=verify_hash)
    if not schedule.ops or not schedule.groups:
        raise ScheduleFileError(f"{name_or_path} schedules no ops", "write it with `twill solve ... -o FILE`")
    return schedule


def further_path(path: Path, number: int) -> Path:
    """Where the schedule of this number (2, 3, ...) goes if the best goes to ``path``: the number before ``.json``."""
    if path.suffix == ".json":
        return path.with_name(f"{path.stem}.{number}.json")
    return path.with_name(f"{path.name}.{number}")


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def refuse_unwritable(path: Path) -> None:
    """Find out that a file cannot be written before the work is done that it is to hold.

    Raises
    ------
    UsageError : the folder does not exist or cannot be written to, or the path is a folder, a device or a pipe.
    """
    if path.is_dir():
        raise UsageError(f"cannot write {str(path)!r}: it is a folder", "give -o the name of a file")
    if not path.parent.is_dir():
        text = f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}"
        raise UsageError(text, "make the folder first, or give -o another path")
    if path.exists() and not path.is_file():
        raise UsageError(f"cannot write {str(path)!r}: it is not a regular file", "use --json to write to the standard output")
    draft = _draft(path.resolve())
    try:
        draft.touch()
        draft.unlink()
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}", "give -o a path in a folder that you may write to") from None


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old content or the new, never a part; a link keeps pointing where it did.

    Raises
    ------
    UsageError : it cannot be written.
    """
    path = path.resolve()
    draft = _draft(path)
    try:
        with draft.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}", "give -o a path in a folder that you may write to") from None
    finally:
        draft.unlink(missing_ok=True)
