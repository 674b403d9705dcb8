"""Print a WarpProgram of the attention forward loop as a CuTe DSL file for Hopper. Decides nothing: see `twill.emit.emitter`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from twill.check import CheckedSchedule
from twill.emit.errors import EmitError
from twill.emit.expansion import Expansion, Step
from twill.emit.launch import Launch, Seat
from twill.emit.request import AttentionForward
from twill.lower import Arrive, Execute, Role, Wait, WaitOwn, WarpProgram

__all__ = ["Plan", "text"]

CALLS = {
    "tma_load": "load",
    "mma_qk": "mma_qk",
    "row_max": "row_max",
    "exp2": "exp2",
    "row_sum": "row_sum",
    "convert": "convert",
    "rescale": "rescale",
    "mma_pv": "mma_pv",
}
AGED = {
    "row_max": (("scores", "mma_qk"),),
    "exp2": (("scores", "mma_qk"), ("factors", "row_max")),
    "row_sum": (("scores", "mma_qk"), ("factors", "row_max")),
    "convert": (("scores", "mma_qk"),),
    "rescale": (("factors", "row_max"),),
}
"""Which register copies an op reads: (argument, kind of the op that makes them)."""
LETTERS = "abcdefgh"
KEEP_LOG2 = 8.0
"""Powers of two that a row maximum may lag behind under conditional rescaling: 256 times too large an exponential is harmless in fp32
and in fp16's 65504."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that the file says."""

    checked: CheckedSchedule
    program: WarpProgram
    request: AttentionForward
    expansions: Mapping[str, Expansion]
    launch: Launch
    command: str


def text(plan: Plan) -> str:
    """The whole file."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    yield from _header(plan)
    yield from _constants(plan)
    for role in plan.program.roles:
        yield from _role(plan, plan.expansions[role.name])
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
    yield "Role functions run in warp groups of their own. n numbers periods; an op of iteration n - 1 belongs to the tile of keys before."
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
    q = plan.request
    yield f'SCHEDULE = "{plan.checked.schedule.hash}"'
    yield f"TILES = tiles.Tiles(head_dim={q.head_dim}, head_dim_v={q.head_dim_v}, keys={q.keys}, subtiles={q.subtiles})"
    yield "STORAGE = {"
    for s in plan.program.storage:
        yield f'    "{s.name}": tiles.Buffer(offset={s.offset}, stride={s.stride}, stages={s.stages}),'
    yield "}"
    yield "BARRIERS = {"
    yield "    # before the loop: Q has been loaded, a sub-tile a slot"
    yield f'    "Q_full": tiles.RingShape(slots={q.subtiles}, arrivals=1, tx_bytes={64 * q.head_dim * 2}),'
    for b in plan.program.barriers:
        yield f"    # {'; '.join(b.guards)}"
        bytes_ = f", tx_bytes={b.tx_bytes}" if b.tx_bytes else ""
        yield f'    "{b.name}": tiles.RingShape(slots={b.slots}, arrivals={b.arrivals}{bytes_}),'
    yield "}"


def _mine(plan: Plan, role: Role) -> tuple[int, ...]:
    """Sub-tiles of a role, in order."""
    ops = [x.op for x in role.body if isinstance(x, Execute)]
    return tuple(sorted({plan.request.subtile[v] for v in ops if v in plan.request.subtile}))


def _tile(subtile: int) -> str:
    """Name of a sub-tile's fragments in the file."""
    return f"tile_{LETTERS[subtile]}"


def _handles(plan: Plan, role: Role) -> str:
    """Names of the objects that the role's tile operations work on."""
    loads = any(x.op in plan.request.loads for x in role.body if isinstance(x, Execute))
    return ", ".join([*(["source"] if loads else []), *(_tile(i) for i in _mine(plan, role))])


def _role(plan: Plan, e: Expansion) -> Iterator[str]:
    role, handles = e.role, _handles(plan, e.role)
    mine, maxima = _mine(plan, role), _maxima(plan, e)
    yield ""
    yield ""
    parameters = "".join(f"{h}: Any, " for h in handles.split(", "))
    mask = ", masked: bool" if maxima else ""
    yield f"def {role.name}_period(ring: Any, {parameters}n: Any{mask}) -> None:"
    yield f'    """Period n of {role.name} in the steady state."""'
    yield from _steps(plan, e.steady, "    ", "masked")
    yield ""
    yield ""
    yield "@cute.jit"
    yield f"def {role.name}(block: cutlass.Constexpr) -> None:"
    yield f'    """{_describe(plan, role)}"""'
    yield "    ring = block.rings"
    loads = any(x.op in plan.request.loads for x in role.body if isinstance(x, Execute))
    if loads:
        yield "    source = tiles.loader(block)"
        yield '    tiles.load_q(source, ring["Q_full"])'
    for i in mine:
        yield f"    {_tile(i)} = tiles.consumer(block, subtile={i}{_copies(plan, e, i)})"
    for i in mine:
        yield f'    tiles.wait(ring["Q_full"], {i})'
    yield from _loop(plan, e, handles)
    for i in mine:
        yield f"    tiles.finish({_tile(i)}, barrier_id={plan.launch.first_barrier + i})"


def _maxima(plan: Plan, e: Expansion) -> list[int]:
    """Iterations, relative to n, of the row maxima of the role's period: they mask."""
    return [s.at.offset for s in e.steady if isinstance(s.instruction, Execute) and plan.request.kinds[s.instruction.op] == "row_max"]


def _describe(plan: Plan, role: Role) -> str:
    mine = _mine(plan, role)
    what = f"; sub-tile{'s' if len(mine) > 1 else ''} {', '.join(LETTERS[i] for i in mine)}" if mine else ""
    warps = "1 warp" if role.warps == 1 else f"{role.warps} warps"
    return f"{warps}{what}; the schedule asks for {role.registers_per_thread} registers a thread."


def _copies(plan: Plan, e: Expansion, subtile: int) -> str:
    found = []
    for argument, kind in (("scores", "mma_qk"), ("factors", "row_max")):
        ages = [e.age(v) for v, k in plan.request.kinds.items() if k == kind and plan.request.subtile.get(v) == subtile]
        if max(ages, default=0):
            found.append(f", {argument}={1 + max(ages)}")
    return "".join(found)


def _loop(plan: Plan, e: Expansion, handles: str) -> Iterator[str]:
    peeled = e.role.stages - 1
    indent = "    "
    if e.short:
        for count, steps in enumerate(e.short, 1):
            yield f"    {'if' if count == 1 else 'elif'} block.trips == {count}:"
            yield from _steps(plan, steps, "        ", "True")
        yield f"    elif block.trips >= {peeled}:"
        indent = "        "
    elif e.prologue or e.epilogue:
        yield "    if block.trips > 0:"
        indent = "        "
    yield from _steps(plan, e.prologue, indent, "True")
    maxima = _maxima(plan, e)
    call = f"{e.role.name}_period(ring, {handles}, n"
    if maxima:
        late = -min(maxima)
        end = "block.masked" + (f" + {late}" if late else "")
        inner = indent
        if peeled >= 1 + late:
            yield f"{indent}if cutlass.const_expr(block.causal):"
            inner = indent + "    "
        if late:
            end = f"cutlass.min({end}, block.trips)"
        yield f"{inner}for n in cutlass.range({peeled}, {end}, unroll=1):"
        yield f"{inner}    {call}, masked=True)"
        yield f"{indent}for n in cutlass.range({_from(peeled, end, late)}, block.trips, unroll=1):"
    else:
        yield f"{indent}for n in cutlass.range({peeled}, block.trips, unroll=1):"
    yield f"{indent}    {call}{', masked=False' if maxima else ''})"
    yield from _steps(plan, e.epilogue, indent, "True")


def _from(peeled: int, masked_end: str, late: int) -> str:
    return masked_end if peeled <= 1 + late else f"cutlass.max({masked_end}, {peeled})"


def _steps(plan: Plan, steps: Sequence[Step], indent: str, masked: str) -> Iterator[str]:
    for i, step in enumerate(steps):
        x, at = step.instruction, step.at.text("block.trips")
        if isinstance(x, Execute):
            after = next((s.instruction for s in steps[i + 1 : i + 2] if isinstance(s.instruction, Arrive)), None)
            yield indent + _execute(plan, x, step, at, after, masked)
        elif isinstance(x, Wait):
            distance = f", distance={x.distance}" if x.distance else ""
            yield f'{indent}tiles.wait(ring["{x.barrier}"], {at}{distance})'
        elif isinstance(x, WaitOwn):
            yield f"{indent}tiles.wait_mma({x.pending})" + (f"  # {'; '.join(x.guards)}" if x.guards else "")
        elif x.when == "now":
            yield f'{indent}tiles.arrive(ring["{x.barrier}"], {at})'


def _execute(plan: Plan, execute: Execute, step: Step, at: str, after: Arrive | None, masked: str) -> str:
    op = execute.op
    kind = plan.request.kinds[op]
    if kind == "tma_load":
        if after is None or after.when != "after":
            raise EmitError(f"nothing says when the bytes of {op} have landed", "lower the schedule again")
        return f'tiles.load_{plan.request.loads[op].lower()}(source, {at}, ring["{after.barrier}"])'
    arguments = [_tile(plan.request.subtile[op]), at]
    if kind == "row_max":
        arguments.append(f"masked={masked}")
        if plan.request.conditional:
            arguments.append(f"keep={KEEP_LOG2}")
    for name, maker in AGED.get(kind, ()):
        age = max((a for v, a in step.ages.items() if plan.request.kinds[v] == maker), default=0)
        if age:
            arguments.append(f"{name}={age}")
    call = "rescale_if_grown" if kind == "rescale" and plan.request.conditional else CALLS[kind]
    return f"tiles.{call}({', '.join(arguments)})"


def _kernel(plan: Plan) -> Iterator[str]:
    yield ""
    yield ""
    yield "@cute.kernel"
    yield "def kernel("
    yield "    q_tma: cute.CopyAtom, q: cute.Tensor, k_tma: cute.CopyAtom, k: cute.Tensor, v_tma: cute.CopyAtom, v: cute.Tensor,"
    yield "    o_tma: cute.CopyAtom, o: cute.Tensor, lse: cute.Tensor | None, seqlen_q: cutlass.Int32, seqlen_k: cutlass.Int32,"
    yield "    heads_per_kv: cutlass.Int32, softmax_scale: cutlass.Float32, causal: cutlass.Constexpr, dtype: cutlass.Constexpr,"
    yield ") -> None:  # fmt: skip"
    yield '    """A block: every warp group goes to its role."""'
    yield "    given = tiles.Operands((q_tma, q), (k_tma, k), (v_tma, v), (o_tma, o))"
    yield "    block = tiles.enter(TILES, STORAGE, BARRIERS, causal, dtype, given, lse, seqlen_q, seqlen_k, heads_per_kv, softmax_scale)"
    for i, seat in enumerate(plan.launch.seats):
        yield from _seat(seat, first=i == 0, last=i == len(plan.launch.seats) - 1)


def _seat(seat: Seat, first: bool, last: bool) -> Iterator[str]:
    if last and not first:
        yield "    else:"
    else:
        yield f"    {'if' if first else 'elif'} block.warp < {seat.end_warp}:"
    yield f"        cute.arch.setmaxregister_{'increase' if seat.rises else 'decrease'}({seat.registers})"
    whole = len(seat.roles) == 1 and seat.roles[0][0].warps % 4 == 0
    for role, warp in seat.roles:
        if whole:
            yield f"        {role.name}(block)"
        else:
            yield f"        if block.warp == {warp}:"
            yield f"            {role.name}(block)"


def _host(plan: Plan) -> Iterator[str]:
    name = plan.request.name
    yield ""
    yield ""
    yield f'kernel.set_name_prefix("twill_{name}", remove_cutlass_symbol=True, keep_mangled_name=False)'
    yield ""
    yield ""
    yield "@cute.jit"
    yield "def attn_fwd("
    yield "    q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, lse: cute.Tensor | None, softmax_scale: cutlass.Float32,"
    yield "    causal: cutlass.Constexpr, stream: cuda.CUstream,"
    yield ") -> None:  # fmt: skip"
    yield '    """O = softmax(Q K^T * softmax_scale) V; all (batch, seq, heads, dim), dim contiguous; lse (batch, heads, seq) or None."""'
    yield "    given = tiles.operands(TILES, STORAGE, q, k, v, o)"
    yield "    grid = (cute.ceil_div(q.shape[1], TILES.rows), q.shape[2], q.shape[0])"
    yield "    kernel("
    yield "        *given.q, *given.k, *given.v, *given.o, lse, q.shape[1], k.shape[1], q.shape[2] // k.shape[2], softmax_scale, causal,"
    yield "        q.element_type,"
    block, smem = f"({plan.launch.threads}, 1, 1)", "tiles.smem_bytes(STORAGE, BARRIERS)"
    yield f"    ).launch(grid=grid, block={block}, smem={smem}, stream=stream)  # fmt: skip"
