"""Folders of libraries for machines that cannot compile: what ``twill build --all -o DIR`` leaves, with a list of what it holds.

The list is `LIST`; it says for every library which text of which kernel file it was made from.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twill.build.errors import BuildError
from twill.build.kernelfile import Variant

__all__ = ["LIST", "Entry", "entry_of", "library_in", "note"]

LIST = "libraries.json"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """A library: kernel and variant by name, hash of the kernel file, target, name of the library in the folder."""

    kernel: str
    variant: str
    kernel_sha256: str
    arch: str
    file: str


def entry_of(kernel: Path, variant: Variant, arch: str, file: str) -> Entry:
    """The entry of a library made from a kernel file as it is now."""
    return Entry(kernel.stem, variant.name, hashlib.sha256(kernel.read_bytes()).hexdigest(), arch, file)


def note(folder: Path, entries: Iterable[Entry]) -> None:
    """Add to the folder's list; an entry of the same kernel and variant gives way."""
    listed = {(e.kernel, e.variant): e for e in (_listed(folder) if (folder / LIST).exists() else ())}
    listed |= {(e.kernel, e.variant): e for e in entries}
    data = {"schema_version": SCHEMA_VERSION, "libraries": [asdict(listed[key]) for key in sorted(listed)]}
    draft = folder / f".{LIST}.{os.getpid()}.part"
    draft.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    draft.replace(folder / LIST)


def library_in(folder: Path, kernel: Path, variant: Variant, arch: str) -> Path:
    """The library of a kernel file in the folder.

    Raises
    ------
    BuildError : the folder has no list, or not this variant for this target, or one made from another text of the kernel file.
    """
    what = f"{kernel.stem} ({variant.name}, {arch})"
    flags = " ".join(["--dtype", *(f"--{flag}" if k else flag for k, flag in enumerate(variant.name.split("-")))])
    remake = f"make it again: `twill build {kernel} {flags} -o {folder}`, or all that ship: `twill build --all -o {folder}`"
    entry = next((e for e in _listed(folder) if (e.kernel, e.variant, e.arch) == (kernel.stem, variant.name, arch)), None)
    if entry is None:
        raise BuildError(f"{folder} has no library of {what}", remake)
    if entry != entry_of(kernel, variant, arch, entry.file):
        raise BuildError(f"the library of {what} in {folder} was made from another text of {kernel.name}", remake)
    return folder / entry.file


def _listed(folder: Path) -> tuple[Entry, ...]:
    try:
        data: Any = json.loads((folder / LIST).read_text(encoding="utf-8"))
        if data["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"its list has version {data['schema_version']}, not {SCHEMA_VERSION}")
        return tuple(Entry(**e) for e in data["libraries"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BuildError(f"{folder} is not a folder of libraries: {error}", f"make one with `twill build --all -o {folder}`") from None
