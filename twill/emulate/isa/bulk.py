"""Bulk copies without a descriptor, and the groups of bulk operations. PTX ISA 9.7.9.25.4 and .5."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from twill.emulate.isa.emitter import Emitter
from twill.emulate.isa.mbarrier import complete_bytes
from twill.emulate.isa.memory import address_of
from twill.emulate.isa.registry import rule, runtime
from twill.emulate.machine.asynchronous import Operation
from twill.emulate.machine.operands import Tile
from twill.emulate.ptx.syntax import Immediate, Instruction, Operand

if TYPE_CHECKING:
    from twill.emulate.machine.block import Block
    from twill.emulate.machine.warp import Warp

__all__ = ["asynchronous", "matrix_operand", "one", "place", "read_shared", "write_shared"]


def place(e: Emitter, operand: Operand, wide: bool) -> str:
    """The one address of an instruction that is issued once a warp."""
    return e.scalar(address_of(e, operand, wide))


def amount(e: Emitter, operand: Operand) -> str:
    """The one number of bytes of such an instruction."""
    return e.scalar(str(e.get(operand, "u32")))


HINT = r"(\.L2::cache_hint)?"


@rule(rf"cp\.async\.bulk\.shared::(cluster|cta)\.global\.mbarrier::complete_tx::bytes{HINT}")
def _load(e: Emitter, x: Instruction) -> None:
    to, source, size, barrier = x.operands[:4]
    e.line(f"bulk_load(w, {x.line}, {place(e, to, False)}, {place(e, source, True)}, {amount(e, size)}, "
           f"{place(e, barrier, False)})")  # fmt: skip


@rule(r"cp\.async\.bulk\.shared::cluster\.shared::cta\.mbarrier::complete_tx::bytes")
def _exchange(e: Emitter, x: Instruction) -> None:
    to, source, size, barrier = x.operands[:4]
    e.line(f"bulk_exchange(w, {x.line}, {place(e, to, False)}, {place(e, source, False)}, {amount(e, size)}, "
           f"{place(e, barrier, False)})")  # fmt: skip


@rule(
    rf"cp\.async\.bulk\.global\.shared::cta\.bulk_group{HINT}", rf"cp\.reduce\.async\.bulk\.global\.shared::cta\.bulk_group{HINT}\.add\.f32"
)
def _store(e: Emitter, x: Instruction) -> None:
    to, source, size = x.operands[:3]
    e.line(f"bulk_store(w, {x.line}, {place(e, to, True)}, {place(e, source, False)}, {amount(e, size)}, "
           f"{x.parts[1] == 'reduce'})")  # fmt: skip


@rule(r"cp\.async\.bulk\.commit_group")
def _commit(e: Emitter, x: Instruction) -> None:
    e.line("w.bulk.commit()")


@rule(r"cp\.async\.bulk\.wait_group(\.read)?", waits=True)
def _wait(e: Emitter, x: Instruction) -> None:
    amount = x.operands[0]
    assert isinstance(amount, Immediate)
    e.line(f"if not bulk_wait(w, {x.line}, {amount.bits}): return -2")


def asynchronous(w: Warp, line: int, name: str, body: Any, after: tuple[Operation, ...] = ()) -> Operation:
    """An operation issued by a warp; later events of the warp are not ordered before it."""
    component, clock = w.block.cluster.operation_clock(w.clock)
    w.clock[0, w.component] += 1
    return Operation(name, line, clock, component, body, after)


def read_shared(w: Warp, o: Operation, block: Block, at: Any, proxy: bool = False) -> None:
    """Note a read of shared memory by an operation; ``at`` counts granules of 4 bytes."""
    who = f"{o.name} of {w.name}"
    number = w.block.cluster.clocks.access(o.component, o.clock, who, o.line, proxy)
    block.shadow.read(at, number, o.component, o.clock, block.reporter(o.line, who))


def matrix_operand(w: Warp, o: Operation, block: Block, found: Tile, kind: str, size: int) -> Any:
    """An operand in shared memory as fp32, its read noted; zeros after a finding."""
    if found.end > block.shared_end:
        w.find("out of bounds", o.line, f"{o.name} of {w.name} reads shared memory up to {found.end}, which ends at {block.shared_end}")
        return np.zeros(found.elements.shape, np.float32)
    read_shared(w, o, block, found.granules)
    return block.operand(found, kind, size)


def write_shared(w: Warp, o: Operation, block: Block, at: Any) -> None:
    """Note a write of shared memory by an operation."""
    who = f"{o.name} of {w.name}"
    number = w.block.cluster.clocks.access(o.component, o.clock, who, o.line, False)
    block.shadow.write(at, number, o.component, o.clock, block.reporter(o.line, who))


def shared_range(w: Warp, line: int, address: int, size: int, align: int = 16) -> tuple[Block, int] | None:
    """Block and offset of a range in shared memory; None after a finding."""
    block = w.block.cluster.block_of(address)
    offset = None if block is None or not block.running else block.in_shared(address, size)
    if block is None or offset is None:
        w.find(
            "out of bounds", line, f"{size} bytes of shared memory at {address & 0xFFFFFF:#x} are out of bounds or of a block that ended"
        )
        return None
    if offset % align:
        w.find("out of bounds", line, f"shared memory address {offset:#x} is not aligned to {align} bytes", key="alignment")
        return None
    return block, offset


@runtime
def one(value: Any, mask: Any = None) -> int:
    """The value that the active lanes agree on (operations of the uniform data path are issued once a warp)."""
    if isinstance(value, np.ndarray):
        return int(value.flat[0 if mask is None else mask.argmax()])
    return int(value)


@runtime
def bulk_load(w: Warp, line: int, to: Any, source: Any, size: Any, barrier: Any) -> None:
    """Global to shared memory; arrives at a barrier with its bytes."""
    o = asynchronous(w, line, "bulk load", partial(_run_load, w, one(to), one(source), one(size), one(barrier)))
    w.block.cluster.submit(o)


def _run_load(w: Warp, to: int, source: int, size: int, barrier: int, o: Operation) -> None:
    place, place_in_global = shared_range(w, o.line, to, size), w.block.cluster.memory.find(source, size)
    if place_in_global is None:
        w.find("out of bounds", o.line, f"bulk load of {size} bytes at {source:#x} is not within one tensor")
    if size % 16 or source % 16:
        w.find("out of bounds", o.line, f"bulk load of {size} bytes at {source:#x}: both must be multiples of 16", key="alignment")
    if place is not None and place_in_global is not None:
        block, offset = place
        owner, at = place_in_global
        write_shared(w, o, block, slice(offset >> 2, (offset + size) >> 2))
        if not owner.valid[at : at + size].all():
            w.find("uninitialised read", o.line, f"bulk load of {owner.name} where nothing has been written")
        block.shared[offset : offset + size] = owner.data[at : at + size]
        block.changed(offset, size)
    complete_bytes(w, o.line, barrier, size, o.clock)


@runtime
def bulk_exchange(w: Warp, line: int, to: Any, source: Any, size: Any, barrier: Any) -> None:
    """Shared memory of this block to that of another one of the cluster."""
    o = asynchronous(w, line, "bulk copy between blocks", partial(_run_exchange, w, one(to), one(source), one(size), one(barrier)))
    w.block.cluster.submit(o)


def _run_exchange(w: Warp, to: int, source: int, size: int, barrier: int, o: Operation) -> None:
    there, here = shared_range(w, o.line, to, size), shared_range(w, o.line, source, size)
    if there is not None and here is not None:
        block, offset = here
        read_shared(w, o, block, slice(offset >> 2, (offset + size) >> 2))
        data = block.shared[offset : offset + size].copy()
        block, offset = there
        write_shared(w, o, block, slice(offset >> 2, (offset + size) >> 2))
        block.shared[offset : offset + size] = data
        block.changed(offset, size)
    complete_bytes(w, o.line, barrier, size, o.clock)


@runtime
def bulk_store(w: Warp, line: int, to: Any, source: Any, size: Any, add: bool) -> None:
    """Shared to global memory, or added to fp32 there."""
    o = asynchronous(w, line, "bulk reduction" if add else "bulk store", partial(_run_store, w, one(to), one(source), one(size), add))
    w.bulk.open.append(o)
    w.block.cluster.submit(o)


def _run_store(w: Warp, to: int, source: int, size: int, add: bool, o: Operation) -> None:
    w.bulk.version += 1
    here, there = shared_range(w, o.line, source, size), w.block.cluster.memory.find(to, size)
    if there is None:
        w.find("out of bounds", o.line, f"bulk store of {size} bytes at {to:#x} is not within one tensor")
    if here is None or there is None:
        return
    block, offset = here
    owner, at = there
    read_shared(w, o, block, slice(offset >> 2, (offset + size) >> 2))
    data = block.shared[offset : offset + size]
    if add:
        if not owner.valid[at : at + size].all():
            w.find("uninitialised read", o.line, f"bulk reduction into {owner.name} where nothing has been written")
        owner.data[at : at + size].view(np.float32)[:] += data.view(np.float32)
        return
    owner.data[at : at + size] = data
    owner.valid[at : at + size] = True
    owner.owner[at : at + size] = w.block.cluster.linear(w.block.ctaid)


@runtime
def bulk_wait(w: Warp, line: int, allowed: int) -> bool:
    """Wait for all but the last groups. Source is read and target written at one moment here: ``.read`` makes no difference."""
    groups = w.bulk.finished(allowed)
    if groups is None:
        w.wait(w.bulk, f"PTX line {line}: waits for bulk stores, {len(w.bulk.committed)} groups committed, {allowed} may be in flight")
        return False
    for group in groups:
        group.waited = True
        for o in group.operations:
            w.acquire(o.clock, line)
    return True
