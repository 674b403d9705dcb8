"""Print a WarpProgram of the attention forward loop as a CuTe DSL file for Hopper. Decides nothing: see `twill.emit.emitter`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from twill.check import CheckedSchedule
from twill.emit.families import Family
from twill.emit.launch import Launch
from twill.emit.request import AttentionForward
from twill.emit.sm90.roles import RolePrinter
from twill.lower import WarpProgram

__all__ = ["Plan", "text"]


@dataclass(frozen=True)
class Plan:
    """All that the file says."""

    checked: CheckedSchedule
    program: WarpProgram
    request: AttentionForward
    families: Sequence[Family]
    launch: Launch
    command: str


def text(plan: Plan) -> str:
    """The whole file."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    yield from _header(plan)
    yield from _constants(plan)
    yield from _queries()
    for family in plan.families:
        yield from RolePrinter(plan.request, plan.program, family, plan.launch.first_barrier, plan.launch.o_offset is None).text()
    yield from _kernel(plan)
    yield from _host(plan)


def _header(plan: Plan) -> Iterator[str]:
    q, s = plan.request, plan.checked.schedule
    dims = f"head dim {q.head_dim}" + (f", {q.head_dim_v} for V" if q.head_dim_v != q.head_dim else "")
    yield f'"""Attention forward for sm90, {dims}: {64 * q.subtiles} query rows by {q.keys} keys an iteration. Generated; do not edit.'
    yield ""
    yield f"Command:   {plan.command}"
    yield f"Schedule:  {s.hash}"
    yield f"Solved by: {s.provenance.command}"
    yield f"I = {s.ii_cycles} cycles an iteration, L = {s.length_cycles}, {s.status}."
    yield ""
    yield "Role functions run in warp groups of their own. i is the iteration at which a role stands; an op of i - 1 belongs to the tile of"
    yield "keys before. Barriers count iterations on through all work tiles of a block."
    yield '"""'
    yield ""
    yield "from typing import Any"
    yield ""
    yield "import cuda.bindings.driver as cuda"
    yield "import cutlass"
    yield "import cutlass.cute as cute"
    yield ""
    yield "from twill.emit.sm90 import tiles"
    yield ""


def _constants(plan: Plan) -> Iterator[str]:
    q, launch = plan.request, plan.launch
    yield f'SCHEDULE = "{plan.checked.schedule.hash}"'
    yield f"TILES = tiles.Tiles(head_dim={q.head_dim}, head_dim_v={q.head_dim_v}, keys={q.keys}, subtiles={q.subtiles})"
    yield "# role of the schedule: its function, its first warp"
    yield "ROLES = {"
    for family in plan.families:
        for role, seat in zip(family.roles, family.seats, strict=True):
            warp = next(w for r, w in seat.roles if r.name == role.name)
            yield f'    "{role.name}": ("{family.name}", {warp}),'
    yield "}"
    yield "STORAGE = {"
    for s in plan.program.storage:
        yield f'    "{s.name}": tiles.Buffer(offset={s.offset}, stride={s.stride}, stages={s.stages}),'
    if launch.o_offset is not None and all(s.name != "O_staging" for s in plan.program.storage):
        yield "    # where O waits to be stored"
        yield f'    "O_staging": tiles.Buffer(offset={launch.o_offset}, stride={64 * q.subtiles * q.columns_v * 2}, stages=1),'
    yield "}"
    yield "BARRIERS = {"
    yield "    # around the loop: Q and, below, the number of the next work tile; a slot of Q is a sub-tile"
    yield f'    "Q_full": tiles.RingShape(slots={q.subtiles}, arrivals=1, tx_bytes={64 * q.columns * 2}),'
    yield f'    "Q_empty": tiles.RingShape(slots={q.subtiles}, arrivals=4),'
    yield '    "work_full": tiles.RingShape(slots=2, arrivals=1),'
    yield f'    "work_empty": tiles.RingShape(slots=2, arrivals={launch.listeners}),'
    for b in plan.program.barriers:
        yield f"    # {'; '.join(b.guards)}"
        bytes_ = f", tx_bytes={b.tx_bytes}" if b.tx_bytes else ""
        yield f'    "{b.name}": tiles.RingShape(slots={b.slots}, arrivals={b.arrivals}{bytes_}),'
    yield "}"


def _queries() -> Iterator[str]:
    yield ""
    yield ""
    yield "@cute.jit"
    yield "def queries(block: cutlass.Constexpr) -> None:"
    yield '    """1 warp beside those of the schedule: shares out work tiles and loads their Q."""'
    yield "    turn = tiles.start((1, 2))"
    yield "    tiles.prefetch(block)"
    yield "    number = tiles.claim(block)"
    yield "    tiles.announce(block, turn, number)"
    yield "    while number < block.work_tiles:"
    yield "        tiles.load_q(block, turn, number)"
    yield "        number = tiles.claim(block, number)"
    yield "        tiles.advance(turn)"
    yield "        tiles.announce(block, turn, number)"


def _kernel(plan: Plan) -> Iterator[str]:
    yield ""
    yield ""
    yield "@cute.kernel"
    yield "def kernel("
    yield "    q_tma: cute.CopyAtom, q: cute.Tensor, k_tma: cute.CopyAtom, k: cute.Tensor, v_tma: cute.CopyAtom, v: cute.Tensor,"
    yield "    o_tma: cute.CopyAtom, o: cute.Tensor, lse: cute.Tensor | None, counter: cute.Tensor | None, batch: cutlass.Int32,"
    yield "    seqlen_q: cutlass.Int32, heads: cutlass.Int32, seqlen_k: cutlass.Int32, kv_heads: cutlass.Int32,"
    yield "    softmax_scale: cutlass.Float32, causal: cutlass.Constexpr, dtype: cutlass.Constexpr,"
    yield ") -> None:  # fmt: skip"
    yield '    """A block: every warp group goes to its role."""'
    yield "    given = tiles.Operands((q_tma, q), (k_tma, k), (v_tma, v), (o_tma, o))"
    yield "    shape = (batch, seqlen_q, heads, seqlen_k, kv_heads)"
    yield "    block = tiles.enter(TILES, STORAGE, BARRIERS, causal, dtype, given, lse, counter, shape, softmax_scale)"
    yield from _seats(plan)


def _seats(plan: Plan) -> Iterator[str]:
    """A branch for each run of warpgroups with the same code."""
    branches: list[tuple[Family | None, int]] = []
    shared = {seat.first_warp: family for family in plan.families if len(family.roles) > 1 for seat in family.seats}
    seats = plan.launch.seats
    for k, seat in enumerate(seats):
        family = shared.get(seat.first_warp)
        if family is None or not branches or branches[-1][0] is not family:
            branches.append((family, k))
    for n, (family, k) in enumerate(branches):
        end = branches[n + 1][1] if n + 1 < len(branches) else len(seats)
        seat = seats[k]
        if n and n == len(branches) - 1:
            yield "    else:"
        else:
            yield f"    {'elif' if n else 'if'} block.warp < {seats[end - 1].end_warp}:"
        yield f"        cute.arch.setmaxregister_{'increase' if seat.rises else 'decrease'}({seat.registers})"
        if family is not None:
            back = seat.first_warp // 4 - family.subtiles[0]
            yield f"        {family.name}(block, block.warp // 4{f' - {back}' if back else ''})"
            continue
        if len(seat.roles) == 1 and seat.roles[0][0].warps % 4 == 0:
            yield f"        {seat.roles[0][0].name}(block)"
            continue
        for name, warp in [*((role.name, warp) for role, warp in seat.roles), *_frame(plan, seat.first_warp, seat.end_warp)]:
            yield f"        if block.warp == {warp}:"
            yield f"            {name}(block)"


def _frame(plan: Plan, first: int, end: int) -> list[tuple[str, int]]:
    return [("queries", plan.launch.queries)] if first <= plan.launch.queries < end else []


def _host(plan: Plan) -> Iterator[str]:
    name = plan.request.name
    yield ""
    yield ""
    yield f'kernel.set_name_prefix("twill_{name}", remove_cutlass_symbol=True, keep_mangled_name=False)'
    yield ""
    yield ""
    yield "@cute.jit"
    yield "def attn_fwd("
    yield "    q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, lse: cute.Tensor | None, counter: cute.Tensor | None,"
    yield "    softmax_scale: cutlass.Float32, sm_count: cutlass.Int32, causal: cutlass.Constexpr, stream: cuda.CUstream,"
    yield ") -> None:  # fmt: skip"
    yield '    """O = softmax(Q K^T * softmax_scale) V; all (batch, seq, heads, dim), dim contiguous; lse (batch, heads, seq) or None.'
    yield ""
    yield "    At most ``sm_count`` blocks are launched. They take work tiles in turn or, given a ``counter``, as they come to need them."
    yield "    A counter is one int32 in global memory, 0 before and after, and belongs to one launch at a time."
    yield '    """'
    yield "    given = tiles.operands(TILES, STORAGE, q, k, v, o)"
    yield "    kernel("
    yield "        *given.q, *given.k, *given.v, *given.o, lse, counter, q.shape[0], q.shape[1], q.shape[2], k.shape[1], k.shape[2],"
    yield "        softmax_scale, causal, q.element_type,"
    block, smem = f"({plan.launch.threads}, 1, 1)", "tiles.smem_bytes(STORAGE, BARRIERS)"
    yield f"    ).launch(grid=tiles.grid(TILES, q, sm_count), block={block}, smem={smem}, stream=stream)  # fmt: skip"
