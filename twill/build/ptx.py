"""What the build asks of PTX: what was requested of the assembler, and which Python line each line was made from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Ptx", "read_ptx"]

FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"')
LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
SETMAXNREG = re.compile(r"^\s*setmaxnreg\.\w+\.sync\.aligned\.u32\s+(\d+)")
MMA = re.compile(r"^\s*wgmma\.mma_async")
WAIT = re.compile(r"^\s*wgmma\.wait_group\.sync\.aligned\s+(\d+)")
COMMIT = re.compile(r"^\s*wgmma\.commit_group")


@dataclass(frozen=True, slots=True)
class Ptx:
    """Facts of a PTX file.

    ``setmaxnreg`` are the register counts asked for, in order; ``groups`` are the groups of wgmma, each as the line of its first MMA and
    that of its commit; ``waits`` are the numbers of groups that each wait for them leaves pending, in order; ``origin`` names the Python
    file and line that each line comes from, for those lines that it is known of.
    """

    setmaxnreg: tuple[int, ...]
    groups: tuple[tuple[int, int], ...]
    waits: tuple[int, ...]
    origin: Mapping[int, tuple[str, int]]


def read_ptx(text: str) -> Ptx:
    """Read PTX line by line."""
    files: dict[str, str] = {}
    requests: list[int] = []
    waits: list[int] = []
    groups: list[tuple[int, int]] = []
    begin: int | None = None
    places: dict[int, tuple[str, int]] = {}
    place: tuple[str, int] | None = None
    for number, row in enumerate(text.splitlines(), 1):
        if found := LOC.match(row):
            place = (found.group(1), int(found.group(2)))
        elif found := FILE.match(row):
            files[found.group(1)] = found.group(2)
        elif found := SETMAXNREG.match(row):
            requests.append(int(found.group(1)))
        elif found := WAIT.match(row):
            waits.append(int(found.group(1)))
        elif MMA.match(row):
            begin = number if begin is None else begin
        elif COMMIT.match(row):
            groups.append((number if begin is None else begin, number))
            begin = None
        if place:
            places[number] = place
    origin = {number: (files[index], line) for number, (index, line) in places.items() if index in files}
    return Ptx(tuple(requests), tuple(groups), tuple(waits), origin)
