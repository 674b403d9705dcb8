"""Asynchronous copies of lanes. PTX ISA 9.7.9.25.3 (cp.async)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from twill.emulate.isa.bulk import asynchronous
from twill.emulate.isa.emitter import Emitter
from twill.emulate.isa.memory import address_of
from twill.emulate.isa.registry import rule, runtime
from twill.emulate.machine.asynchronous import Operation
from twill.emulate.ptx.syntax import Immediate, Instruction

if TYPE_CHECKING:
    from twill.emulate.machine.warp import Warp

__all__: list[str] = []

Array = np.ndarray[Any, Any]


@rule(r"cp\.async\.(ca|cg)\.shared(::cta)?\.global(\.L2::\w+)?")
def _copy(e: Emitter, x: Instruction) -> None:
    to, source, size = x.operands[:3]
    assert isinstance(size, Immediate)
    given = e.get(x.operands[3], "u32") if len(x.operands) > 3 else size.bits
    e.line(f"async_copy(w, {x.line}, {address_of(e, to, False)}, {address_of(e, source, True)}, {size.bits}, {given}, {e.mask})")


@rule(r"cp\.async\.commit_group")
def _commit(e: Emitter, x: Instruction) -> None:
    e.line("w.copies.commit()")


@rule(r"cp\.async\.wait_group", r"cp\.async\.wait_all", waits=True)
def _wait(e: Emitter, x: Instruction) -> None:
    amount = x.operands[0].bits if x.operands and isinstance(x.operands[0], Immediate) else 0
    e.line(f"if not async_wait(w, {x.line}, {amount}): return -2")


@runtime
def async_copy(w: Warp, line: int, to: Any, source: Any, size: int, given: Any, mask: Array | None) -> None:
    """``size`` bytes a lane; those from ``given`` on are zero."""
    active = np.ones(32, bool) if mask is None else mask
    targets = np.broadcast_to(np.asarray(to, np.int64), 32)[active]
    sources = np.broadcast_to(np.asarray(source, np.int64), 32)[active]
    sizes = np.broadcast_to(np.asarray(given, np.int64), 32)[active]
    o = asynchronous(w, line, "cp.async", partial(_run, w, targets, sources, size, sizes))
    w.copies.open.append(o)
    w.block.cluster.submit(o)


def _run(w: Warp, targets: Array, sources: Array, size: int, sizes: Array, o: Operation) -> None:
    w.copies.version += 1
    block = w.block
    offsets = targets - block.window
    if int(offsets.min()) < 1024 or int(offsets.max()) + size > block.shared_end:
        w.find("out of bounds", o.line, "cp.async writes out of the bounds of shared memory")
        return
    clocks = block.cluster.clocks
    who = f"cp.async of {w.name}"
    at = ((offsets >> 2)[:, None] + np.arange(size // 4)).ravel()
    block.shadow.write(at, clocks.access(o.component, o.clock, who, o.line, True), o.component, o.clock, block.reporter(o.line, who))
    block.changed_at(offsets)
    for offset, source, count in zip(offsets.tolist(), sources.tolist(), sizes.tolist(), strict=True):
        block.shared[offset : offset + size] = 0
        if count:
            place = block.cluster.memory.find(source, count)
            if place is None:
                w.find("out of bounds", o.line, f"cp.async reads {count} bytes at {source:#x}, which are not within one tensor")
                return
            block.shared[offset : offset + count] = place[0].data[place[1] : place[1] + count]


@runtime
def async_wait(w: Warp, line: int, allowed: int) -> bool:
    """Wait for all but the last groups."""
    groups = w.copies.finished(allowed)
    if groups is None:
        w.wait(w.copies, f"PTX line {line}: waits for cp.async groups")
        return False
    for group in groups:
        group.waited = True
        for o in group.operations:
            w.acquire(o.clock, line)
    return True
