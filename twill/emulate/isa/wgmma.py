"""Warpgroup matrix multiplication of sm_90a. PTX ISA 9.7.15 (fragments: 9.7.15.5.1; descriptors: 9.7.15.5.1.2.2).

Each warp multiplies its own 16 rows (fits; the PTX ISA speaks of the warpgroup). Groups of a warp take effect in order. Products are summed
in fp32 by the host's matrix routine: the tensor core rounds otherwise, so that the last bits differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from twill.emulate.isa.bulk import asynchronous, matrix_operand, one
from twill.emulate.isa.emitter import Emitter
from twill.emulate.isa.registry import rule, runtime
from twill.emulate.machine.asynchronous import Operation
from twill.emulate.machine.operands import tile, to_float
from twill.emulate.ptx.operands import registers
from twill.emulate.ptx.syntax import Immediate, Instruction, Operand, Vector

if TYPE_CHECKING:
    from twill.emulate.machine.warp import Warp

__all__ = ["Shape"]

Array = np.ndarray[Any, Any]
DEPTH = {"bf16": 16, "f16": 16, "tf32": 8}


@dataclass(frozen=True, slots=True)
class Shape:
    """What an instruction says: columns, types, signs, operand order, and the accumulators' places in the register file."""

    columns: int
    kind: str
    negate: bool
    a_transposed: bool
    b_transposed: bool
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Multiply:
    shape: Shape
    line: int
    a: int | tuple[Array, ...]
    b: int
    accumulate: bool


@rule(r"wgmma\.fence\.sync\.aligned")
def _fence(e: Emitter, x: Instruction) -> None:
    """Orders register accesses; whether one is missing is found without running (`twill.emulate.ptx.inflight`)."""


@rule(r"wgmma\.commit_group\.sync\.aligned")
def _commit(e: Emitter, x: Instruction) -> None:
    e.line("wgmma_commit(w)")


@rule(r"wgmma\.wait_group\.sync\.aligned", waits=True)
def _wait(e: Emitter, x: Instruction) -> None:
    amount = x.operands[0]
    assert isinstance(amount, Immediate)
    e.line(f"if not wgmma_wait(w, {x.line}, {amount.bits}): return -2")


@rule(r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k(16|8)\.f32\.(bf16\.bf16|f16\.f16|tf32\.tf32)")
def _multiply(e: Emitter, x: Instruction) -> None:
    accumulators, a, b, scale, *flags = x.operands
    values = [f.bits for f in flags if isinstance(f, Immediate)]
    from_registers = isinstance(a, Vector)
    negate = values[0] * values[1] < 0
    transposes = values[2:]
    a_transposed, b_transposed = (False, bool((transposes or [0])[0])) if from_registers else tuple(bool(t) for t in (transposes or [0, 0]))
    held = tuple(registers(accumulators))
    slots = tuple(e.program.slots[r.name] for r in held)
    shape = Shape(int(x.parts[4].split("n")[1].split("k")[0]), x.parts[-1], negate, a_transposed, b_transposed, slots)
    e.flush(held)
    left = _fragments(e, a) if from_registers else str(e.get(a, "b64"))
    e.line(f"wgmma(w, {x.line}, {e.constant(shape)}, {left}, {e.get(b, 'b64')}, {e.get(scale, 'pred')})")
    e.forget(held)


def _fragments(e: Emitter, a: Operand) -> str:
    assert isinstance(a, Vector)
    return "(" + "".join(f"{e.get(r, 'b32')}, " for r in a.items) + ")"


@runtime
def wgmma(w: Warp, line: int, shape: Shape, a: Any, b: Any, accumulate: Any) -> None:
    """Add an instruction to the group that is open."""
    left = tuple(a) if isinstance(a, tuple) else one(a)
    held = _Multiply(shape, line, left, one(b), bool(one(accumulate)))
    if not w.wgmma.open:
        last = (w.last_wgmma,) if w.last_wgmma is not None and not w.last_wgmma.done else ()
        w.multiplies = [held]
        batch = w.multiplies
        o = asynchronous(w, line, "wgmma", lambda o: _run(w, batch, o), last)
        w.wgmma.open.append(o)
        w.last_wgmma = o
    else:
        w.multiplies.append(held)


@runtime
def wgmma_commit(w: Warp) -> None:
    for o in w.wgmma.commit().operations:
        w.block.cluster.submit(o)


@runtime
def wgmma_wait(w: Warp, line: int, allowed: int) -> bool:
    """Wait for all but the last groups."""
    groups = w.wgmma.finished(allowed)
    if groups is None:
        w.wait(w.wgmma, f"PTX line {line}: waits for wgmma groups")
        return False
    for group in groups:
        group.waited = True
        for o in group.operations:
            w.acquire(o.clock, line)
    return True


def _run(w: Warp, batch: list[_Multiply], o: Operation) -> None:
    w.wgmma.version += 1
    at = 0
    while at < len(batch):
        first = batch[at]
        end = at + 1
        while end < len(batch) and _extends(first, batch[end]):
            end += 1
        _product(w, batch[at:end], o)
        at = end


def _extends(first: _Multiply, next_one: _Multiply) -> bool:
    return next_one.accumulate and next_one.shape == first.shape and isinstance(next_one.a, int) == isinstance(first.a, int)


def _product(w: Warp, chain: list[_Multiply], o: Operation) -> None:
    """Consecutive instructions on the same accumulators as one product."""
    shape, block = chain[0].shape, w.block
    depth, size = DEPTH[shape.kind], 4 if shape.kind == "tf32" else 2
    o.line = chain[0].line
    b_descriptors = tuple(m.b for m in chain)
    b = matrix_operand(w, o, block, tile(b_descriptors, 0, shape.columns, depth, shape.b_transposed, size), shape.kind, size)
    if isinstance(chain[0].a, int):
        found = tile(tuple(m.a for m in chain if isinstance(m.a, int)), 16 * (w.index % 4), 16, depth, shape.a_transposed, size)
        a = matrix_operand(w, o, block, found, shape.kind, size)
    else:
        a = np.concatenate([_from_fragments(m.a, shape.kind) for m in chain if not isinstance(m.a, int)], axis=1)
    product = a @ b.T
    fragments = product.reshape(2, 8, shape.columns // 8, 4, 2).transpose(2, 0, 4, 1, 3).reshape(shape.columns // 2, 32)
    if shape.negate:
        fragments = -fragments
    R = w.R
    fragments = fragments + np.stack([R[s] for s in shape.slots]) if chain[0].accumulate else np.ascontiguousarray(fragments)
    for s, row in zip(shape.slots, fragments, strict=True):
        R[s] = row


def _from_fragments(parts: tuple[Array, ...], kind: str) -> Array:
    """A of 16 x 16 from four registers: lane 4g+q holds rows g and g+8, columns 2q, 2q+1 and those plus 8."""
    stacked = np.stack([np.ascontiguousarray(p) for p in parts])
    if kind == "tf32":
        values = to_float(stacked, kind).reshape(2, 2, 8, 4)
        return values.transpose(1, 2, 0, 3).reshape(16, 8)
    values = to_float(stacked.view(np.uint16), kind).reshape(2, 2, 8, 4, 2)
    return values.transpose(1, 2, 0, 3, 4).reshape(16, 16)
