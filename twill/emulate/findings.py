"""What the emulator has to say about a kernel."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Enough", "Finding", "Findings", "Kind"]

Kind = Literal[
    "deadlock", "race", "missing proxy fence", "uninitialised read", "out of bounds", "barrier", "bytes", "phase overrun", "in flight",
    "warp", "registers", "tensor memory", "wrong value", "not written", "written twice", "left over", "limit",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, with the place in the PTX (``line``, 0 if none) and in the source if the compiler kept line numbers."""

    kind: Kind
    text: str
    line: int = 0
    source: str = ""
    where: str = ""
    severity: Literal["error", "warning"] = "error"
    statement: str = ""
    """Of the emitted file, if the kernel is one of ours."""

    @property
    def alike(self) -> tuple[str, ...]:
        """What findings share that differ in numbers only: lines, offsets, warps, slots."""
        return (self.kind, self.severity, *(re.sub(r"\d+", "#", x) for x in (self.text, self.statement, self.where)))


class Enough(Exception):
    """Something was found, and no more is wanted."""


@dataclass
class Findings:
    """Findings in the order they were met; the same one again is only counted. With ``first_only`` the first one ends the run."""

    limit: int = 200
    first_only: bool = False
    seen: dict[tuple[str, int, str], int] = field(default_factory=dict)
    items: list[Finding] = field(default_factory=list)
    _identities: list[tuple[str, int, str]] = field(default_factory=list)

    def add(self, finding: Finding, key: str = "") -> None:
        """Take a finding; ``key`` tells apart findings of one kind and line."""
        identity = (finding.kind, finding.line, key)
        self.seen[identity] = self.seen.get(identity, 0) + 1
        if self.seen[identity] == 1 and len(self.items) < self.limit:
            self.items.append(finding)
            self._identities.append(identity)
            if self.first_only:
                raise Enough

    def grouped(self) -> list[tuple[Finding, int, int]]:
        """Of findings that are alike the first, how many places there are, and how often they were met."""
        groups: dict[tuple[str, ...], tuple[Finding, int, int]] = {}
        for finding, identity in zip(self.items, self._identities, strict=True):
            first, places, times = groups.get(finding.alike, (finding, 0, 0))
            groups[finding.alike] = (first, places + 1, times + self.seen[identity])
        return list(groups.values())

    @property
    def errors(self) -> list[Finding]:
        return [f for f in self.items if f.severity == "error"]
