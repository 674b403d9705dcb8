"""Tensor copies by TMA. PTX ISA 9.7.9.27.1 (cp.async.bulk.tensor, cp.reduce.async.bulk.tensor), 5.5 (tensors, out-of-bound zeros)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from twill.emulate.isa.bulk import asynchronous, one, place, read_shared, shared_range, write_shared
from twill.emulate.isa.emitter import Emitter
from twill.emulate.isa.mbarrier import complete_bytes
from twill.emulate.isa.registry import rule, runtime
from twill.emulate.machine.asynchronous import Operation
from twill.emulate.machine.tensormap import TensorMap, decode, inside, swizzled_chunks
from twill.emulate.ptx.syntax import Instruction, Memory

if TYPE_CHECKING:
    from twill.emulate.machine.warp import Warp

__all__: list[str] = []

HINT = r"(\.L2::cache_hint)?"
PAIR = r"(\.cta_group::[12])?"
PEER = 1 << 24
"""The address bit that tells the blocks of a pair apart."""


def _coordinates(e: Emitter, operand: object) -> str:
    assert isinstance(operand, Memory)
    return "(" + "".join(f"{e.scalar(str(e.get(c, 's32')))}, " for c in operand.coordinates) + ")"


@rule(
    rf"cp\.async\.bulk\.tensor\.[1-5]d\.shared::(cta|cluster)\.global(\.tile)?\.mbarrier::complete_tx::bytes(\.multicast::cluster)?{PAIR}{HINT}",
    rf"cp\.async\.bulk\.tensor\.[1-5]d\.shared::(cta|cluster)\.global(\.tile)?\.mbarrier::complete_tx::bytes(\.multicast::cluster)?{HINT}{PAIR}",
)
def _load(e: Emitter, x: Instruction) -> None:
    to, tensor, barrier = x.operands[:3]
    mask = e.scalar(str(e.get(x.operands[3], "u16"))) if "multicast::cluster" in x.parts else None
    e.line(f"tma_load(w, {x.line}, {place(e, to, False)}, {place(e, tensor, True)}, {_coordinates(e, tensor)}, "
           f"{place(e, barrier, False)}, {mask})")  # fmt: skip


@rule(
    rf"cp\.async\.bulk\.tensor\.[1-5]d\.global\.shared::cta(\.tile)?\.bulk_group{HINT}",
    rf"cp\.reduce\.async\.bulk\.tensor\.[1-5]d\.global\.shared::cta\.add(\.tile)?\.bulk_group{HINT}",
)
def _store(e: Emitter, x: Instruction) -> None:
    tensor, source = x.operands[:2]
    e.line(f"tma_store(w, {x.line}, {place(e, tensor, True)}, {_coordinates(e, tensor)}, {place(e, source, False)}, "
           f"{x.parts[1] == 'reduce'})")  # fmt: skip


def _descriptor(w: Warp, line: int, address: Any) -> TensorMap | None:
    data = w.block.cluster.bytes_at(one(address), 128)
    if data is None:
        w.find("out of bounds", line, f"there is no TMA descriptor at {one(address):#x}")
        return None
    return decode(data)


@runtime
def tma_load(w: Warp, line: int, to: Any, address: Any, at: tuple[Any, ...], barrier: Any, multicast: Any) -> None:
    """A box into shared memory; elements outside of the tensor are zero and count in the bytes."""
    tensor = _descriptor(w, line, address)
    if tensor is None:
        return
    coordinates = tuple(one(c) for c in at)
    targets = [(one(to), one(barrier))]
    if multicast is not None:
        own = one(to) & (PEER - 1), one(barrier) & (PEER - 1)
        targets = [(own[0] | r << 24, own[1] | r << 24) for r in range(16) if one(multicast) >> r & 1]
    for target, at_barrier in targets:
        o = asynchronous(w, line, "TMA load", partial(_run_load, w, tensor, coordinates, target, at_barrier))
        w.block.cluster.submit(o)


def _source(w: Warp, line: int, tensor: TensorMap) -> Any:
    place = w.block.cluster.memory.find(tensor.address, 1)
    if place is None:
        w.find("out of bounds", line, f"the TMA descriptor names address {tensor.address:#x}, where there is no tensor", key="address")
    return place


def _view(owner: Any, start: int, tensor: TensorMap, box: Any, table: Any) -> Any:
    """The box's elements within a table of one entry a byte (strides in bytes), by element."""
    last = start + box.offset + sum((n - 1) * s for n, s in zip(box.shape, box.strides, strict=True)) + tensor.element_bytes
    if last > owner.size:
        return None
    kind = table.dtype if table.dtype != np.uint8 else np.dtype(f"u{tensor.element_bytes}")
    begin = (start + box.offset) * table.itemsize
    strides = tuple(s * table.itemsize for s in box.strides)
    return np.ndarray(box.shape, kind, table.data, begin, strides)


def _run_load(w: Warp, tensor: TensorMap, at: tuple[int, ...], to: int, barrier: int, o: Operation) -> None:
    size = tensor.box_bytes
    place, source = shared_range(w, o.line, to, size, 128), _source(w, o.line, tensor)
    if place is not None and source is not None:
        block, offset = place
        owner, start = source
        data = np.zeros(tensor.box[::-1], f"u{tensor.element_bytes}")
        box = inside(tensor, at)
        if box is not None:
            values, valid = (_view(owner, start, tensor, box, t) for t in (owner.data, owner.valid))
            if values is None:
                w.find("out of bounds", o.line, f"a TMA box at {at} goes past the end of {owner.name}: wrong strides in the descriptor?")
            else:
                if not valid.all():
                    w.find("uninitialised read", o.line, f"TMA load of {owner.name} where nothing has been written")
                data[box.inner] = values
        write_shared(w, o, block, slice(offset >> 2, (offset + size) >> 2))
        chunks = swizzled_chunks(offset >> 4, size >> 4, tensor.swizzle)
        block.shared.view(np.uint64).reshape(-1, 2)[chunks] = data.reshape(-1).view(np.uint64).reshape(-1, 2)
        block.changed(offset, size)
    complete_bytes(w, o.line, barrier, size, o.clock)


@runtime
def tma_store(w: Warp, line: int, address: Any, at: tuple[Any, ...], source: Any, add: bool) -> None:
    """A box from shared memory; elements past the end of the tensor are dropped.

    The PTX ISA drops those before its start as well, but a box there is an illegal instruction: observed on an H200, 2026-12-01, with
    boxes of 64 rows at row -64 and -128 (compute-sanitizer named the store). Of boxes that begin before the tensor and end in it, and
    of reductions, nothing was observed: taken to be the same.
    """
    tensor = _descriptor(w, line, address)
    if tensor is None:
        return
    coordinates = tuple(one(c) for c in at)
    if min(coordinates) < 0:
        text = f"TMA store at {coordinates}: a negative coordinate is an illegal instruction on a GPU; skip the store of such a box"
        w.find("out of bounds", line, text, key="negative")
        return
    o = asynchronous(w, line, "TMA store", partial(_run_store, w, tensor, coordinates, one(source), add))
    w.bulk.open.append(o)
    w.block.cluster.submit(o)


def _run_store(w: Warp, tensor: TensorMap, at: tuple[int, ...], source: int, add: bool, o: Operation) -> None:
    w.bulk.version += 1
    size = tensor.box_bytes
    place, target = shared_range(w, o.line, source, size, 128), _source(w, o.line, tensor)
    if place is None or target is None:
        return
    block, offset = place
    owner, start = target
    read_shared(w, o, block, slice(offset >> 2, (offset + size) >> 2))
    chunks = swizzled_chunks(offset >> 4, size >> 4, tensor.swizzle)
    data = block.shared.view(np.uint64).reshape(-1, 2)[chunks].reshape(-1).view(f"u{tensor.element_bytes}").reshape(tensor.box[::-1])
    box = inside(tensor, at)
    if box is None:
        return
    values, owners = (_view(owner, start, tensor, box, t) for t in (owner.data, owner.owner))
    if values is None:
        w.find("out of bounds", o.line, f"a TMA box at {at} goes past the end of {owner.name}: wrong strides in the descriptor?")
        return
    if add:
        values.view(np.float32)[...] += data[box.inner].view(np.float32)
        return
    block_number = w.block.cluster.linear(w.block.ctaid)
    if ((owners >= 0) & (owners != block_number)).any():
        w.find("written twice", o.line, f"writes {owner.name} where block number {int(owners.max())} has written", severity="warning")
    values[...] = data[box.inner]
    for byte in range(tensor.element_bytes):
        np.ndarray(box.shape, bool, owner.valid.data, start + box.offset + byte, box.strides)[...] = True
    owners[...] = block_number
