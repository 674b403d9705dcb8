"""The schedule file: what the solver writes, the checker verifies and the emitter will read.

`docs/formulation.md` fixes the meaning of every field. The file is canonical JSON: the same input, seed and
versions give the same bytes, and ``hash`` covers everything but itself.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from twill.errors import ScheduleFileError
from twill.model.graph import LoopGraph, canonical_hash

__all__ = [
    "SCHEMA_VERSION",
    "Group",
    "Handover",
    "MachineRef",
    "Options",
    "PlacedBuffer",
    "Proof",
    "ProofStep",
    "Provenance",
    "Rank",
    "Schedule",
    "ScheduledOp",
    "parse_schedule",
    "with_hash",
]

SCHEMA_VERSION = 1


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MachineRef(_Frozen):
    """Which machine description the schedule was solved for; ``hash`` is over its canonical JSON."""

    name: str
    arch: str
    target: str
    hash: str


class Options(_Frozen):
    """Everything besides graph and machine that decides what is legal.

    ``registers``: limit of registers per thread in every group; ``groups``: most warp groups allowed;
    ``max_copies``: most iterations in flight, ceil(L / I); ``without``/``with_rules``: rules switched off/on;
    ``max_ii_cycles``: only schedules with I up to this; ``time_unit_cycles``: starts, I and L are multiples of it.
    """

    registers: int | None = Field(default=None, gt=0)
    groups: int = Field(gt=0)
    max_copies: int = Field(gt=0)
    without: tuple[str, ...] = ()
    with_rules: tuple[str, ...] = ()
    max_ii_cycles: int | None = Field(default=None, gt=0)
    time_unit_cycles: int = Field(default=1, gt=0)


class Group(_Frozen):
    """A warp group; ``ops`` in the order in which one steady-state period issues them."""

    name: str
    warps: int = Field(gt=0)
    registers_per_thread: int = Field(gt=0)
    ops: tuple[str, ...]


class ScheduledOp(_Frozen):
    """Where and when one op runs."""

    name: str
    unit: str
    start_cycle: int = Field(ge=0)
    stage: int = Field(ge=0)
    group: str


class PlacedBuffer(_Frozen):
    """Placement of a buffer: ``stages`` copies of ``size`` (bytes or columns) from ``offset``."""

    name: str
    memory: str
    offset: int = Field(ge=0)
    size: int = Field(gt=0)
    stages: int = Field(gt=0)


class Handover(_Frozen):
    """An edge whose ends lie in different groups, and what crossing costs."""

    edge: str
    kind: str
    cost_cycles: int = Field(ge=0)


class ProofStep(_Frozen):
    """Why one objective cannot be smaller.

    ``by`` is ``lower-bound`` (``bound`` names it), ``refutation`` (``refuted_cycles`` was proved impossible) or
    ``none`` (time ran out; ``gap_cycles`` is the distance to the best bound known). For the margin, which is to be large, the bound
    ``queue`` is an upper one, and a refuted value lies above.
    """

    value_cycles: int
    by: Literal["lower-bound", "refutation", "none"]
    bound: str | None = None
    refuted_cycles: int | None = None
    gap_cycles: int = Field(default=0, ge=0)


class Proof(_Frozen):
    """The proof record: what was shown, by which solver, of which model."""

    ii: ProofStep
    margin: ProofStep
    length: ProofStep
    rank_proved: bool
    model_hash: str
    solver: str
    solver_version: str
    seed: int
    queries: int


class Rank(_Frozen):
    """The ranking among schedules of equal I, margin and L, in this order; see ``docs/formulation.md`` section 3."""

    groups: int
    held_up: int
    handovers: int
    waits: int
    register_peak: int
    slack_cycles: int


class Provenance(_Frozen):
    """What made the file."""

    twill: str
    command: str


class Schedule(_Frozen):
    """A legal schedule of one loop graph on one machine."""

    schema_version: Literal[1] = 1
    status: Literal["optimal", "feasible"]
    graph: LoopGraph
    machine: MachineRef
    options: Options
    ii_cycles: int = Field(gt=0)
    margin_cycles: int = Field(ge=0)
    length_cycles: int = Field(gt=0)
    lower_bounds_cycles: dict[str, int]
    groups: tuple[Group, ...]
    ops: tuple[ScheduledOp, ...]
    buffers: tuple[PlacedBuffer, ...]
    handovers: tuple[Handover, ...]
    rank: Rank
    proof: Proof
    utilization: dict[str, float]
    provenance: Provenance
    hash: str = ""

    def to_json(self) -> str:
        """Canonical text of the file."""
        return json.dumps(self.model_dump(mode="json"), indent=1) + "\n"


def with_hash(schedule: Schedule) -> Schedule:
    """The schedule with ``hash`` set to the hash of everything else."""
    data = schedule.model_dump(mode="json")
    data.pop("hash")
    return schedule.model_copy(update={"hash": canonical_hash(data)})


def parse_schedule(text: str, origin: str, *, verify_hash: bool = True) -> Schedule:
    """Read a schedule file; ``origin`` names it in messages.

    Raises
    ------
    ScheduleFileError : not JSON, another schema version, a field missing or out of range, or a hash that does not
        match the content (the file was edited).
    """
    try:
        raw: Any = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ScheduleFileError(f"{origin} is not JSON: {error}", "write it with `twill solve ... -o FILE`") from None
    if not isinstance(raw, dict):
        raise ScheduleFileError(f"{origin} is not a schedule: the top level is no object", "write it with `twill solve ... -o FILE`")
    version = raw.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ScheduleFileError(
            f"{origin} has schema_version {version!r}; this twill reads version {SCHEMA_VERSION}",
            "solve it again with this version: the command is in its provenance",
        )
    try:
        schedule = Schedule.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "top level"
        raise ScheduleFileError(f"{origin}: {where}: {first['msg']}", "see `twill schema` for the fields") from None
    if verify_hash and with_hash(schedule).hash != schedule.hash:
        raise ScheduleFileError(
            f"{origin}: the hash does not match the content; the file was changed after twill wrote it",
            "solve it again, or `twill check --ignore-hash` to see which rules the edited schedule breaks",
        )
    return schedule
