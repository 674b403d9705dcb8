"""Machine descriptions: one TOML file a machine, every figure with its unit and its source.

A machine says what an SM *has* (functional units, memories, registers) and what things *cost* there
(rates, latencies, contention, hand-overs). Graph builders read capabilities such as where a tensor
core accumulator lives, never the name of an architecture: a new chip is a new file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from twill.errors import MachineError, UsageError

__all__ = ["ARCH_DEFAULT_MACHINE", "Chip", "Figure", "Machine", "Memory", "RegisterFile", "Unit", "load_machine", "machine_names"]

ARCH_DEFAULT_MACHINE: Mapping[str, str] = {"sm90": "h200", "sm100": "b200", "sm103": "b300"}
"""The machine that ``--arch`` stands for."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Figure(_Frozen):
    """One number with its unit and where it comes from.

    ``evidence`` is ``doc`` (vendor or paper), ``third`` (measured by others on the named chip), ``own``
    (measured by us, with date and method in ``source``) or ``derived`` (arithmetic over other figures).
    """

    value: float = Field(ge=0)
    unit: str = Field(min_length=1)
    source: str = Field(min_length=1)
    evidence: Literal["doc", "third", "own", "derived"]


class Unit(_Frozen):
    """A functional unit of one SM that operations reserve.

    An ``elastic`` unit is shared smoothly: operations that meet there run slower instead of waiting, and their costs are those
    measured in company. Only its average load is limited, not each cycle's.

    A ``queued`` unit works off asynchronous operations of all warp groups in the order in which they happen to be issued.

    ``capacity`` is what all operations together may hold in one cycle, in the unit of the figure: percent of
    the pipe for pipes, bytes per cycle for ports.
    """

    capacity: Figure
    description: str
    elastic: bool = False
    queued: bool = False


class Memory(_Frozen):
    """An addressable on-chip memory of one SM.

    ``overlay`` allows two single-stage buffers to share addresses when their live ranges never meet.
    """

    capacity: Figure
    alignment: int = Field(gt=0)
    overlay: bool
    description: str


class RegisterFile(_Frozen):
    """The register file of one SM and what a warp may ask of it with ``setmaxnreg``.

    ``overhead_per_thread`` is what a group that holds values needs beside them (addresses, statistics, loop state);
    ``issuer_per_thread`` what a group needs that holds none and only issues asynchronous work.
    """

    file: Figure
    per_thread_max: Figure
    per_thread_min: Figure
    granularity: Figure
    overhead_per_thread: Figure
    issuer_per_thread: Figure
    max_warps: Figure


class Chip(_Frozen):
    """What makes throughput of cycles: how many multiprocessors, at which clock. No schedule depends on it, so no hash does."""

    multiprocessors: Figure
    clock: Figure


class Machine(_Frozen):
    """A machine description.

    Attributes
    ----------
    accumulator : where the tensor core leaves its result, ``registers`` (wgmma) or ``tmem`` (tcgen05).
    mma_warps : warps that must issue a matrix instruction together (4 for wgmma, 1 for tcgen05).
    max_ctas : thread blocks that may share one matrix instruction.
    costs : rates, latencies, contention factors and hand-over costs, by dotted name.
    chip : the chip as a whole, None where the file says nothing of it.
    """

    schema_version: Literal[1]
    name: str = Field(pattern=r"^[a-z0-9_]+$")
    arch: str = Field(pattern=r"^sm[0-9]+$")
    target: str
    description: str
    accumulator: Literal["registers", "tmem"]
    mma_warps: int = Field(gt=0)
    max_ctas: int = Field(gt=0)
    units: dict[str, Unit]
    memories: dict[str, Memory]
    registers: RegisterFile
    costs: dict[str, Figure]
    chip: Chip | None = Field(default=None, exclude=True)

    def cost(self, name: str) -> float:
        """The value of a cost figure.

        Raises
        ------
        MachineError : the machine file has no such figure.
        """
        try:
            return self.costs[name].value
        except KeyError:
            raise MachineError(
                f"machine {self.name!r} has no cost figure {name!r}",
                f"add [costs.{name!r}] with value, unit, source and evidence to its machine file",
            ) from None

    def queued(self, unit: str) -> bool:
        """Whether a unit works off what all warp groups issue in one queue; units that a machine does not have do not."""
        return unit in self.units and self.units[unit].queued

    def capacity(self, unit: str) -> int:
        """Capacity of a functional unit, in the unit's own measure per cycle."""
        return int(self.units[unit].capacity.value)

    def memory_size(self, memory: str) -> int:
        """Size of a memory: bytes for SMEM, columns for TMEM."""
        return int(self.memories[memory].capacity.value)


def _folder() -> Any:
    return resources.files("twill.model") / "machines"


@cache
def machine_names() -> tuple[str, ...]:
    """Names of the machines that ship with twill."""
    return tuple(sorted(p.name.removesuffix(".toml") for p in _folder().iterdir() if p.name.endswith(".toml")))


def load_machine(name_or_path: str | Path) -> Machine:
    """Load a machine by its shipped name, or from a TOML file.

    Raises
    ------
    UsageError : no such machine.
    MachineError : the file is not TOML, or does not describe a machine.
    """
    text = str(name_or_path)
    if text in machine_names():
        return _parse((_folder() / f"{text}.toml").read_text(encoding="utf-8"), text)
    path = Path(name_or_path)
    if not path.is_file():
        raise UsageError(
            f"unknown machine {text!r}",
            f"use one of {', '.join(machine_names())}, or the path of a machine file",
        )
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MachineError(f"cannot read {text}: {error}", "give a readable UTF-8 TOML file") from None
    return _parse(content, text)


@cache
def _parse(content: str, origin: str) -> Machine:
    try:
        raw = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise MachineError(f"{origin} is not TOML: {error}", "compare with twill/model/machines/h200.toml") from None
    try:
        return Machine.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise MachineError(f"{origin}: {where}: {first['msg']}", "compare the entry with twill/model/machines/h200.toml") from None
