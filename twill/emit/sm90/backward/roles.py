"""Roles of a Hopper backward kernel: consumer warpgroups issue their MMAs themselves and keep S, dP, dV and dK in registers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from twill.emit.backward.request import AttentionBackward
from twill.emit.expansion import Step
from twill.emit.families import Family
from twill.emit.plan import Plan
from twill.emit.roles import LETTERS, RolePrinter, load_call
from twill.lower import Arrive, Execute, Role, Wait, WaitOwn, WarpProgram

__all__ = ["HopperBackwardRole", "readers_of_keys", "readers_of_values", "released_by_own_reduction"]

OF_SCORES = frozenset({"mma_qk", "mma_dp", "exp2", "convert", "dscore", "store_ds"})
READ_KEYS = frozenset({"mma_qk", "mma_dq"})
READ_VALUES = frozenset({"mma_dp", "mma_dv"})
MEETING = frozenset({"store_ds", "stage_dq"})
"""Kinds of ops at the end of which the four warps of a role meet: what they wrote is there for asynchronous readers."""
AHEAD = {"exp2": "read_lse", "dscore": "read_dpsum"}
"""What is read of SMEM before the wait for the scores or dP: it came with Q or dO."""
FRAGMENT = {"mma_dv": "dv", "mma_dk": "dk"}
TAKE_REGISTERS = frozenset({"mma_qk", "mma_dp", "mma_dq"})
"""Kinds of MMAs whose results are new; those of dV and dK add to registers that are theirs throughout."""
CONVERTED = {"convert": "P", "dscore": "dS"}
"""What ops convert to 16 bits."""
USED_BY = {"convert": frozenset({"mma_dv"}), "dscore": frozenset({"mma_dk", "store_ds"})}
"""What uses it."""


def _ops(role: Role) -> list[str]:
    return [x.op for x in role.body if isinstance(x, Execute)]


def readers_of_keys(program: WarpProgram, request: AttentionBackward) -> list[Role]:
    """Roles whose MMAs read K or V."""
    return [r for r in program.roles if any(request.kinds[op] in READ_KEYS for op in _ops(r))]


def readers_of_values(program: WarpProgram, request: AttentionBackward) -> list[Role]:
    """Roles that multiply with V, or take its place for dV."""
    return [r for r in program.roles if any(request.kinds[op] in READ_VALUES for op in _ops(r))]


def released_by_own_reduction(program: WarpProgram, request: AttentionBackward) -> frozenset[str]:
    """Barriers at which a role waits for its own reductions only: it waits for these themselves, as it does for its own MMAs."""
    arrive: dict[str, set[str]] = {}
    wait: dict[str, set[str]] = {}
    other: set[str] = set()
    for role in program.roles:
        for x in role.body:
            if isinstance(x, Arrive):
                arrive.setdefault(x.barrier, set()).add(role.name)
                if x.when != "after" or request.kinds[x.op] != "reduce_add":
                    other.add(x.barrier)
            elif isinstance(x, Wait):
                wait.setdefault(x.barrier, set()).add(role.name)
    return frozenset(b for b, by in arrive.items() if b not in other and by == wait.get(b) and len(by) == 1)


class HopperBackwardRole(RolePrinter):
    """Prints the functions of one family of roles for Hopper."""

    def __init__(self, plan: Plan, family: Family) -> None:
        self.own_reductions = released_by_own_reduction(plan.program, plan.request)
        super().__init__(plan, family)
        self.peeked = tuple(b for b in self.peeked if b not in self.own_reductions)
        self.reads_keys = bool(self.executes & READ_KEYS)
        self.reads_values = bool(self.executes & READ_VALUES)
        self.unguarded = frozenset(self._stores_without_meeting())

    def fragments(self) -> Iterator[tuple[str, str]]:
        """Scores of a sub-tile, its accumulators, and parts of dQ."""
        group = f'meeting="{self.role.name}"'
        for s in self.family.subtiles:
            if self._has(OF_SCORES, s):
                yield f"scores_{LETTERS[s]}", f"tiles.scores(block, subtile={s}, {group})"
        for s in self.family.subtiles:
            for kind, name in FRAGMENT.items():
                if self._has({kind}, s):
                    yield f"{name}_{LETTERS[s]}", f"tiles.{name}(block, subtile={s}, {group})"
        others = f", others={len(self._parts) - 1}" if len(self._parts) > 1 else ""
        for p in self._parts:
            yield self._part(p), f"tiles.dq(block, part={p}, {group}{others})"

    @property
    def _parts(self) -> list[int]:
        """Parts of dQ that the role makes."""
        return sorted({self.request.part[op] for op in _ops(self.role) if op in self.request.part})

    def _has(self, kinds: frozenset[str] | set[str], subtile: int) -> bool:
        return any(self.request.kinds[op] in kinds and self.request.subtile.get(op) == subtile for op in _ops(self.role))

    def _staged(self, barrier: str) -> str:
        """The part of dQ whose staging a barrier protects."""
        parts = {self.request.part[x.op] for x in self.role.body if isinstance(x, Arrive) and x.barrier == barrier}
        return self._part(parts.pop())

    def _part(self, part: int) -> str:
        return "dq" if self.request.parts == 1 else f"dq_{LETTERS[part]}"

    def begin(self) -> Iterator[str]:
        for name in self.tiles:
            yield f"    {name} = tiles.begin_work({name}, work)"
        if self.reads_keys:
            yield '    tiles.wait_slot(ring["keys_full"], 0, turn)'
        if self.reads_values:
            yield '    tiles.wait_slot(ring["values_full"], 0, turn)'

    def end(self) -> Iterator[str]:
        # reductions of this work tile go on beside the next; what they read is waited for where it is written again
        if self.reads_keys:
            yield '    tiles.arrive_slot(ring["keys_empty"], 0)'
        for s in self.family.subtiles:
            for name in FRAGMENT.values():
                if f"{name}_{LETTERS[s]}" in self.tiles:
                    yield f"    tiles.finish_{name}({name}_{LETTERS[s]})"
        if self.reads_values:
            yield "    tiles.stored(block)"
            yield '    tiles.arrive_slot(ring["values_empty"], 0)'
        if "reduce_add" in self.executes:
            for p in self._parts:
                yield f"    tiles.reductions_over({self._part(p)})"

    def leave(self) -> Iterator[str]:
        if "reduce_add" in self.executes:
            yield "    tiles.stored(block)"

    def ahead_of_waits(self, execute: Execute, at: str, masked: str) -> str | None:
        kind = self.request.kinds[execute.op]
        mask = f", masked={masked}" if kind == self.masked_by else ""
        return f"tiles.{AHEAD[kind]}(scores_{LETTERS[self.request.subtile[execute.op]]}, {at}{mask})" if kind in AHEAD else None

    def wait(self, x: Wait, at: str, call: str) -> str:
        if x.barrier in self.own_reductions:
            return f"tiles.reductions_read({self._staged(x.barrier)})"
        return super().wait(x, at, call)

    def execute(self, execute: Execute, step: Step, at: str, after: Sequence[Arrive], masked: str) -> str:
        op, request = execute.op, self.request
        kind = request.kinds[op]
        if kind == "tma_load":
            return load_call(request, op, at, after)
        if kind in ("mma_dq", "stage_dq", "reduce_add"):
            return f"tiles.{kind}({self._part(request.part[op])}, {at}{self._guard(op)})"
        scores = f"scores_{LETTERS[request.subtile[op]]}"
        if kind in FRAGMENT:
            return f"tiles.{kind}({FRAGMENT[kind]}_{LETTERS[request.subtile[op]]}, {scores}, {at})"
        mask = f", masked={masked}" if kind == "exp2" else ""
        return f"tiles.{kind}({scores}, {at}{mask}{self._guard(op)})"

    def steps(
        self, steps: Sequence[Step], indent: str, masked: str, peek: bool = False, behind: Mapping[int, Sequence[str]] | None = None,
        cursor: str = "i",
    ) -> Iterator[str]:  # fmt: skip
        lines = dict(behind or {})
        for k, names in self._settled(steps, turns=peek).items():
            scores = f"scores_{LETTERS[self._subtile(steps[k]) or 0]}"
            lines[k] = [f"tiles.settle({scores}, {', '.join(names)})", *lines.get(k, ())]
        yield from super().steps(steps, indent, masked, peek, lines, cursor)

    def _kind(self, step: Step) -> str:
        return self.request.kinds[step.instruction.op] if isinstance(step.instruction, Execute) else ""

    def _subtile(self, step: Step) -> int | None:
        return self.request.subtile.get(step.instruction.op) if isinstance(step.instruction, Execute) else None

    def _settled(self, steps: Sequence[Step], turns: bool) -> dict[int, list[str]]:
        """What has to have been converted where, by the step behind which that is so; ``turns``: the first step comes after the last.

        The assembler moves conversions down to where their results are used, and an MMA in between takes the registers that they free.
        """
        found: dict[int, list[str]] = {}
        for k, step in enumerate(steps):
            if self._kind(step) not in CONVERTED:
                continue
            last = k
            for n in (*range(k + 1, len(steps)), *(range(k) if turns else ())):
                same = self._subtile(steps[n]) == self._subtile(step)
                if same and self._kind(steps[n]) in USED_BY[self._kind(step)]:
                    break
                if self._kind(steps[n]) in TAKE_REGISTERS:
                    found.setdefault(last, []).append(f'"{CONVERTED[self._kind(step)]}"')
                    break
                if same and self._kind(steps[n]) in CONVERTED and n > k:
                    last = n
        return found

    def _guard(self, op: str) -> str:
        return ", meet_first=True" if op in self.unguarded else ""

    def _stores_without_meeting(self) -> Iterator[str]:
        """Stores into SMEM that this role's own MMAs read, where the four warps do not meet between an MMA and the store.

        A warp that has waited for the role's MMA knows that its own share is over, not that of the other three, which read the same tile.
        """
        kinds, body = self.request.kinds, [s.instruction for s in self.expansion.steady]
        for k, x in enumerate(body):
            if not isinstance(x, Execute) or kinds[x.op] != "store_ds" or "mma_dq" not in self.executes:
                continue
            # back from the store to the last MMA that reads it: a wait for it, then a meeting
            met = waited = False
            for y in reversed([*body, *body[:k]][k:]):
                if isinstance(y, Execute) and kinds[y.op] in MEETING and not waited:
                    met = True
                elif isinstance(y, WaitOwn) and y.pending == 0:
                    waited = True
                elif isinstance(y, Execute) and kinds[y.op] == "mma_dq":
                    break
            if not (met and waited):
                yield x.op
