"""Every way to change one field of one instruction, barrier, storage or role, to drop an instruction, or to swap two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from twill.lower.program import Arrive, Barrier, Execute, Instruction, Role, Storage, Wait, WaitOwn, WarpProgram


@dataclass(frozen=True)
class Mutant:
    """``role`` and ``barrier`` are those of what was changed, "" where there is none; ``instead`` is a barrier put in its place."""

    name: str
    program: WarpProgram
    role: str = ""
    barrier: str = ""
    instead: str = ""


def mutants(p: WarpProgram) -> Iterator[Mutant]:
    for n, role in enumerate(p.roles):

        def with_role(new: Role, n: int = n) -> WarpProgram:
            return replace(p, roles=(*p.roles[:n], new, *p.roles[n + 1 :]))

        for name, fields in _role_fields(role):
            yield Mutant(f"{role.name}: {name}", with_role(replace(role, **fields)), role.name)
        for k, x in enumerate(role.body):
            barrier = x.barrier if isinstance(x, Wait | Arrive) else ""
            where = f"{role.name}[{k}] {x}"
            for name, new in _instruction(p, x):
                body = (*role.body[:k], *new, *role.body[k + 1 :])
                instead = name.removeprefix("on ") if name.startswith("on ") else barrier
                yield Mutant(f"{where}: {name}", with_role(replace(role, body=body)), role.name, barrier, instead)
            if k + 1 < len(role.body):
                body = (*role.body[:k], role.body[k + 1], x, *role.body[k + 2 :])
                yield Mutant(f"{where}: swapped with the next", with_role(replace(role, body=body)), role.name, barrier)
    for n, b in enumerate(p.barriers):
        yield Mutant(f"{b.name}: dropped", replace(p, barriers=(*p.barriers[:n], *p.barriers[n + 1 :])), "", b.name)
        for name, fields in _barrier_fields(b):
            barriers = (*p.barriers[:n], replace(b, **fields), *p.barriers[n + 1 :])
            yield Mutant(f"{b.name}: {name}", replace(p, barriers=barriers), "", b.name)
    for n, s in enumerate(p.storage):
        for name, fields in _storage_fields(s):
            yield Mutant(f"{s.name}: {name}", replace(p, storage=(*p.storage[:n], replace(s, **fields), *p.storage[n + 1 :])))
    for op in sorted(p.latency_cycles):
        yield Mutant(f"{op}: latency", replace(p, latency_cycles=p.latency_cycles | {op: p.latency_cycles[op] + 1}))
        yield Mutant(f"{op}: issue", replace(p, issue_cycles=p.issue_cycles | {op: p.issue_cycles[op] + 1}))
        yield Mutant(f"{op}: asynchronous", replace(p, asynchronous=p.asynchronous ^ {op}))


def _role_fields(role: Role) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "other warps", {"warps": role.warps + 4}
    yield "registers no multiple of 8", {"registers_per_thread": role.registers_per_thread + 4}
    yield "registers below 24", {"registers_per_thread": 16}
    yield "registers above 256", {"registers_per_thread": 264}


def _instruction(p: WarpProgram, x: Instruction) -> Iterator[tuple[str, tuple[Instruction, ...]]]:
    yield "dropped", ()
    yield "twice", (x, x)
    for stage in (x.stage - 1, x.stage + 1):
        yield f"stage {stage}", (replace(x, stage=stage),)
    if isinstance(x, Wait | Arrive):
        for b in p.barriers:
            if b.name != x.barrier:
                yield f"on {b.name}", (replace(x, barrier=b.name),)
    match x:
        case Wait():
            for distance in (x.distance - 1, x.distance + 1):
                yield f"distance {distance}", (replace(x, distance=distance),)
        case Arrive():
            for count in (x.count - 1, x.count + 1):
                yield f"count {count}", (replace(x, count=count),)
            if x.when == "now":
                for op in sorted(p.latency_cycles):
                    yield f"after {op}", (replace(x, when="after", op=op),)
            else:
                yield "now", (replace(x, when="now", op=""),)
                for op in sorted(p.asynchronous - {x.op}):
                    yield f"after {op}", (replace(x, op=op),)
        case WaitOwn():
            for pending in (x.pending - 1, x.pending + 1):
                yield f"pending {pending}", (replace(x, pending=pending),)
        case Execute():
            for op in sorted(p.latency_cycles):
                if op != x.op:
                    yield f"executes {op}", (replace(x, op=op),)
            for n, a in enumerate(x.accesses):
                rest = x.accesses[:n] + x.accesses[n + 1 :]
                yield f"{a} left out", (replace(x, accesses=rest),)
                yield f"{a} shifted", (replace(x, accesses=(*rest, replace(a, shift=a.shift + 1))),)
                yield f"{a} in the other mode", (replace(x, accesses=(*rest, replace(a, mode="read" if a.mode == "write" else "write"))),)


def _barrier_fields(b: Barrier) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "kind", {"kind": "named" if b.kind == "mbarrier" else "mbarrier"}
    for slots in (b.slots - 1, b.slots + 1):
        yield f"slots {slots}", {"slots": slots}
    for arrivals in (b.arrivals - 1, b.arrivals + 1):
        yield f"arrivals {arrivals}", {"arrivals": arrivals}
    for tx_bytes in (b.tx_bytes - 16, b.tx_bytes + 16, b.tx_bytes // 2 + 8):
        yield f"bytes {tx_bytes}", {"tx_bytes": tx_bytes}
    for named_id in (None, 0, 1, 2, 15, 16):
        if named_id != b.named_id:
            yield f"id {named_id}", {"named_id": named_id}
    yield "unknown guard", {"guards": (*b.guards, "edge A->B")}


def _storage_fields(s: Storage) -> Iterator[tuple[str, dict[str, Any]]]:
    for offset in (s.offset - s.stride // 2, s.offset + s.stride // 2):
        yield f"offset {offset}", {"offset": offset}
    yield "half the stride", {"stride": s.stride // 2}
    for stages in (s.stages - 1, s.stages + 1):
        yield f"{stages} stages", {"stages": stages}
    yield "persistent", {"persistent": not s.persistent}
    yield "memory", {"memory": "tmem" if s.memory == "smem" else "smem"}
