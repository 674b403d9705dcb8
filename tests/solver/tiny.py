"""A made-up machine of a few cycles and registers, and hypothesis strategies for loop graphs on it."""

from __future__ import annotations

from hypothesis import strategies as st

from twill.model.graph import Buffer, Edge, LoopGraph, Op, Reader, RegisterValue, Reservation
from twill.model.machine import Figure, Machine, Memory, RegisterFile, Unit
from twill.model.schedule import Options

RULES = (
    "hand-over", "queueing", "capacity", "memory", "placement", "variable-latency", "exposed-wait", "concurrency", "register-limit",
    "register-file", "blocking", "register-tiles", "warp-budget",
)  # fmt: skip


def figure(value: float) -> Figure:
    return Figure(value=value, unit="made up", source="tests", evidence="derived")


TINY = Machine(
    schema_version=1,
    name="tiny",
    arch="sm0",
    target="sm_0",
    description="two exclusive units, a shared and an elastic one, two small memories, hardly any registers",
    accumulator="registers",
    mma_warps=4,
    max_ctas=1,
    units={
        "x": Unit(capacity=figure(1), description="exclusive, with a queue", queued=True),
        "y": Unit(capacity=figure(1), description="exclusive"),
        "c": Unit(capacity=figure(100), description="shared by percent"),
        "e": Unit(capacity=figure(2), description="only its average counts", elastic=True),
    },
    memories={
        "smem": Memory(capacity=figure(16), alignment=4, overlay=False, description="side by side"),
        "tmem": Memory(capacity=figure(8), alignment=2, overlay=True, description="overlaid"),
    },
    registers=RegisterFile(
        file=figure(2560),
        per_thread_max=figure(14),
        per_thread_min=figure(4),
        granularity=figure(2),
        overhead_per_thread=figure(3),
        issuer_per_thread=figure(5),
        max_warps=figure(12),
    ),
    costs={},
)
"""32 warps x 4 x R: three groups of R = 6 or two of R = 10 fill the register file."""


@st.composite
def ops(draw: st.DrawFn, name: str) -> Op:
    latency = draw(st.integers(0, 3))
    asynchronous = draw(st.booleans())
    units = draw(st.lists(st.sampled_from(("x", "y", "c", "e")), min_size=0 if latency else 1, max_size=2, unique=True))
    late = draw(st.integers(0, 7)) == 0
    reservations = tuple(
        Reservation(
            unit=unit,
            cycles=draw(st.integers(1, 3)),
            amount=draw(st.sampled_from((30, 60, 100))) if unit == "c" else 1,
            offset=draw(st.integers(1, 4)) if late else 0,
        )
        for unit in units
    )
    return Op(
        name=name,
        kind="made_up",
        unit=units[0] if units else "x",
        latency_cycles=latency,
        issue_cycles=draw(st.integers(0, latency)) if asynchronous else latency,
        asynchronous=asynchronous,
        variable_latency=asynchronous and draw(st.integers(0, 2)) == 0,
        warps=draw(st.sampled_from((1, 1, 4, 4, 8))),
        reservations=reservations,
    )


@st.composite
def edges(draw: st.DrawFn, names: tuple[str, ...]) -> Edge:
    src, dst = (draw(st.integers(0, len(names) - 1)) for _ in range(2))
    return Edge(
        src=names[src],
        dst=names[dst],
        kind=draw(st.sampled_from(("registers", "smem", "order"))),
        distance=draw(st.integers(0 if src < dst else 1, 2)),
        latency_cycles=draw(st.integers(0, 3)),
        same_group_cycles=draw(st.integers(0, 1)),
        cross_group_cycles=draw(st.integers(0, 2)),
    )


def readers(names: tuple[str, ...], cross: int) -> st.SearchStrategy[Reader]:
    return st.builds(
        Reader,
        op=st.sampled_from(names),
        hold_cycles=st.integers(0, 3),
        distance=st.sampled_from((0, 0, 0, 1)),
        cross_group_cycles=st.integers(0, cross),
    )


@st.composite
def buffers(draw: st.DrawFn, name: str, names: tuple[str, ...]) -> Buffer:
    persistent = draw(st.integers(0, 5)) == 0
    least = 0 if persistent else 1
    return Buffer(
        name=name,
        memory=draw(st.sampled_from(("smem", "tmem", "tmem"))),
        size=draw(st.integers(1, 6)),
        writers=tuple(draw(st.lists(st.sampled_from(names), min_size=least, max_size=2, unique=True))),
        readers=tuple(draw(st.lists(readers(names, 2), min_size=least, max_size=2))),
        persistent=persistent,
    )


def values(name: str, names: tuple[str, ...]) -> st.SearchStrategy[RegisterValue]:
    return st.builds(
        RegisterValue,
        name=st.just(name),
        producer=st.sampled_from(names),
        registers=st.integers(1, 6),
        readers=st.lists(readers(names, 0), max_size=2).map(tuple),
        persistent=st.sampled_from((False, False, False, True)),
    )


def _numbered(draw: st.DrawFn, prefix: str, most: int, make: object) -> tuple[object, ...]:
    count = draw(st.integers(0, most))
    return tuple(draw(make(f"{prefix}{i}")) for i in range(count))  # type: ignore[operator]


@st.composite
def graphs(draw: st.DrawFn, most_ops: int = 4) -> LoopGraph:
    """Any small graph."""
    names = tuple("ABCDE"[: draw(st.integers(1, most_ops))])
    return LoopGraph(
        name="random",
        machine="tiny",
        ops=tuple(draw(ops(n)) for n in names),
        edges=tuple(draw(st.lists(edges(names), max_size=5))),
        buffers=_numbered(draw, "b", 3, lambda n: buffers(n, names)),
        values=_numbered(draw, "v", 3, lambda n: values(n, names)),
        reserved=draw(st.sampled_from(({}, {}, {"tmem": 1}, {"smem": 4}))),
    )


@st.composite
def mirrored(draw: st.DrawFn) -> LoopGraph:
    """A graph of two equal halves and perhaps an op that both depend on, with the symmetry declared."""
    half = tuple("PQ"[: draw(st.integers(1, 2))])
    shared = draw(st.booleans())
    names = half + (("Z",) if shared else ())
    parts = draw(st.lists(edges(names), max_size=3))
    stores = _numbered(draw, "b", 1, lambda n: buffers(n, names))
    held = _numbered(draw, "v", 2, lambda n: values(n, half))
    made = [draw(ops(n)) for n in half]

    def to(x: str, name: str) -> str:
        return name if name == "Z" else f"{name}_{x}"

    def all_readers(x: str, rs: tuple[Reader, ...]) -> tuple[Reader, ...]:
        return tuple(r.model_copy(update={"op": to(x, r.op)}) for r in rs)

    all_ops, all_edges, all_buffers, all_values = [], [], [], []
    for x in "ab":
        all_ops += [op.model_copy(update={"name": to(x, op.name)}) for op in made]
        all_edges += [e.model_copy(update={"src": to(x, e.src), "dst": to(x, e.dst)}) for e in parts]
        all_buffers += [
            b.model_copy(
                update={"name": f"{b.name}_{x}", "writers": tuple(to(x, w) for w in b.writers), "readers": all_readers(x, b.readers)}
            )
            for b in stores
        ]
        all_values += [
            v.model_copy(update={"name": f"{v.name}_{x}", "producer": to(x, v.producer), "readers": all_readers(x, v.readers)})
            for v in held
        ]
    if shared:
        all_ops.append(draw(ops("Z")))
    return LoopGraph(
        name="mirrored",
        machine="tiny",
        ops=tuple(all_ops),
        edges=tuple(all_edges),
        buffers=tuple(all_buffers),
        values=tuple(all_values),
        symmetries=((tuple(to("a", n) for n in half), tuple(to("b", n) for n in half)),),
    )


@st.composite
def pipelines(draw: st.DrawFn) -> LoopGraph:
    """A load, a matrix op that waits for it and one or two synchronous ops behind: groups have to differ, and crossing costs."""

    def step(src: str, dst: str, kind: str, distance: int = 0) -> Edge:
        latency = next(op.latency_cycles for op in made if op.name == src)
        cross = draw(st.integers(0, 3))
        same = draw(st.integers(0, min(1, cross)))
        return Edge.model_validate(
            {"src": src, "dst": dst, "kind": kind, "distance": distance, "latency_cycles": latency}
            | {"same_group_cycles": same, "cross_group_cycles": cross}
        )

    def op(name: str, unit: str, latency: int, *, asynchronous: bool, variable: bool = False, warps: int = 4) -> Op:
        return Op(
            name=name,
            kind="made_up",
            unit=unit,
            latency_cycles=latency,
            issue_cycles=draw(st.integers(0, 1)) if asynchronous else latency,
            asynchronous=asynchronous,
            variable_latency=variable,
            warps=warps,
            reservations=(Reservation(unit=unit, cycles=draw(st.integers(1, latency)), amount=1),),
        )

    made = [
        op("L", "e", draw(st.integers(1, 2)), asynchronous=True, variable=True, warps=1),
        op("M", "x", draw(st.integers(1, 2)), asynchronous=True, warps=draw(st.sampled_from((1, 4)))),
        op("V", "y", draw(st.integers(1, 2)), asynchronous=False),
    ]
    if draw(st.booleans()):
        made.append(op("W", draw(st.sampled_from(("x", "y"))), draw(st.integers(1, 2)), asynchronous=draw(st.booleans())))
    last = made[-1].name
    links = [step("L", "M", "smem"), step("M", "V", "tmem")]
    links += [step("V", "W", "registers")] if last == "W" else []
    links += [step(last, draw(st.sampled_from(("L", "M", "V"))), draw(st.sampled_from(("order", "registers"))), draw(st.integers(1, 2)))]
    hold = draw(st.integers(0, 2))
    stored = [Buffer(name="K", memory="smem", size=draw(st.integers(1, 8)), writers=("L",), readers=(Reader(op="M", hold_cycles=hold),))]
    rs = (
        Reader(op="V", hold_cycles=hold, cross_group_cycles=draw(st.integers(0, 2))),
        Reader(op=last, hold_cycles=draw(st.integers(0, 2))),
    )
    stored += [Buffer(name="S", memory="tmem", size=draw(st.integers(2, 8)), writers=("M",), readers=rs)]
    held = [RegisterValue(name="E", producer="V", registers=draw(st.integers(1, 9)), readers=(Reader(op=last, hold_cycles=hold),))]
    return LoopGraph(
        name="pipeline",
        machine="tiny",
        ops=tuple(made),
        edges=tuple(links),
        buffers=tuple(draw(st.lists(st.sampled_from(stored), unique=True))),
        values=tuple(draw(st.lists(st.sampled_from(held), unique=True))),
    )


@st.composite
def options(draw: st.DrawFn, most_length: int = 12, least_groups: int = 1, least_copies: int = 1) -> Options:
    """Options under which exhaustive search ends soon: I up to 8, L up to ``most_length``."""
    off = draw(st.integers(0, 2)) == 0
    copies = draw(st.integers(least_copies, 3))
    return Options(
        groups=draw(st.integers(least_groups, 3)),
        max_copies=copies,
        registers=draw(st.sampled_from((None, None, 8))),
        without=tuple(draw(st.lists(st.sampled_from(RULES), max_size=3, unique=True))) if off else (),
        with_rules=("local-registers",) if draw(st.integers(0, 5)) == 0 else (),
        max_ii_cycles=min(8, most_length // copies),
        time_unit_cycles=draw(st.sampled_from((1, 1, 1, 2))),
    )
