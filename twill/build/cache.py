"""Compiled kernels on disk: one folder an entry, named by the hash of everything that the machine code depends on.

An entry is made in a folder of its own and renamed into place, so a reader sees all of it or nothing; its manifest holds the hash of
every file, and an entry that does not match it is made again. A lock file for each key lets one process compile while others wait.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from twill.build.errors import BuildError

__all__ = ["OFF", "VARIABLE", "entry", "key_of", "place"]

VARIABLE = "TWILL_CACHE"
OFF = "off"
MANIFEST = "manifest.json"
LOCK_TIMEOUT_S = 600.0


def place(given: str | Path | None = None) -> Path | None:
    """Where entries are kept: ``given``, else the environment variable, else the user's cache folder; None if it says ``off``.

    Raises
    ------
    BuildError : the user's cache folder is wanted and platformdirs is not installed.
    """
    chosen = given if given is not None else os.environ.get(VARIABLE)
    if chosen:
        return None if str(chosen) == OFF else Path(chosen).expanduser().resolve()
    try:
        from platformdirs import user_cache_path
    except ModuleNotFoundError:
        raise BuildError(
            "platformdirs, which knows the user's cache folder, is not installed",
            f"install 'twill-gpu[kernels]', or set {VARIABLE} to a folder or to {OFF}",
        ) from None
    return Path(user_cache_path("twill")) / "kernels"


def key_of(parts: Mapping[str, str]) -> str:
    """The key of an entry: the same parts give the same key, in whatever order."""
    return hashlib.sha256(json.dumps(sorted(parts.items())).encode()).hexdigest()


def entry(folder: Path | None, parts: Mapping[str, str], make: Callable[[Path], None]) -> Path:
    """The folder of the entry for ``parts``, filled by ``make`` if it is not there or not whole.

    Raises
    ------
    BuildError : what ``make`` raises, and a folder that cannot be written, or a lock held for too long.
    """
    key = key_of(parts)
    if folder is None:
        return _without_cache(key, make)
    target = folder / key
    if _whole(target):
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _made_alone(folder, key, parts, make)
    except OSError as error:
        raise BuildError(
            f"the kernel cache {folder} cannot be written: {error}", f"set {VARIABLE} to a folder that can, or to {OFF}"
        ) from None


def _made_alone(folder: Path, key: str, parts: Mapping[str, str], make: Callable[[Path], None]) -> Path:
    try:
        from filelock import FileLock, Timeout
    except ModuleNotFoundError:
        raise BuildError("filelock is not installed", f"install 'twill-gpu[kernels]', or set {VARIABLE} to {OFF}") from None
    target = folder / key
    try:
        with FileLock(folder / f"{key}.lock", timeout=LOCK_TIMEOUT_S):
            if _whole(target):
                return target
            # left by processes that were killed while they held this lock
            for dead in folder.glob(f"{key}.*.part"):
                shutil.rmtree(dead, ignore_errors=True)
            draft = Path(tempfile.mkdtemp(prefix=f"{key}.", suffix=".part", dir=folder))
            try:
                make(draft)
                _sign(draft, parts)
                if target.exists():
                    target.rename(Path(tempfile.mkdtemp(prefix=f"{key}.", suffix=".part", dir=folder)) / "broken")
                draft.rename(target)
            finally:
                for dead in folder.glob(f"{key}.*.part"):
                    shutil.rmtree(dead, ignore_errors=True)
    except Timeout:
        raise BuildError(
            f"another process has been compiling this kernel for {LOCK_TIMEOUT_S:.0f} s ({folder / key}.lock)",
            "see whether it still runs, and try again",
        ) from None
    return target


@cache
def _temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="twill-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _without_cache(key: str, make: Callable[[Path], None]) -> Path:
    """A folder that lasts as long as this process."""
    target = Path(tempfile.mkdtemp(prefix=f"{key[:12]}.", dir=_temporary()))
    make(target)
    return target


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sign(folder: Path, parts: Mapping[str, str]) -> None:
    files = {p.name: _digest(p) for p in sorted(folder.iterdir())}
    text = json.dumps({"made_from": dict(parts), "files": files}, indent=1, sort_keys=True) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _whole(folder: Path) -> bool:
    """Every file of the manifest is there, with the content that it had."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        return bool(files) and all(_digest(folder / name) == digest for name, digest in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
