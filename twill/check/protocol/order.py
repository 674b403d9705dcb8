"""Orders written by hand: what every role does in one period, as data; ``twill cost`` says how long a period takes.

Dependences need not be written: an op starts when what it needs from the graph is there, behind an implied wait. Ops that no role
lists take no time (loads that are always ahead, a rescale that is left out).
"""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from twill.errors import ScheduleFileError
from twill.model.registry import GraphRequest

__all__ = ["Measured", "Order", "OrderGraph", "OrderRole", "Published", "Step", "parse_order"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Step(_Frozen):
    """One step of a role; in period n it acts for iteration n + ``ahead``.

    Exactly one of: ``op`` issues an op; ``finish`` waits until an asynchronous op is over; ``arrive`` and ``wait`` name a barrier that
    is in no dependence, ping-pong say (a named barrier).
    """

    op: str | None = None
    finish: str | None = None
    arrive: str | None = None
    wait: str | None = None
    ahead: int = 0

    @model_validator(mode="after")
    def _one(self) -> Step:
        if sum(x is not None for x in (self.op, self.finish, self.arrive, self.wait)) != 1:
            raise ValueError("a step has exactly one of op, finish, arrive and wait")
        return self


class OrderRole(_Frozen):
    """A warp group and its steps in order."""

    name: str
    steps: tuple[Step, ...] = Field(min_length=1)


class OrderGraph(_Frozen):
    """The shipped graph that is ordered, as ``twill solve`` takes it."""

    name: str
    machine: str
    head_dim: int | None = None
    head_dim_v: int | None = None
    tile: str | None = None
    subtiles: int | None = None
    settings: dict[str, str] = Field(default_factory=dict)

    @property
    def request(self) -> GraphRequest:
        """What `build_graph` is asked for."""
        return GraphRequest(self.head_dim, self.head_dim_v, self.tile, self.subtiles, settings=self.settings)


class Measured(_Frozen):
    """Cycles a period that were measured: from ``low_cycles`` to ``high_cycles``, and where."""

    low_cycles: int = Field(gt=0)
    high_cycles: int = Field(gt=0)
    source: str


class Published(_Frozen):
    """TFLOP/s of a whole kernel that others report for this order, and where."""

    tflops: float = Field(gt=0)
    source: str


class Order(_Frozen):
    """What every role does in one period, in order."""

    schema_version: Literal[1] = 1
    name: str
    description: str = ""
    graph: OrderGraph
    roles: tuple[OrderRole, ...] = Field(min_length=1)
    measured: Measured | None = None
    published: tuple[Published, ...] = ()


def parse_order(text: str, origin: str) -> Order:
    """Read an order; ``origin`` names the file in messages.

    Raises
    ------
    ScheduleFileError : not JSON, another schema version, or a field missing or out of range.
    """
    try:
        raw = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ScheduleFileError(f"{origin} is not JSON: {error}", "see docs/examples/orders for what an order looks like") from None
    try:
        return Order.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "top level"
        raise ScheduleFileError(f"{origin}: {where}: {first['msg']}", "see docs/examples/orders for what an order looks like") from None
