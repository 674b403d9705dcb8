"""Tensor memory and tensor cores of sm_100. PTX ISA 9.7.16.

Matrix instructions of a block, or of a pair, take effect in the order of their issue (assumed; if it is not so, races hide). Loads of
tensor memory are done when issued here; that they are waited for is checked on the PTX (`twill.emulate.ptx.inflight`). Stores take effect
late.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from twill.emulate.isa.bulk import asynchronous, matrix_operand, one, place
from twill.emulate.isa.emitter import Emitter
from twill.emulate.isa.mbarrier import complain, lookup
from twill.emulate.isa.memory import address_of, shared_write
from twill.emulate.isa.registry import rule, runtime
from twill.emulate.machine.asynchronous import Operation
from twill.emulate.machine.block import WINDOW
from twill.emulate.machine.operands import tile, to_float
from twill.emulate.machine.tensor_memory import COLUMNS, granules
from twill.emulate.ptx.syntax import Immediate, Instruction, Memory, Vector

if TYPE_CHECKING:
    from twill.emulate.machine.block import Block
    from twill.emulate.machine.warp import Warp

__all__ = ["Descriptor"]

Array = np.ndarray[Any, Any]
GROUP = r"\.cta_group::[12]"
SHAPE = r"\.32x32b\.x(1|2|4|8|16|32|64|128)"


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The instruction descriptor of kind::f16 (cute/arch/mma_sm100_desc.hpp)."""

    kind: str
    b_kind: str
    rows: int
    columns: int
    negate: bool
    a_transposed: bool
    b_transposed: bool

    @classmethod
    def decode(cls, bits: int) -> Descriptor | None:
        """Accumulator format in bits 4-5, A and B in 7-9 and 10-12, signs 13-14, majors 15-16, N/8 in 17-22, M/16 in 24-28."""
        kinds = {0: "f16", 1: "bf16"}
        a, b = kinds.get(bits >> 7 & 7), kinds.get(bits >> 10 & 7)
        if bits >> 4 & 3 != 1 or a is None or b is None:
            return None
        negate = bool((bits >> 13 ^ bits >> 14) & 1)
        return cls(a, b, (bits >> 24 & 31) << 4, (bits >> 17 & 63) << 3, negate, bool(bits >> 15 & 1), bool(bits >> 16 & 1))


@rule(rf"tcgen05\.alloc{GROUP}\.sync\.aligned\.shared::cta\.b32", waits=True)
def _alloc(e: Emitter, x: Instruction) -> None:
    e.line(f"if not tensor_alloc(w, {x.line}, {address_of(e, x.operands[0], False)}, {e.get(x.operands[1], 'u32')}): return -2")


@rule(rf"tcgen05\.dealloc{GROUP}\.sync\.aligned\.b32")
def _dealloc(e: Emitter, x: Instruction) -> None:
    e.line(f"tensor_dealloc(w, {x.line}, {e.get(x.operands[0], 'u32')}, {e.get(x.operands[1], 'u32')})")


@rule(rf"tcgen05\.relinquish_alloc_permit{GROUP}\.sync\.aligned")
def _relinquish(e: Emitter, x: Instruction) -> None:
    e.line("w.block.tensor.permitted = False")


@rule(rf"tcgen05\.ld\.sync\.aligned{SHAPE}\.b32")
def _load(e: Emitter, x: Instruction) -> None:
    targets = x.operands[0].items if isinstance(x.operands[0], Vector) else (x.operands[0],)
    got = e.name()
    e.line(f"{got} = tensor_load(w, {x.line}, {place(e, x.operands[1], False)}, {len(targets)})")
    for i, t in enumerate(targets):
        e.put(t, f"{got}[{i}]", "b32", False)


@rule(rf"tcgen05\.ld\.red\.sync\.aligned{SHAPE}\.(min|max)\.f32")
def _load_reduced(e: Emitter, x: Instruction) -> None:
    """Also the least or largest of what a lane loads, NaN left out (PTX ISA 9.7.16.8.3; no kernel that a GPU ran has it here)."""
    assert isinstance(x.operands[0], Vector)
    got = e.name()
    e.line(f"{got} = tensor_load(w, {x.line}, {place(e, x.operands[2], False)}, {len(x.operands[0].items)})")
    for i, t in enumerate(x.operands[0].items):
        e.put(t, f"{got}[{i}]", "b32", False)
    e.put(x.operands[1], f"tensor_reduced({got}, {'max' in x.parts})", "b32", False)


@rule(r"tcgen05\.ld\.sync\.aligned\.16x256b\.x(1|2|4|8|16|32)\.b32")
def _load_fragments(e: Emitter, x: Instruction) -> None:
    """16 lanes of 8 columns a repetition, in the order of an MMA's result (fits CUTLASS's dense GEMM with M 64)."""
    assert isinstance(x.operands[0], Vector)
    got, count = e.name(), len(x.operands[0].items)
    e.line(f"{got} = tensor_load_fragments(w, {x.line}, {e.scalar(address_of(e, x.operands[1], False))}, {count})")
    for i, t in enumerate(x.operands[0].items):
        e.put(t, f"{got}[{i}]", "b32", False)


@rule(rf"tcgen05\.st\.sync\.aligned{SHAPE}\.b32")
def _store(e: Emitter, x: Instruction) -> None:
    sources = x.operands[1].items if isinstance(x.operands[1], Vector) else (x.operands[1],)
    values = ", ".join(str(e.get(s, "b32")) for s in sources)
    e.line(f"tensor_store(w, {x.line}, {place(e, x.operands[0], False)}, ({values},))")


@rule(r"tcgen05\.wait::ld\.sync\.aligned")
def _wait_load(e: Emitter, x: Instruction) -> None:
    """Loads are done when issued; the analysis of the PTX looks for missing waits."""


@rule(r"tcgen05\.wait::st\.sync\.aligned", waits=True)
def _wait_store(e: Emitter, x: Instruction) -> None:
    e.line(f"if not tensor_wait(w, {x.line}): return -2")


@rule(r"tcgen05\.fence::(before|after)_thread_sync")
def _fence(e: Emitter, x: Instruction) -> None:
    """Whether one is missing is not seen: flash-attn-4 has none."""


@rule(rf"tcgen05\.mma{GROUP}\.kind::f16(\.collector::a::(discard|fill|use|lastuse))?")
def _multiply(e: Emitter, x: Instruction) -> None:
    d, a, b, descriptor, *rest = x.operands
    if isinstance(rest[0], Vector):
        rest = rest[1:]
    in_tensor = isinstance(a, Memory)
    left = address_of(e, a, False) if in_tensor else str(e.get(a, "b64"))
    enable = rest[0]
    on = str(bool(enable.bits)) if isinstance(enable, Immediate) else str(e.get(enable, "pred"))
    pair = "cta_group::2" in x.parts
    e.line(
        f"tensor_multiply(w, {x.line}, {pair}, {place(e, d, False)}, {e.scalar(left)}, {in_tensor}, "
        f"{e.scalar(str(e.get(b, 'b64')))}, {e.scalar(str(e.get(descriptor, 'b32')))}, {e.scalar(on)})"
    )


@rule(rf"tcgen05\.commit{GROUP}\.mbarrier::arrive::one\.shared::cluster(\.multicast::cluster)?\.b64")
def _commit(e: Emitter, x: Instruction) -> None:
    mask = e.scalar(str(e.get(x.operands[1], "u16"))) if "multicast::cluster" in x.parts else None
    e.line(f"tensor_commit(w, {x.line}, {place(e, x.operands[0], False)}, {mask})")


@runtime
def tensor_alloc(w: Warp, line: int, address: Any, columns: Any) -> bool:
    """Give columns, and write their address to shared memory; waits while there is no room."""
    memory, count = w.block.tensor, one(columns)
    if count < 32 or count > COLUMNS or count & (count - 1):
        w.find("tensor memory", line, f"allocates {count} columns: a power of two from 32 to 512 is needed")
        return True
    if not memory.permitted:
        w.find("tensor memory", line, "allocates after it gave up the right to", key="permit")
    begin = memory.allocate(count)
    if begin is None:
        w.wait(memory, f"PTX line {line}: waits for {count} columns of tensor memory")
        return False
    at = one(address)
    offset = at - w.block.window
    shared_write(w, line, np.array([offset]), 4, w.block)
    w.block.shared.view(np.uint32)[offset >> 2] = begin
    return True


@runtime
def tensor_dealloc(w: Warp, line: int, address: Any, columns: Any) -> None:
    """Take columns back. A commit may still be pending, a multiplication may not."""
    memory = w.block.tensor
    if memory.allocated.pop(one(address) & 0xFFFF, 0) != one(columns):
        w.find("tensor memory", line, f"frees {one(columns)} columns at {one(address) & 0xFFFF}, which were not allocated so")
    memory.version += 1


def _place(w: Warp, line: int, address: int, count: int) -> int | None:
    """Column of a warp's access; None after a finding."""
    lane, column = address >> 16, address & 0xFFFF
    quarter = w.index % 4
    if lane != 32 * quarter:
        w.find("tensor memory", line, f"reaches lane {lane}: warp {w.index} owns lanes {32 * quarter} to {32 * quarter + 31}", key="lane")
        return None
    if not w.block.tensor.holds(column, count):
        w.find("tensor memory", line, f"reaches columns {column} to {column + count - 1}, which are not allocated", key="columns")
        return None
    return column


@runtime
def tensor_load(w: Warp, line: int, address: Any, count: int) -> list[Array]:
    """Register j of lane i is column + j of lane i of the warp's quarter."""
    column = _place(w, line, one(address), count)
    if column is None:
        return [np.zeros(32, np.uint32)] * count
    memory, quarter = w.block.tensor, w.index % 4
    number = w.block.cluster.clocks.access(w.component, w.clock, w.name, line, True)
    memory.shadow.read(granules((quarter,), column, count), number, w.component, w.clock, w.block.reporter(line, w.name, "tensor memory"))
    return list(memory.words[32 * quarter : 32 * quarter + 32, column : column + count].T.copy())


@runtime
def tensor_reduced(loaded: list[Array], largest: bool) -> Array:
    """Of each lane."""
    values = np.stack(loaded).view(np.float32)
    found: Array = (np.fmax if largest else np.fmin).reduce(values, axis=0).view(np.uint32)
    return found


@runtime
def tensor_load_fragments(w: Warp, line: int, address: Any, count: int) -> list[Array]:
    """Registers 4j to 4j+3 of lane 4g+q: rows g, g, g+8, g+8 of 16, columns 8j+2q, 8j+2q+1 and these again."""
    at, columns = one(address), 2 * count
    half = at >> 16 & 16
    column = _place(w, line, at & ~(16 << 16), columns)
    if column is None:
        return [np.zeros(32, np.uint32)] * count
    memory, quarter = w.block.tensor, w.index % 4
    number = w.block.cluster.clocks.access(w.component, w.clock, w.name, line, True)
    memory.shadow.read(granules((quarter,), column, columns), number, w.component, w.clock, w.block.reporter(line, w.name, "tensor memory"))
    first = 32 * quarter + half
    data = memory.words[first : first + 16, column : column + columns]
    ordered = data.reshape(2, 8, columns // 8, 4, 2).transpose(2, 0, 4, 1, 3).reshape(count, 32)
    return list(np.ascontiguousarray(ordered))


@runtime
def tensor_store(w: Warp, line: int, address: Any, values: tuple[Any, ...]) -> None:
    """The inverse; takes effect by the time that ``wait::st`` returns."""
    column = _place(w, line, one(address), len(values))
    if column is None:
        return
    data = np.stack([v if isinstance(v, np.ndarray) else np.full(32, v, np.uint32) for v in values], axis=1).view(np.uint32)
    o = asynchronous(w, line, "store to tensor memory", partial(_run_store, w, column, data))
    w.tensor_stores.append(o)
    w.block.cluster.submit(o)


def _run_store(w: Warp, column: int, data: Array, o: Operation) -> None:
    memory, quarter, count = w.block.tensor, w.index % 4, data.shape[1]
    who = f"{o.name} of {w.name}"
    number = w.block.cluster.clocks.access(o.component, o.clock, who, o.line, False)
    report = w.block.reporter(o.line, who, "tensor memory")
    memory.shadow.write(granules((quarter,), column, count), number, o.component, o.clock, report)
    memory.words[32 * quarter : 32 * quarter + 32, column : column + count] = data
    w.tensor_done.version += 1


@runtime
def tensor_wait(w: Warp, line: int) -> bool:
    """Wait for all stores of this warp to tensor memory."""
    if not all(o.done for o in w.tensor_stores):
        w.wait(w.tensor_done, f"PTX line {line}: waits for its stores to tensor memory")
        return False
    for o in w.tensor_stores:
        w.acquire(o.clock, line)
    w.tensor_stores.clear()
    return True


def _issue(w: Warp, line: int, name: str, body: Any) -> Operation:
    """An operation that takes effect after those of this warp before it."""
    if w.tensor_queue is None:
        component, clock = w.block.cluster.clocks.component()
        w.tensor_queue = (component, clock, None)
    component, clock, last = w.tensor_queue
    clock = np.maximum(clock, w.clock)
    clock[0, component] += 1
    w.clock[0, w.component] += 1
    o = Operation(name, line, clock, component, body, (last,) if last is not None and not last.done else ())
    w.tensor_queue = (component, clock, o)
    w.block.cluster.submit(o)
    return o


@runtime
def tensor_multiply(w: Warp, line: int, pair: bool, d: Any, a: Any, in_tensor: bool, b: Any, bits: Any, accumulate: Any) -> None:
    """D = A B, or + D. The blocks of a pair share the work; the leader, of even rank, issues it."""
    descriptor = Descriptor.decode(one(bits))
    if descriptor is None:
        w.find("tensor memory", line, f"instruction descriptor {one(bits):#x} is not known to the emulator")
        return
    blocks = tuple(w.block.cluster.blocks[w.block.rank & ~1 : (w.block.rank & ~1) + 2]) if pair else (w.block,)
    if pair and w.block.rank & 1:
        w.find("tensor memory", line, "issues a multiplication for a pair from its second block", key="leader")
    body = partial(_run_multiply, w, descriptor, blocks, one(d), one(a), in_tensor, one(b), bool(one(accumulate)))
    _issue(w, line, "MMA", body)


def _run_multiply(
    w: Warp, t: Descriptor, blocks: tuple[Block, ...], d: int, a: int, in_tensor: bool, b: int, accumulate: bool, o: Operation
) -> None:
    n = len(blocks)
    rows = t.rows // n
    b_parts = [_shared(w, o, block, b, t.columns // n, t.b_transposed, t.b_kind) for block in blocks]
    right = b_parts[0] if n == 1 else np.concatenate(b_parts)
    sign = np.float32(-1 if t.negate else 1)
    for block in blocks:
        if not block.running:
            w.find("tensor memory", o.line, "multiplies into the memory of a block that has ended", key="ended")
            continue
        left = _from_tensor(w, o, block, a, rows, t.kind) if in_tensor else _shared(w, o, block, a, rows, t.a_transposed, t.kind)
        product = (left @ right.T) * sign
        _accumulate(w, o, block, product, d, n == 2 and t.rows == 128, accumulate)


def _shared(w: Warp, o: Operation, block: Block, descriptor: int, rows: int, transposed: bool, kind: str) -> Array:
    found: Array = matrix_operand(w, o, block, tile((descriptor,), 0, rows, 16, transposed, 2), kind, 2)
    return found


def _quarters(rows: int) -> tuple[int, ...]:
    return tuple(range(4)) if rows != 64 else (0, 1)


def _from_tensor(w: Warp, o: Operation, block: Block, address: int, rows: int, kind: str) -> Array:
    """A from tensor memory: row i in lane i, two elements a column, even k low."""
    column = address & 0xFFFF
    who = f"MMA of {w.name}"
    number = w.block.cluster.clocks.access(o.component, o.clock, who, o.line, False)
    at = granules(_quarters(rows), column, 8)
    block.tensor.shadow.read(at, number, o.component, o.clock, block.reporter(o.line, who, "tensor memory"))
    words = np.ascontiguousarray(block.tensor.words[:rows, column : column + 8])
    return to_float(words.view(np.uint16), kind)


def _accumulate(w: Warp, o: Operation, block: Block, product: Array, d: int, halves: bool, accumulate: bool) -> None:
    """Row i in lane i; of a pair with M 128, the second half of the columns is in lanes 64 to 127; M 64 uses 16 lanes of each quarter."""
    column, memory = d & 0xFFFF, block.tensor
    rows, columns = product.shape
    if halves:
        product = np.concatenate([product[:, : columns // 2], product[:, columns // 2 :]])
        columns //= 2
        lanes: Any = slice(0, 128)
    elif rows == 64:
        lanes = np.arange(64) % 16 + np.arange(64) // 16 * 32
    else:
        lanes = slice(0, rows)
    who = f"MMA of {w.name}"
    if not memory.holds(column, columns):
        w.find("tensor memory", o.line, f"multiplies into columns {column} to {column + columns - 1}, which are not allocated")
        return
    report = block.reporter(o.line, who, "tensor memory")
    number = w.block.cluster.clocks.access(o.component, o.clock, who, o.line, False)
    at = granules((0, 1, 2, 3), column, columns)
    if accumulate:
        memory.shadow.read(at, number, o.component, o.clock, report)
    memory.shadow.write(at, number, o.component, o.clock, report)
    target = memory.words.view(np.float32)
    if accumulate:
        target[lanes, column : column + columns] += product
    else:
        target[lanes, column : column + columns] = product


@runtime
def tensor_commit(w: Warp, line: int, address: Any, mask: Any) -> None:
    """Arrive once all operations before are complete, on the barrier of each block in ``mask``."""
    at = one(address)
    targets = [at]
    if mask is not None:
        within = at & ((1 << WINDOW) - 1)
        targets = [within | r << WINDOW for r in range(16) if one(mask) >> r & 1]
    _issue(w, line, "commit", partial(_run_commit, w, targets))


def _run_commit(w: Warp, targets: list[int], o: Operation) -> None:
    for at in targets:
        found = lookup(w, o.line, at)
        if found is not None:
            complain(w, o.line, found[1], found[1].arrive(1, 0, o.clock, o.line))
