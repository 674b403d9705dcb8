"""What the emitter is asked for: the parameters of the kernel, checked against what it can emit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twill.check import CheckedSchedule
from twill.emit.errors import EmitError
from twill.lower import Execute, WarpProgram
from twill.model.graph import Op

__all__ = ["AttentionForward", "attention_forward"]

KINDS = ("tma_load", "mma_qk", "row_max", "exp2", "row_sum", "convert", "rescale", "mma_pv")
ROWS = 64
MMA_DEPTH = 16


@dataclass(frozen=True, slots=True)
class AttentionForward:
    """Parameters of an attention forward kernel for Hopper; ``kinds`` and ``subtile`` say what each op does and for which rows.

    ``conditional`` rescaling keeps a row maximum until it has grown by more than 2 to the 8th.
    """

    head_dim: int
    head_dim_v: int
    keys: int
    subtiles: int
    conditional: bool
    kinds: Mapping[str, str]
    subtile: Mapping[str, int]
    loads: Mapping[str, str]

    @property
    def columns(self) -> int:
        """Columns of Q in SMEM: the head dim rounded up to the depth of an MMA."""
        return _padded(self.head_dim)

    @property
    def columns_v(self) -> int:
        """Columns of O in SMEM."""
        return _padded(self.head_dim_v)

    @property
    def name(self) -> str:
        """Name of the kernel."""
        dims = f"d{self.head_dim}" + (f"_dv{self.head_dim_v}" if self.head_dim_v != self.head_dim else "")
        return f"sm90_attn_fwd_{dims}"


def _padded(head_dim: int) -> int:
    return -(-head_dim // MMA_DEPTH) * MMA_DEPTH


def attention_forward(checked: CheckedSchedule, program: WarpProgram) -> AttentionForward:
    """Read the request off the schedule.

    Raises
    ------
    EmitError : anything that no kernel of ours can honour, with its reason.
    """
    graph, machine = checked.schedule.graph, checked.machine
    if graph.name != "attn_fwd" or machine.accumulator != "registers":
        raise EmitError(f"no emitter for graph {graph.name} on {machine.name}", "attn_fwd for sm90 is what can be emitted so far")
    if program.schedule_hash != checked.schedule.hash:
        raise EmitError(
            f"the program is of schedule {program.schedule_hash[:12]}, not of {checked.schedule.hash[:12]}", "lower the schedule again"
        )
    p = dict(graph.parameters)
    if p["rescale"] not in ("always", "conditional"):
        raise EmitError(f"rescale policy {p['rescale']} cannot be emitted yet", "solve the graph with --set rescale=conditional")
    rows, keys = (int(x) for x in str(p["tile"]).split("x"))
    subtiles, d, dv = (int(str(p[x])) for x in ("subtiles", "head_dim", "head_dim_v"))
    if rows != ROWS * subtiles:
        raise EmitError(f"sub-tiles of {rows // subtiles} rows: a warpgroup here has {ROWS}", f"use --tile {ROWS * subtiles}x{keys}")
    if d % 8 or dv % 8:
        raise EmitError(f"head dims {d} and {dv} are not multiples of 8, which TMA asks for", "pad the tensors with zeros")
    if dv > d and all(b.name != "O_staging" for b in graph.buffers):
        raise EmitError(f"head dim of V {dv} is larger than that of Q {d}: O is staged in the SMEM of Q", "use a smaller --tile")
    ops: dict[str, Op] = {op.name: op for op in graph.ops}
    for op in ops.values():
        if op.kind not in KINDS:
            raise EmitError(f"no tile operation for op {op.name} of kind {op.kind} on sm90", f"there are {', '.join(KINDS)}")
    _one_role_a_subtile(ops, program)
    loads = {w: b.name for b in graph.buffers for w in b.writers if ops[w].kind == "tma_load"}
    letters = {op.name: op.subtile for op in ops.values() if op.subtile is not None}
    return AttentionForward(d, dv, keys, subtiles, p["rescale"] == "conditional", {v: op.kind for v, op in ops.items()}, letters, loads)


def _one_role_a_subtile(ops: Mapping[str, Op], program: WarpProgram) -> None:
    home: dict[int, str] = {}
    for role in program.roles:
        for x in role.body:
            if not isinstance(x, Execute):
                continue
            subtile = ops[x.op].subtile
            if subtile is not None and home.setdefault(subtile, role.name) != role.name:
                raise EmitError(
                    f"ops of sub-tile {subtile} are in roles {home[subtile]} and {role.name}: handing rows over is not emitted yet",
                    "solve it with --with local-registers",
                )
            if subtile is not None and role.warps != 4:
                raise EmitError(f"role {role.name} has {role.warps} warps; an MMA takes 4", "solve it with sub-tiles of 64 rows")
    for b in program.barriers:
        if b.kind != "mbarrier":
            raise EmitError(f"barrier {b.name} is a named one, as for rows handed over", "solve it with --with local-registers")
