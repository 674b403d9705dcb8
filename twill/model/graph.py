"""Loop graphs: the body of one loop as a dataflow graph of tile-level operations.

A graph is immutable and carries every cost in cycles, so that solver, checker and reader see the same
numbers. `twill.model.builder.GraphBuilder` makes graphs from a machine description; JSON round-trips.
The meaning of every field for a schedule is fixed in ``docs/formulation.md``.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from twill.errors import GraphError

__all__ = [
    "Buffer",
    "Edge",
    "LoopGraph",
    "Op",
    "Reader",
    "RegisterValue",
    "Reservation",
    "canonical_hash",
    "parse_graph",
]

Name = str
Cycles = int


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Reservation(_Frozen):
    """Hold ``amount`` of a functional unit during ``[issue + offset, issue + offset + cycles)``."""

    unit: Name
    cycles: Cycles = Field(gt=0)
    amount: int = Field(gt=0)
    offset: Cycles = Field(default=0, ge=0)


class Op(_Frozen):
    """A tile-level operation.

    Attributes
    ----------
    kind : what it does, for lowering (``mma``, ``tma_load``, ``row_max``, ``exp2``, ...).
    unit : the functional unit that it is named after in tables.
    latency_cycles : issue until its result exists.
    issue_cycles : how long the warps that issue it are busy with it; equals the latency for synchronous ops.
    asynchronous : the issuing warps go on after ``issue_cycles`` while a unit works.
    variable_latency : the latency is not known to a static schedule (TMA loads).
    warps : warps that must execute it together (1 or a multiple of 4).
    subtile, chunk : which part of the tile it works on.
    """

    name: Name = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")
    kind: str
    unit: Name
    latency_cycles: Cycles = Field(ge=0)
    issue_cycles: Cycles = Field(ge=0)
    asynchronous: bool = False
    variable_latency: bool = False
    warps: int = Field(default=4, gt=0)
    reservations: tuple[Reservation, ...] = ()
    subtile: int | None = None
    chunk: int | None = None

    @property
    def span_cycles(self) -> Cycles:
        """Issue until nothing of the op is going on any more."""
        ends = [r.offset + r.cycles for r in self.reservations]
        return max(self.latency_cycles, self.issue_cycles, *ends) if ends else max(self.latency_cycles, self.issue_cycles)


class Edge(_Frozen):
    """``dst`` of iteration i waits for ``src`` of iteration i - distance.

    ``dst`` may issue ``latency_cycles`` after ``src`` plus ``same_group_cycles`` or ``cross_group_cycles``,
    whichever applies to the warp groups of the two. ``kind`` says what travels: ``registers``, ``smem``, ``tmem``
    or ``order`` (nothing).
    """

    src: Name
    dst: Name
    kind: Literal["registers", "smem", "tmem", "order"]
    value: str = ""
    distance: int = Field(default=0, ge=0)
    latency_cycles: Cycles = Field(ge=0)
    same_group_cycles: Cycles = Field(default=0, ge=0)
    cross_group_cycles: Cycles = Field(default=0, ge=0)

    @property
    def label(self) -> str:
        return f"{self.src}->{self.dst}" + (f"@{self.distance}" if self.distance else "")


class Reader(_Frozen):
    """``op`` of iteration i + distance reads the storage until ``hold_cycles`` after its issue.

    For a buffer, ``cross_group_cycles`` more pass before the first writer, if it sits in another warp group,
    knows that the storage is free. Register values have no such release.
    """

    op: Name
    hold_cycles: Cycles = Field(ge=0)
    distance: int = Field(default=0, ge=0)
    cross_group_cycles: Cycles = Field(default=0, ge=0)


class Buffer(_Frozen):
    """Addressable storage in SMEM (bytes) or TMEM (columns).

    Live from the issue of its first writer until the last reader lets go; a ``persistent`` buffer (an
    accumulator, a tile that stays for the whole loop) is always live and has one stage.
    ``prefetch`` marks rings filled by variable-latency ops, which may be given more stages than needed.
    """

    name: Name
    memory: Name
    size: int = Field(gt=0)
    writers: tuple[Name, ...] = ()
    readers: tuple[Reader, ...] = ()
    persistent: bool = False
    prefetch: bool = False


class RegisterValue(_Frozen):
    """A value in the registers of the warps that produce it, ``registers`` per thread."""

    name: Name
    producer: Name
    registers: int = Field(gt=0)
    readers: tuple[Reader, ...] = ()
    persistent: bool = False


class LoopGraph(_Frozen):
    """The dataflow graph of one loop, costed for one machine.

    ``symmetries`` lists automorphisms as pairs of op tuples that may be swapped position by position
    (two sub-tiles, say); solvers use them to skip mirror images.
    ``reserved`` is memory that no buffer may use: barriers, padding, row statistics.
    ``notes`` says in words what the costs assume (contention, expected rates).
    """

    schema_version: Literal[1] = 1
    name: str = Field(min_length=1)
    machine: str
    parameters: dict[str, int | float | str] = Field(default_factory=dict)
    ops: tuple[Op, ...] = Field(min_length=1)
    edges: tuple[Edge, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    values: tuple[RegisterValue, ...] = ()
    symmetries: tuple[tuple[tuple[Name, ...], tuple[Name, ...]], ...] = ()
    reserved: dict[str, int] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def op(self, name: Name) -> Op:
        """The op of that name; KeyError if there is none."""
        for op in self.ops:
            if op.name == name:
                return op
        raise KeyError(name)

    @property
    def hash(self) -> str:
        """SHA-256 over the canonical JSON."""
        return canonical_hash(self.model_dump(mode="json"))

    def to_json(self) -> str:
        return json.dumps(self.model_dump(mode="json"), indent=1) + "\n"


def canonical_hash(data: Any) -> str:
    """SHA-256 of JSON data with sorted keys and no white space."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def parse_graph(text: str, origin: str) -> LoopGraph:
    """Read a graph from JSON text; ``origin`` names the file in messages.

    Raises
    ------
    GraphError : not JSON, another schema version, or a field out of range.
    """
    try:
        raw = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise GraphError(f"{origin} is not JSON: {error}", "write it with LoopGraph.to_json()") from None
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if isinstance(raw, dict) and version != 1:
        raise GraphError(
            f"{origin} has schema_version {version!r}; this twill reads version 1",
            "build the graph again with this version of twill",
        )
    try:
        return LoopGraph.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "top level"
        raise GraphError(f"{origin}: {where}: {first['msg']}", "see `twill schema graph` for the fields") from None
