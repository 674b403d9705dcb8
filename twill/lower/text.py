"""A `WarpProgram` as JSON, and as a readable listing: one line an instruction, iterations relative to the period's number n.

``QK_a[n-1]`` is QK_a of iteration n - 1; ``wait K_full[n]`` waits for completion n of the barrier; ``| after LK`` says that the
arrival counts once LK is over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from twill.lower.program import Arrive, Barrier, Execute, Instruction, Role, Storage, Wait, WaitOwn, WarpProgram

__all__ = ["listing", "to_json"]


def listing(program: WarpProgram) -> str:
    """The whole program as text."""
    return "\n".join(_lines(program)) + "\n"


def _lines(program: WarpProgram) -> Iterator[str]:
    yield f"program of schedule {program.schedule_hash[:12]}"
    yield ""
    yield "storage"
    yield from (f"  {_storage(s)}" for s in program.storage)
    yield ""
    yield "barriers"
    for b in program.barriers:
        yield f"  {_barrier(b)}"
        yield from (f"    {guard}" for guard in b.guards)
    for role in program.roles:
        yield ""
        yield from _role(role)
    if program.redundant:
        yield ""
        yield "needs no synchronization of its own"
        for label, path in program.redundant:
            yield f"  {label}: {path}"


def _storage(s: Storage) -> str:
    unit = "bytes" if s.memory == "smem" else "columns"
    return f"{s.name}: {s.memory} {s.offset}, {s.stages} x {s.stride} {unit}" + (", persistent" if s.persistent else "")


def _barrier(b: Barrier) -> str:
    kind = f"named barrier {b.named_id}" if b.kind == "named" else f"mbarrier x {b.slots}"
    return f"{b.name}: {kind}, arrivals {b.arrivals}" + (f", {b.tx_bytes} bytes" if b.tx_bytes else "")


def _role(role: Role) -> Iterator[str]:
    warps = "1 warp" if role.warps == 1 else f"{role.warps} warps"
    yield f"role {role.name}: {warps}, {role.registers_per_thread} registers, {role.stages} stage{'s' if role.stages > 1 else ''}"
    yield from (f"  {_instruction(x)}" for x in role.body)


def _at(stage: int) -> str:
    return f"[n{-stage:+d}]" if stage else "[n]"


def _instruction(x: Instruction) -> str:
    match x:
        case Execute():
            return f"{x.op}{_at(x.stage)}"
        case Wait():
            return f"  wait {x.barrier}{_at(x.stage + x.distance)}" + (f" for{_at(x.stage)}" if x.distance else "")
        case Arrive():
            return f"  arrive {x.barrier}{_at(x.stage)} x {x.count}" + (f" after {x.op}" if x.when == "after" else "")
        case WaitOwn():
            behind = f" ({', '.join(_at(s) for s in x.behind)} may run)" if x.behind else ""
            return f"  wait own MMAs, {x.pending} pending{behind}, for{_at(x.stage)}"


def to_json(program: WarpProgram) -> str:
    """The program as JSON: the fields of its dataclasses; ``instruction`` names the class of each one."""
    data = asdict(program) | {"asynchronous": sorted(program.asynchronous)}
    data["roles"] = [asdict(role) | {"body": [_as_data(x) for x in role.body]} for role in program.roles]
    return json.dumps(data, indent=1) + "\n"


def _as_data(x: Instruction) -> dict[str, Any]:
    return {"instruction": type(x).__name__, **asdict(x)}
