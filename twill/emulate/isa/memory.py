"""Loads and stores of lanes. PTX ISA 9.7.9.8 (ld), 9.7.9.11 (st), 9.7.14.5.15 and .16 (ldmatrix, stmatrix)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from twill.emulate.isa.emitter import WIDTH, Emitter
from twill.emulate.isa.registry import rule, runtime
from twill.emulate.machine.memory import FIRST, PARAMETERS
from twill.emulate.ptx.syntax import Instruction, Memory, Operand, Register, Sink, Symbol, Vector

if TYPE_CHECKING:
    from twill.emulate.machine.warp import Warp

__all__ = ["address_of", "shared_read", "shared_write"]

Array = np.ndarray[Any, Any]
TYPES = r"(v[248]\.)?([bus](8|16|32|64)|f(32|64))"
SPACE = r"(global|shared|shared::cta|shared::cluster|local)"
ORDER = r"(weak|volatile|relaxed|acquire|release)(\.(cta|cluster|gpu|sys))?"
CACHE = r"(nc|ca|cg|cs|lu|cv|wb|wt|L1::\w+|L2::\w+)"


def address_of(e: Emitter, operand: Operand, wide: bool) -> str:
    """The address in a memory operand, as a Python integer or an array."""
    assert isinstance(operand, Memory)
    base = e.get(operand.base, "b64" if wide else "b32")
    if not operand.offset:
        return str(base)
    offset = operand.offset if base.uniform or operand.offset > 0 else operand.offset & (0xFFFFFFFFFFFFFFFF if wide else 0xFFFFFFFF)
    return f"({base} + {offset})"


def _wide(x: Instruction) -> bool:
    return not any(p.startswith("shared") for p in x.parts)


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


@rule(rf"ld\.param\.{TYPES}")
def _parameter(e: Emitter, x: Instruction) -> None:
    source, kind = x.operands[1], x.parts[-1]
    assert isinstance(source, Memory)
    assert isinstance(source.base, Symbol), "a parameter addressed through a register"
    size = WIDTH[kind] // 8
    for i, item in enumerate(_items(x.operands[0])):
        held = kind if WIDTH[kind] > 8 else kind[0] + "16"
        text = f"w.block.cluster.parameter({source.base.name!r}, {source.base.offset + source.offset + i * size}, {size})"
        e.put(item, text, "b" + held[1:], True)


@rule(rf"ld(\.{ORDER})?(\.{SPACE})?(\.{CACHE})*\.{TYPES}")
def _load(e: Emitter, x: Instruction) -> None:
    targets, kind = _items(x.operands[0]), x.parts[-1]
    size = WIDTH[kind] // 8
    single = all(e.uniform(t) for t in targets)
    got = e.name()
    address = address_of(e, x.operands[1], _wide(x))
    wanted = tuple(i for i, t in enumerate(targets) if isinstance(t, Register) and t.name in e.program.used)
    ordered = "acquire" in x.parts or "relaxed" in x.parts
    e.line(f"{got} = load(w, {x.line}, {address}, {e.mask}, {size}, {len(targets)}, {single}, {wanted}, {ordered})")
    held = "b" + str(max(16, WIDTH[kind]))
    for i, t in enumerate(targets):
        if isinstance(t, Sink):
            continue
        text = f"{got}[{i}]"
        if kind == "s8":
            text = f"signed({text}, 8)" if single else f"{text}.view(i8).astype(i16).view(u16)"
        elif size == 1 and not single:
            text = f"{text}.astype(u16)"
        e.put(t, text, held, single)


@rule(rf"st(\.{ORDER})?(\.{SPACE})?(\.{CACHE})*\.{TYPES}")
def _store(e: Emitter, x: Instruction) -> None:
    kind = x.parts[-1]
    size = WIDTH[kind] // 8
    values = ", ".join(str(e.get(v, f"b{max(8 * size, 16)}")) for v in _items(x.operands[1]))
    address = address_of(e, x.operands[0], _wide(x))
    e.line(f"store(w, {x.line}, {address}, {e.mask}, {size}, ({values},), {'release' in x.parts})")


@rule(r"stmatrix\.sync\.aligned\.m8n8\.x[124](\.trans)?(\.shared(::cta)?)?\.b16", converges=True)
def _stmatrix(e: Emitter, x: Instruction) -> None:
    values = ", ".join(str(e.get(v, "b32")) for v in _items(x.operands[1]))
    address = address_of(e, x.operands[0], False)
    e.line(f"stmatrix(w, {x.line}, {address}, ({values},), {'trans' in x.parts})")


@rule(r"ldmatrix\.sync\.aligned\.m8n8\.x[124](\.trans)?(\.shared(::cta)?)?\.b16", converges=True)
def _ldmatrix(e: Emitter, x: Instruction) -> None:
    targets = _items(x.operands[0])
    got = e.name()
    address = address_of(e, x.operands[1], False)
    e.line(f"{got} = ldmatrix(w, {x.line}, {address}, {len(targets)}, {'trans' in x.parts})")
    for i, t in enumerate(targets):
        e.put(t, f"{got}[{i}]", "b32", False)


@rule(
    r"(red|atom)(\.(relaxed|release|acquire|acq_rel))?(\.(cta|cluster|gpu|sys))?\.global\.(add|inc|exch|max)\.(s32|u32|b32|f32)",
    r"atom(\.(relaxed|release|acquire|acq_rel))?(\.(cta|cluster|gpu|sys))?\.global\.cas\.b32",
    r"red(\.relaxed|\.release)?(\.gpu)?\.global(\.add)?(\.v[24])?(\.add)?(\.noftz)?\.f32",
)
def _atomic(e: Emitter, x: Instruction) -> None:
    returns = x.parts[0] == "atom"
    operands = x.operands[1:] if returns else x.operands
    kind = x.parts[-1]
    operation = next(p for p in x.parts if p in ("add", "inc", "exch", "max", "cas"))
    given = operands[1:] if operation == "cas" else _items(operands[1])
    values = ", ".join(str(e.get(v, "f32" if kind == "f32" else kind)) for v in given)
    got = e.name()
    e.line(f"{got} = atomic(w, {x.line}, {operation!r}, {kind!r}, {address_of(e, operands[0], True)}, {e.mask}, ({values},))")
    if returns:
        e.put(x.operands[0], got, kind, False)


@rule(r"red\.release\.cta\.shared(::cta)?\.add\.u32")
def _shared_count(e: Emitter, x: Instruction) -> None:
    e.line(f"shared_count(w, {x.line}, {address_of(e, x.operands[0], False)}, {e.mask}, {e.get(x.operands[1], 'u32')})")


def _lanes(address: Any, mask: Array | None) -> Array:
    found = np.asarray(address, np.int64)
    if found.ndim == 0:
        found = np.full(32, found)
    return found if mask is None else found[mask]


def shared_read(w: Warp, line: int, offsets: Array, size: int, block: Any) -> None:
    """Note that a warp reads ``size`` bytes at each of some offsets of a block's shared memory."""
    number = w.block.cluster.clocks.access(w.component, w.clock, w.name, line, True)
    block.shadow.read(_granules(offsets, size), number, w.component, w.clock, block.reporter(line, w.name))


def shared_write(w: Warp, line: int, offsets: Array, size: int, block: Any) -> None:
    """Note that a warp writes."""
    number = w.block.cluster.clocks.access(w.component, w.clock, w.name, line, True)
    block.changed_at(offsets)
    block.shadow.write(_granules(offsets, size), number, w.component, w.clock, block.reporter(line, w.name))


def _granules(offsets: Array, size: int) -> Array:
    if size <= 4:
        return offsets >> 2
    return ((offsets >> 2)[:, None] + np.arange(-(-size // 4))).ravel()


def _in_shared(w: Warp, line: int, lanes: Array, size: int) -> Any:
    """Block and offsets of addresses in shared memory; None after a finding."""
    block = w.block.cluster.block_of(int(lanes[0]))
    if block is None or (block is not w.block and not block.running):
        w.find("out of bounds", line, f"shared memory address {int(lanes[0]):#x} belongs to no running block")
        return None
    offsets = lanes - block.window
    if int(offsets.min()) < 1024 or int(offsets.max()) + size > block.shared_end:
        w.find("out of bounds", line, f"shared memory offset {int(offsets.max()) - 1024} is not within {block.shared_end - 1024} bytes")
        return None
    return block, offsets


def _in_global(w: Warp, line: int, lanes: Array, size: int) -> Any:
    low, high = int(lanes.min()), int(lanes.max())
    found = w.block.cluster.memory.find(low, high - low + size)
    if found is None:
        w.find("out of bounds", line, f"global address {low:#x} to {high + size:#x} is not within one tensor")
        return None
    return found[0], lanes - found[0].base


@runtime
def load(
    w: Warp, line: int, address: Any, mask: Array | None, size: int, count: int, single: bool, wanted: tuple[int, ...], looks: bool = False
) -> list[Any]:  # fmt: skip
    """``count`` consecutive values of ``size`` bytes a lane, as unsigned integers.

    Only those of ``wanted`` count as read: a compiler may widen a load over padding that nothing has written. A load that ``looks``
    at words through which warps tell each other something learns, of shared memory, what who released them knew.
    """
    if looks and w.looked is None:
        w.looked = w.block.cluster.activity.version
    lanes = np.array([address], np.int64) if single else _lanes(address, mask)
    kind = f"u{size}"
    first = int(lanes[0])
    if PARAMETERS <= first < FIRST:
        return [w.block.cluster.parameter_at(first + i * size, size) for i in range(count)]
    place = _in_global(w, line, lanes, size * count) if first >= FIRST else _in_shared(w, line, lanes, size * count)
    if place is None:
        return [0] * count if single else [np.zeros(32, kind)] * count
    owner, offsets = place
    if first >= FIRST:
        data = owner.data
        if not owner.valid[offsets].all():
            w.find("uninitialised read", line, f"reads {owner.name} where nothing has been written")
    else:
        data = owner.shared
        if looks:
            for offset in offsets.tolist():
                if offset in owner.words:
                    w.acquire(owner.words[offset], line)
        elif len(wanted) == count:
            shared_read(w, line, offsets, size * count, owner)
        else:
            for i in wanted:
                shared_read(w, line, offsets + i * size, size, owner)
    at = offsets // size
    view = data.view(kind)
    values = [view[at + i] for i in range(count)]
    if single:
        return [int(v[0]) for v in values]
    if mask is None:
        return values
    spread = []
    for v in values:
        whole = np.zeros(32, kind)
        whole[mask] = v
        spread.append(whole)
    return spread


@runtime
def store(w: Warp, line: int, address: Any, mask: Array | None, size: int, values: tuple[Any, ...], releases: bool = False) -> None:
    """Store ``values`` of ``size`` bytes each side by side, a lane each. One that ``releases`` passes on what the warp knows."""
    w.block.cluster.activity.version += 1
    lanes = _lanes(address, mask)
    kind = f"u{size}"
    first = int(lanes[0])
    place = _in_global(w, line, lanes, size * len(values)) if first >= FIRST else _in_shared(w, line, lanes, size * len(values))
    if place is None:
        return
    owner, offsets = place
    if first >= FIRST:
        if releases:
            owner.valid[(offsets[:, None] + np.arange(size * len(values))).ravel()] = True
        else:
            note_global_write(w, line, owner, offsets, size * len(values))
        data = owner.data
    else:
        data = owner.shared
        if releases:
            _release(w, owner, offsets)
        else:
            shared_write(w, line, offsets, size * len(values), owner)
    at = offsets // size
    view = data.view(kind)
    for i, v in enumerate(values):
        chosen = v if not isinstance(v, np.ndarray) or mask is None else v[mask]
        if isinstance(chosen, int):
            chosen &= (1 << (8 * size)) - 1
        view[at + i] = chosen.astype(kind) if isinstance(chosen, np.ndarray) else chosen


def _release(w: Warp, block: Any, offsets: Array) -> None:
    clock = w.release()
    for offset in offsets.tolist():
        known = block.words.get(offset)
        block.words[offset] = clock if known is None else np.maximum(known, clock)


@runtime
def shared_count(w: Warp, line: int, address: Any, mask: Array | None, amount: Any) -> None:
    """Add to words in shared memory, and pass on what the warp knows to whoever acquires them."""
    lanes = _lanes(address, mask)
    place = _in_shared(w, line, lanes, 4)
    if place is None:
        return
    owner, offsets = place
    w.block.cluster.activity.version += 1
    _release(w, owner, offsets)
    added = amount[mask] if isinstance(amount, np.ndarray) and mask is not None else amount
    np.add.at(owner.shared.view(np.uint32), offsets >> 2, np.uint32(added))


def note_global_write(w: Warp, line: int, owner: Any, offsets: Array, size: int) -> None:
    """Mark bytes as written by this block; say so if another block has written them."""
    where = offsets if size == 1 else (offsets[:, None] + np.arange(size)).ravel()
    block = w.block.cluster.linear(w.block.ctaid)
    others = owner.owner[where]
    if ((others >= 0) & (others != block)).any():
        w.find("written twice", line, f"writes {owner.name} where block number {int(others.max())} has written", severity="warning")
    owner.owner[where] = block
    owner.valid[where] = True


@runtime
def stmatrix(w: Warp, line: int, address: Any, values: tuple[Array, ...], transposed: bool) -> None:
    """Matrix i of 8 x 8 halves goes to the 8 rows whose addresses lanes 8i..8i+7 give; lane l holds row l/4, columns 2(l%4).."""
    lanes = _lanes(address, None)
    count = len(values)
    rows = lanes[: 8 * count]
    place = _in_shared(w, line, rows, 16)
    if place is None:
        return
    block, offsets = place
    shared_write(w, line, offsets, 16, block)
    matrices = np.stack([np.ascontiguousarray(v).view(np.uint16).reshape(8, 8) for v in values])
    if transposed:
        matrices = matrices.transpose(0, 2, 1)
    view = block.shared.view(np.uint16)
    view[(offsets >> 1)[:, None] + np.arange(8)] = matrices.reshape(8 * count, 8)


@runtime
def ldmatrix(w: Warp, line: int, address: Any, count: int, transposed: bool) -> list[Array]:
    """The inverse of ``stmatrix``."""
    lanes = _lanes(address, None)
    rows = lanes[: 8 * count]
    place = _in_shared(w, line, rows, 16)
    if place is None:
        return [np.zeros(32, np.uint32)] * count
    block, offsets = place
    shared_read(w, line, offsets, 16, block)
    data = block.shared.view(np.uint16)[(offsets >> 1)[:, None] + np.arange(8)].reshape(count, 8, 8)
    if transposed:
        data = data.transpose(0, 2, 1)
    return [np.ascontiguousarray(m).reshape(-1).view(np.uint32) for m in data]


@runtime
def atomic(w: Warp, line: int, operation: str, kind: str, address: Any, mask: Array | None, values: tuple[Any, ...]) -> Array:
    """Lane after lane; gives the values before."""
    w.block.cluster.activity.version += 1
    lanes = _lanes(address, mask)
    size = 4
    before = np.zeros(32, np.uint32)
    place = _in_global(w, line, lanes, size if operation == "cas" else size * len(values))
    if place is None:
        return before
    owner, offsets = place
    form = {"f32": np.float32, "s32": np.int32}.get(kind, np.uint32)
    view = owner.data.view(form)
    active = np.arange(32) if mask is None else np.flatnonzero(mask)
    for lane, offset in zip(active, offsets, strict=True):
        if operation == "cas":
            at = int(offset) // size
            before[lane] = owner.data.view(np.uint32)[at]
            wanted, new = (v[lane] if isinstance(v, np.ndarray) else v for v in values)
            if before[lane] == np.uint32(wanted):
                owner.data.view(np.uint32)[at] = np.uint32(new)
            continue
        for i, v in enumerate(values):
            at = int(offset) // size + i
            given = v[lane] if isinstance(v, np.ndarray) else form(v)
            before[lane] = owner.data.view(np.uint32)[at]
            if operation == "add":
                view[at] += given
            elif operation == "inc":
                view[at] = 0 if view[at] >= given else view[at] + 1
            elif operation == "max":
                view[at] = max(view[at], given)
            else:
                view[at] = given
    wide = size if operation == "cas" else size * len(values)
    owner.valid[(offsets[:, None] + np.arange(wide)).ravel()] = True
    return before
