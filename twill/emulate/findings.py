"""What the emulator has to say about a kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Finding", "Findings", "Kind"]

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


@dataclass
class Findings:
    """Findings in the order they were met; the same one again is only counted."""

    limit: int = 200
    seen: dict[tuple[str, int, str], int] = field(default_factory=dict)
    items: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding, key: str = "") -> None:
        """Take a finding; ``key`` tells apart findings of one kind and line."""
        identity = (finding.kind, finding.line, key)
        self.seen[identity] = self.seen.get(identity, 0) + 1
        if self.seen[identity] == 1 and len(self.items) < self.limit:
            self.items.append(finding)

    @property
    def errors(self) -> list[Finding]:
        return [f for f in self.items if f.severity == "error"]
