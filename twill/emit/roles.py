"""The functions of a role: a period of its steady state, a work tile, and the walk over work tiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

from twill.emit.errors import EmitError
from twill.emit.expansion import Step
from twill.emit.families import Family
from twill.emit.plan import Plan
from twill.lower import Arrive, Execute, Role, Wait, WaitOwn, WarpProgram

__all__ = ["KEEP_LOG2", "RolePrinter", "aged", "load_call"]

LETTERS = "abcdefgh"
WIDTH = 140
"""Columns of a line."""
KEEP_LOG2 = 8.0
"""Powers of two that a row maximum may lag behind under conditional rescaling: 256 times too large an exponential is harmless in fp32
and in fp16's 65504."""


class RolePrinter(ABC):
    """Prints the functions of one family of roles."""

    def __init__(self, plan: Plan, family: Family) -> None:
        self.request, self.program, self.family = plan.request, plan.program, family
        self.role, self.expansion = family.expansion.role, family.expansion
        self.first_barrier, self.o_is_q = plan.launch.first_barrier, plan.launch.o_offset is None
        self.executes = frozenset(self.request.kinds[x.op] for x in self.role.body if isinstance(x, Execute))
        self.loads = "tma_load" in self.executes
        self.turns = plan.architecture.wording.turns
        self.masked_by, self.masks_one = plan.architecture.wording.masked_by, plan.architecture.wording.masks_one
        self.peeked = _peeked(self.expansion.steady) if self.looks_ahead else ()

    # what an architecture adds

    @property
    def looks_ahead(self) -> bool:
        """Whether the role asks for completions before it waits for them."""
        return any(isinstance(x, WaitOwn) for x in self.role.body)

    @property
    def skips(self) -> bool:
        """Whether the role passes over iterations in which none of its rows sees a key."""
        return False

    @abstractmethod
    def fragments(self) -> Iterator[tuple[str, str]]:
        """What the role's operations work on: its names in the file, and the calls that make it."""

    @abstractmethod
    def begin(self) -> Iterator[str]:
        """The role's lines at the start of a work tile."""

    @abstractmethod
    def end(self) -> Iterator[str]:
        """The role's lines once the loop of a work tile is over."""

    def released(self) -> Sequence[str]:
        """What a role gives back between the loop and the epilogue of a work tile, iterations or none."""
        return ()

    def closing(self, steps: Sequence[Step]) -> tuple[list[str], dict[int, list[str]]]:
        """Lines around the code that ends a work tile: those before it, and those behind its k-th step. Without steps: where there are no
        iterations, or none is peeled.
        """
        return [], {}

    def leave(self) -> Iterator[str]:
        """The role's lines once there is no further work tile."""
        yield from ()

    @abstractmethod
    def execute(self, execute: Execute, step: Step, at: str, after: Sequence[Arrive], masked: str) -> str:
        """The call for an op; ``after`` holds the arrivals that count when it is over."""

    def ahead_of_waits(self, execute: Execute, at: str, masked: str) -> str | None:
        """The call of what an op can do before the role has waited for what it reads."""
        return None

    def wait(self, x: Wait, at: str, call: str) -> str:
        """The call of a wait."""
        distance = f", distance={x.distance}" if x.distance else ""
        return f'tiles.{call}(ring["{x.barrier}"], {at}{distance})'

    def arrive(self, x: Arrive, at: str) -> str | None:
        """The call of an arrival, None if the call of an op makes it."""
        return f'tiles.arrive(ring["{x.barrier}"], {at})' if x.when == "now" else None

    @property
    def sections(self) -> Sequence[Callable[[], Iterator[str]]]:
        """What prints the functions of the role, in the order in which they stand in the file."""
        return (*([self.skip] if self.skips else []), self.period, self.work, self.walk)

    def text(self) -> Iterator[str]:
        """All functions of the role, each after two empty lines."""
        for part in self.sections:
            yield ""
            yield ""
            yield from part()

    # names

    def tile(self, subtile: int) -> str:
        """Name of a sub-tile's fragments in the file."""
        return "tile" if len(self.family.subtiles) == 1 else f"tile_{LETTERS[subtile]}"

    def place(self, subtile: int) -> str:
        return "subtile" if self.family.shared else str(subtile)

    @property
    def tiles(self) -> list[str]:
        """Names of what the role's operations work on, besides where a load comes from."""
        return [name for name, _ in self.fragments()]

    @property
    def _handles(self) -> str:
        """Names of the objects that the role's tile operations work on."""
        return ", ".join([*(["source"] if self.loads else []), *self.tiles])

    @property
    def masking(self) -> list[int]:
        """Iterations, relative to the period's, of the ops of the role's period that mask."""
        steps = self.expansion.steady
        return [s.at.offset for s in steps if isinstance(s.instruction, Execute) and self.request.kinds[s.instruction.op] == self.masked_by]

    # functions

    def skip(self) -> Iterator[str]:
        name = self.family.name
        yield f"def {name}_skip(ring: Any, i: Any) -> None:"
        yield f'    """An iteration in which no row of {name} sees a key: what it would have used goes back unused."""'
        for x, _ in self.role.trace(1):
            if isinstance(x, Wait):
                yield "    " + self.wait(x, "i", "wait")
            elif isinstance(x, Arrive) and (call := self.arrive(x, "i")):
                yield "    " + call
        yield "    tiles.advance(i)"

    def period(self) -> Iterator[str]:
        name, mask = self.family.name, ", masked: bool" if self.masking else ""
        parameters = "".join(f"{h}: Any, " for h in self._handles.split(", "))
        yield f"def {name}_period(ring: Any, {parameters}i: Any{mask}) -> None:"
        yield f'    """A period of {name} in the steady state."""'
        yield from self.steps(self.expansion.steady, "    ", "masked", peek=True)
        yield "    tiles.advance(i)"

    def work(self) -> Iterator[str]:
        given = "".join(f"{t}: cutlass.Constexpr, " for t in self.tiles)
        yield "@cute.jit"
        yield f"def {self.family.name}_work("
        rest = "i: cutlass.Constexpr, turn: cutlass.Constexpr, number: cutlass.Int32,"
        if len(self.tiles) > 1:
            yield from wrap(f"block: cutlass.Constexpr, {given.rstrip()}", WIDTH, initial_indent="    ", subsequent_indent="    ")
            yield f"    {rest}"
        else:
            yield f"    block: cutlass.Constexpr, {given}{rest}"
        yield ") -> None:  # fmt: skip"
        yield f'    """A work tile of {self.family.name}."""'
        yield "    ring, work = block.rings, tiles.locate(block, turn, number)"
        yield "    tiles.begin(i)"
        if self.loads:
            yield "    source = tiles.loader(block, work)"
        yield from self.begin()
        yield from self._loop()
        yield from self.end()

    def walk(self) -> Iterator[str]:
        yield from self.start()
        yield "    number = tiles.first(block, turn)"
        yield "    while number < block.work_tiles:"
        yield f"        {self.family.name}_work(block, {''.join(t + ', ' for t in self.tiles)}i, turn, number)"
        yield "        number = tiles.following(block, turn, number)"
        yield from self.leave()

    def start(self) -> Iterator[str]:
        """The head of the role's function, and the lines that make its cursors and what its operations work on."""
        family = self.family
        yield "@cute.jit"
        yield f"def {family.name}(block: cutlass.Constexpr{', subtile: cutlass.Int32' if family.shared else ''}) -> None:"
        yield f'    """{_describe(family)}"""'
        names = [f'"{name}"' for name in self.peeked]
        peeked = f", peeked={_tuple(names)}" if names else ""
        yield f"    i, turn = tiles.start({_depths(self.program)}{peeked}), {self.turns}"
        for name, call in self.fragments():
            yield f"    {name} = {call}"

    def copies(self, subtile: int, wanted: Sequence[tuple[str, str]]) -> str:
        """Arguments that ask for more than one copy of registers; ``wanted``: (argument, kind of the op that makes them)."""
        found, e = [], self.expansion
        for argument, kind in wanted:
            ages = [e.age(v) for v, k in self.request.kinds.items() if k == kind and self.request.subtile.get(v) == subtile]
            if max(ages, default=0):
                found.append(f", {argument}={1 + max(ages)}")
        return "".join(found)

    def _loop(self) -> Iterator[str]:
        e, peeled, indent = self.expansion, self.role.stages - 1, "    "
        if e.short:
            for count, steps in enumerate(e.short, 1):
                yield f"    {'if' if count == 1 else 'elif'} work.trips == {count}:"
                yield from self._last(steps, "        ")
                yield f"        tiles.advance(i, by={count})"
            yield f"    elif work.trips >= {peeled}:"
            indent = "        "
        elif e.prologue or e.epilogue:
            yield "    if work.trips > 0:"
            indent = "        "
        yield from self.steps(e.prologue, indent, "True")
        if peeled:
            yield f"{indent}tiles.advance(i{f', by={peeled}' if peeled > 1 else ''})"
        yield from self.periods(peeled, indent)
        if released := self.released():
            yield from ("    " + line for line in released)
            yield "    if work.trips > 0:"
        yield from self._last(e.epilogue, indent)
        nothing, _ = self.closing(())
        if nothing and peeled:
            yield "    else:"
            yield from ("        " + line for line in nothing)

    def _last(self, steps: Sequence[Step], indent: str) -> Iterator[str]:
        before, behind = self.closing(steps)
        yield from (indent + line for line in before)
        yield from self.steps(steps, indent, "True", behind=behind)

    def periods(self, peeled: int, indent: str) -> Iterator[str]:
        call = f"{self.family.name}_period(ring, {self._handles}, i"
        if not self.masking:
            yield f"{indent}for _ in cutlass.range({peeled}, work.trips, unroll=1):"
            yield f"{indent}    {call})"
            return
        late = -min(self.masking)
        # a work tile without iterations says that its first is masked
        end = "work.masked" + (f" + {late}" if late else "") if peeled else "cutlass.min(work.masked, work.trips)"
        inner = indent
        if self.masks_one and peeled >= 1 + late:
            yield f"{indent}if cutlass.const_expr(block.causal):"
            inner = indent + "    "
        if late:
            end = f"cutlass.min({end}, work.trips)"
        yield f"{inner}for _ in cutlass.range({peeled}, {end}, unroll=1):"
        yield f"{inner}    {call}, masked=True)"
        begin = end if peeled <= 1 + late else f"cutlass.max({end}, {peeled})"
        yield f"{indent}for _ in cutlass.range({begin}, work.trips, unroll=1):"
        yield f"{indent}    {call}, masked=False)"

    # instructions

    def steps(
        self, steps: Sequence[Step], indent: str, masked: str, peek: bool = False, behind: Mapping[int, Sequence[str]] | None = None,
        cursor: str = "i",
    ) -> Iterator[str]:  # fmt: skip
        place = _peek_place(steps) if peek and self.peeked else -1
        ahead = self._ahead(steps, cursor, masked)
        for k, step in enumerate(steps):
            x, at = step.instruction, step.at.relative(cursor)
            yield from (indent + line for line in ahead.get(k, ()))
            if isinstance(x, Execute):
                yield indent + self.execute(x, step, at, _after(steps[k + 1 :]), masked)
            elif isinstance(x, Wait):
                yield indent + self.wait(x, at, "wait_peeked" if peek and x.barrier in self.peeked else "wait")
            elif isinstance(x, WaitOwn):
                guards = "; ".join(dict.fromkeys(self.family.label(g) for g in x.guards))
                yield f"{indent}tiles.wait_mma({x.pending})" + (f"  # {guards}" if guards else "")
            elif call := self.arrive(x, at):
                yield indent + call
            yield from (indent + line for line in (behind or {}).get(k, ()))
            if k == place:
                yield from self._peeks(steps, place, indent)

    def _ahead(self, steps: Sequence[Step], cursor: str, masked: str) -> dict[int, list[str]]:
        """What ops begin with ahead of the waits before them, by the instruction that it comes before."""
        found: dict[int, list[str]] = {}
        for k, step in enumerate(steps):
            x, at = step.instruction, step.at.relative(cursor)
            if isinstance(x, Execute) and (line := self.ahead_of_waits(x, at, masked)):
                while k and isinstance(steps[k - 1].instruction, WaitOwn | Arrive):
                    k -= 1
                found.setdefault(k, []).append(line)
        return found

    def _peeks(self, steps: Sequence[Step], place: int, indent: str) -> Iterator[str]:
        """Ask for what the role will wait for next: in this period if the wait lies ahead, else in the one to come."""
        for k, step in enumerate(steps):
            x = step.instruction
            if isinstance(x, Wait) and x.barrier in self.peeked:
                at = step.at.later(0 if k > place else 1)
                yield f'{indent}tiles.peek(ring["{x.barrier}"], {at.relative("i")})'


def load_call(request: Any, op: str, at: str, after: Sequence[Arrive]) -> str:
    """The call of a TMA load, which arrives at the barrier that it completes."""
    if len(after) != 1:
        raise EmitError(f"nothing says when the bytes of {op} have landed", "lower the schedule again")
    return f'tiles.load_{request.loads[op].lower()}(source, {at}, ring["{after[0].barrier}"])'


def aged(request: Any, step: Step, wanted: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Arguments that say which register copies an op reads; ``wanted``: (argument, kind of the op that makes them)."""
    for name, maker in wanted:
        age = max((a for v, a in step.ages.items() if request.kinds[v] == maker), default=0)
        if age:
            yield f"{name}={age}"


def _after(steps: Sequence[Step]) -> list[Arrive]:
    """The arrivals at once behind an op that count when it is over."""
    found: list[Arrive] = []
    for step in steps:
        if not isinstance(step.instruction, Arrive) or step.instruction.when != "after":
            break
        found.append(step.instruction)
    return found


def _tuple(items: Sequence[str]) -> str:
    """A tuple in Python."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _depths(program: WarpProgram) -> str:
    """The ring depths of the program, as a tuple in Python."""
    return _tuple(list(map(str, sorted({b.slots for b in program.barriers} | {s.stages for s in program.storage if not s.persistent}))))


def _describe(family: Family) -> str:
    role: Role = family.roles[0]
    first, count = family.subtiles[0] if family.subtiles else 0, len(family.roles)
    letters = [LETTERS[s] for s in (range(first, first + count) if family.shared else family.subtiles)]
    what = f"; sub-tile{'s' if len(letters) > 1 else ''} {', '.join(letters)}" if letters else ""
    warps = ("1 warp" if role.warps == 1 else f"{role.warps} warps") + (" each" if family.shared else "")
    return f"{warps}{what}; the schedule asks for {role.registers_per_thread} registers a thread."


def _peeked(steady: Sequence[Step]) -> tuple[str, ...]:
    """Barriers at which a role looks ahead of its wait: those that it waits for once a period, without a distance."""
    waits = [s.instruction for s in steady if isinstance(s.instruction, Wait)]
    names = [x.barrier for x in waits]
    return tuple(x.barrier for x in waits if names.count(x.barrier) == 1 and not x.distance)


def _peek_place(steps: Sequence[Step]) -> int:
    """The instruction behind which to look: the first wait for the role's own MMAs, and the arrivals that it allows."""
    for k, step in enumerate(steps):
        if isinstance(step.instruction, WaitOwn):
            while k + 1 < len(steps) and isinstance(steps[k + 1].instruction, Arrive):
                k += 1
            return k
    return -1
