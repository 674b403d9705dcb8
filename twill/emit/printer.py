"""Print a WarpProgram as a CuTe DSL file. Decides nothing: see `twill.emit.emitter`."""

from __future__ import annotations

from collections.abc import Iterator

from twill.emit.families import Family
from twill.emit.plan import Named, Plan, Ring

__all__ = ["launch_lines", "text"]

WIDTH = 140
"""Columns of a line."""


def text(plan: Plan) -> str:
    """The whole file."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    yield from _header(plan)
    yield from _constants(plan)
    yield from _frame_text(plan)
    for family in plan.families:
        yield from plan.architecture.text(plan, family)
    yield from _kernel(plan)
    yield from _named(plan)
    yield from plan.architecture.wording.host(plan)


def _header(plan: Plan) -> Iterator[str]:
    s, wording = plan.checked.schedule, plan.architecture.wording
    yield f'"""{wording.title(plan)}. Generated; do not edit.'
    yield ""
    yield f"Command:   {plan.command}"
    yield f"Schedule:  {s.hash}"
    yield f"Solved by: {s.provenance.command}"
    yield f"I = {s.ii_cycles} cycles an iteration, L = {s.length_cycles}, {s.status}."
    if plan.architecture.note:
        yield plan.architecture.note
    yield ""
    yield "Role functions run in warp groups of their own. i is the iteration at which a role stands; an op of i - 1 belongs to the tile of"
    yield f"{wording.order} before. Barriers count iterations on through all work tiles of a block."
    yield '"""'
    yield ""
    yield "from typing import Any"
    yield ""
    yield "import cuda.bindings.driver as cuda"
    yield "import cutlass"
    yield "import cutlass.cute as cute"
    yield ""
    yield f"from {plan.architecture.package} import tiles"
    yield ""


def _constants(plan: Plan) -> Iterator[str]:
    q, launch = plan.request, plan.launch
    yield f'SCHEDULE = "{plan.checked.schedule.hash}"'
    yield f"TILES = tiles.Tiles({plan.architecture.wording.tile_shapes(plan)}{plan.architecture.tile_arguments(q)})"
    yield "# role of the schedule: its function, its first warp"
    yield "ROLES = {"
    for family in plan.families:
        for role, seat in zip(family.roles, family.seats, strict=True):
            warp = next(w for r, w in seat.roles if r.name == role.name)
            yield f'    "{role.name}": ("{family.name}", {warp}),'
    yield "}"
    yield "STORAGE = {"
    for s in plan.program.storage:
        if s.memory == "smem":
            yield _buffer(s.name, s.offset, s.stride, s.stages)
    if launch.o_offset is not None and all(s.name != "O_staging" for s in plan.program.storage):
        yield "    # where O waits to be stored"
        yield _buffer("O_staging", launch.o_offset, q.rows * q.subtiles * q.columns_v * 2, 1)
    for name, (offset, stride, stages) in plan.architecture.storage(plan):
        yield _buffer(name, offset, stride, stages)
    yield "}"
    if any(s.memory == "tmem" for s in plan.program.storage):
        yield "# columns of TMEM"
        yield "COLUMNS = {"
        yield from (_buffer(s.name, s.offset, s.stride, s.stages) for s in plan.program.storage if s.memory == "tmem")
        yield "}"
    yield "BARRIERS = {"
    yield f"    # around the loop: {plan.architecture.wording.around}"
    for name, ring in plan.architecture.rings(plan):
        yield _ring(name, ring)
    yield _ring("work_full", Ring(2, 1))
    yield _ring("work_empty", Ring(2, launch.listeners))
    for b in plan.architecture.barriers(plan):
        yield f"    # {'; '.join(b.guards)}"
        if b.kind == "named":
            yield _ring(b.name, Named(b.named_id or 0, 32 * b.arrivals))
        else:
            yield _ring(b.name, plan.architecture.ring(plan, b))
    yield "}"


def _buffer(name: str, offset: int, stride: int, stages: int) -> str:
    return f'    "{name}": tiles.Buffer(offset={offset}, stride={stride}, stages={stages}),'


def _ring(name: str, ring: Ring | Named) -> str:
    if isinstance(ring, Named):
        return f'    "{name}": tiles.NamedBarrier(number={ring.number}, threads={ring.threads}),'
    bytes_ = f", tx_bytes={ring.tx_bytes}" if ring.tx_bytes else ""
    pair = f', pair="{ring.pair}"' if ring.pair else ""
    return f'    "{name}": tiles.RingShape(slots={ring.slots}, arrivals={ring.arrivals}{bytes_}{pair}),'


def _frame_text(plan: Plan) -> Iterator[str]:
    wording = plan.architecture.wording
    yield ""
    yield ""
    yield "@cute.jit"
    yield f"def {wording.frame}(block: cutlass.Constexpr) -> None:"
    yield f'    """1 warp beside those of the schedule: shares out work tiles and loads their {wording.stays}."""'
    yield f"    turn = {wording.turns}"
    yield "    tiles.prefetch(block)"
    yield "    number = tiles.claim(block)"
    yield "    tiles.announce(block, turn, number)"
    yield "    while number < block.work_tiles:"
    yield f"        tiles.{wording.load_stays}(block, turn, number)"
    yield "        number = tiles.claim(block, number)"
    yield "        tiles.advance(turn)"
    yield "        tiles.announce(block, turn, number)"
    for call in plan.architecture.at_last():
        yield f"    tiles.{call}(block)"
    for helper in wording.helpers:
        yield ""
        yield ""
        yield "@cute.jit"
        yield f"def {helper.name}(block: cutlass.Constexpr) -> None:"
        yield from (f"    {line}" for line in helper.lines)


def _kernel(plan: Plan) -> Iterator[str]:
    wording = plan.architecture.wording
    yield ""
    yield ""
    yield "@cute.kernel"
    yield "def kernel("
    yield from wording.kernel_parameters(plan)
    yield ") -> None:  # fmt: skip"
    yield '    """A block: every warp group goes to its role."""'
    yield from wording.kernel_begin(plan)
    yield from _seats(plan)
    for call in plan.architecture.parting(plan):
        yield f"    tiles.{call}(block)"


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
            if not plan.architecture.leads(plan, name):
                yield f"        if block.warp == {warp}:"
                yield f"            {name}(block)"
                continue
            for condition, call in (("block.member == 0", name), ("block.member != 0", "tiles.listen")):
                yield f"        if (block.warp == {warp}) & ({condition}):"
                yield f"            {call}(block)"
        yield from _helpers(plan, seat.first_warp, seat.end_warp)


def _helpers(plan: Plan, first: int, end: int) -> Iterator[str]:
    """Calls of the frame's helpers, by the warps behind the one that shares out work tiles."""
    helpers = plan.architecture.wording.helpers
    if helpers and first <= plan.launch.queries < end:
        yield f"        if cutlass.const_expr({plan.architecture.wording.helped}):"
        for k, helper in enumerate(helpers):
            yield f"            if block.warp == {plan.launch.queries + 1 + k}:"
            yield f"                {helper.name}(block)"


def _frame(plan: Plan, first: int, end: int) -> list[tuple[str, int]]:
    return [(plan.architecture.wording.frame, plan.launch.queries)] if first <= plan.launch.queries < end else []


def _named(plan: Plan) -> Iterator[str]:
    yield ""
    yield ""
    yield f'kernel.set_name_prefix("twill_{plan.request.name}", remove_cutlass_symbol=True, keep_mangled_name=False)'
    yield ""
    yield ""


def launch_lines(arguments: list[str]) -> Iterator[str]:
    """The launch of a kernel whose arguments come before, on one line if it fits."""
    line = f"    ).launch({', '.join(arguments)})  # fmt: skip"
    if len(line) <= WIDTH:
        yield line
        return
    yield "    ).launch("
    yield f"        {', '.join(arguments[:-2])},"
    yield f"        {', '.join(arguments[-2:])},"
    yield "    )  # fmt: skip"
