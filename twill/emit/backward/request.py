"""What the emitter is asked for: the parameters of a backward kernel, checked against what it can emit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from twill.check import CheckedSchedule
from twill.emit.errors import EmitError
from twill.emit.tiles.head_dims import HeadDims
from twill.model.graph import LoopGraph, Op
from twill.model.graphs.bwd_registers import dq_cut, keys_are_rows
from twill.model.graphs.bwd_shape import AttnBwd, BwdShape, resolve
from twill.model.graphs.parameters import parse_tile

__all__ = ["DQ_KINDS", "AttentionBackward", "attention_backward"]

DQ_KINDS = frozenset({"mma_dq", "stage_dq", "reduce_add"})
"""Kinds of ops that make a part of dQ; their sub-tile in the graph is the number of the part."""


@dataclass(frozen=True, slots=True)
class AttentionBackward(HeadDims):
    """Parameters of an attention backward kernel: an iteration is ``queries`` rows of Q by the ``keys`` keys of a work tile.

    The keys are cut into ``subtiles``. With ``keys_are_rows`` P^T and dS^T go from registers into the MMAs of dV and dK, else through
    SMEM. dQ is made in ``parts`` that divide ``divides``. ``kinds``, ``subtile`` and ``part`` say what each op does and for what part.
    """

    arch: str
    head_dim: int
    head_dim_v: int
    queries: int
    keys: int
    subtiles: int
    parts: int
    divides: str
    keys_are_rows: bool
    ds_from_bf16: bool
    kinds: Mapping[str, str]
    subtile: Mapping[str, int]
    part: Mapping[str, int]
    loads: Mapping[str, str]

    @property
    def name(self) -> str:
        """Name of the kernel."""
        return f"{self.arch}_attn_bwd_{self.dims}"


def _shape(checked: CheckedSchedule) -> BwdShape:
    p = checked.schedule.graph.parameters
    wanted = AttnBwd(
        int(p["head_dim"]), int(p["head_dim_v"]), parse_tile(str(p["tile"])), int(p["subtiles"]), int(p["dq_parts"]), str(p["dtype"]),
        "bf16" if p["ds_from"] == "bf16" else "fp32", int(p["ctas"]),
    )  # fmt: skip
    return resolve(wanted, checked.machine)


def _parts(graph: LoopGraph) -> dict[str, int]:
    """The part of dQ that an op makes; a reduction's is that of the op that wrote what it reads."""
    found = {op.name: op.subtile or 0 for op in graph.ops if op.kind in DQ_KINDS and op.kind != "reduce_add"}
    kinds = {op.name: op.kind for op in graph.ops}
    for b in graph.buffers:
        for reader in b.readers:
            if kinds[reader.op] == "reduce_add":
                found[reader.op] = found[b.writers[0]]
    return found


def attention_backward(checked: CheckedSchedule, arch: str, kinds: Collection[str]) -> AttentionBackward:
    """Read the request off the schedule; ``kinds`` are those of ops for which there is a tile operation.

    Raises
    ------
    EmitError : anything that no kernel of ours can honour, with its reason.
    """
    graph, s = checked.schedule.graph, _shape(checked)
    ops: dict[str, Op] = {op.name: op for op in graph.ops}
    for op in ops.values():
        if op.kind not in kinds:
            raise EmitError(f"no tile operation for op {op.name} of kind {op.kind} on {arch}", f"there are {', '.join(kinds)}")
    parts, divides = dq_cut(checked.machine, s)
    p = graph.parameters
    return AttentionBackward(
        arch, int(p["head_dim"]), int(p["head_dim_v"]), s.m, s.n, s.subtiles, parts, divides, keys_are_rows(s), s.ds_from_bf16,
        kinds={v: op.kind for v, op in ops.items()},
        subtile={v: op.subtile for v, op in ops.items() if op.subtile is not None and op.kind not in DQ_KINDS},
        part=_parts(graph),
        loads={w: b.name for b in graph.buffers for w in b.writers if ops[w].kind == "tma_load"},
    )  # fmt: skip
