"""What the emitter is asked for: the parameters of the kernel, checked against what it can emit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from twill.check import CheckedSchedule
from twill.emit.errors import EmitError
from twill.emit.tiles.head_dims import HeadDims
from twill.model.graph import Op
from twill.model.graphs.parameters import parse_chunks

__all__ = ["AttentionForward", "attention_forward"]


@dataclass(frozen=True, slots=True)
class AttentionForward(HeadDims):
    """Parameters of an attention forward kernel; ``kinds``, ``subtile`` and ``chunk`` say what each op does and for what part of a tile.

    ``rows`` are those of a sub-tile. ``chunks`` are the widths, along the keys, in which P is made and multiplied; ``poly_share`` of the
    exponentials are polynomials. ``conditional`` rescaling keeps a row maximum until it has grown by more than 2 to the 8th;
    ``ahead``: exponentials do not wait for it, and are made again where it has.
    ``busiest`` is the unit that has the most to do; ``ctas`` blocks share their MMAs.
    """

    arch: str
    head_dim: int
    head_dim_v: int
    rows: int
    keys: int
    subtiles: int
    chunks: tuple[int, ...]
    poly_share: float
    conditional: bool
    ahead: bool
    kinds: Mapping[str, str]
    subtile: Mapping[str, int]
    chunk: Mapping[str, int]
    loads: Mapping[str, str]
    busiest: str
    ctas: int = 1

    @property
    def name(self) -> str:
        """Name of the kernel."""
        return f"{self.arch}_attn_fwd_{self.dims}"


def attention_forward(checked: CheckedSchedule, arch: str, rows: int, kinds: Collection[str], policies: Sequence[str]) -> AttentionForward:
    """Read the request off the schedule; ``rows`` are those of a sub-tile, ``kinds`` those of ops for which there is a tile operation,
    ``policies`` those of rescaling.

    Raises
    ------
    EmitError : anything that no kernel of ours can honour, with its reason.
    """
    graph = checked.schedule.graph
    p = dict(graph.parameters)
    if p["rescale"] not in policies:
        text = f"rescale policy {p['rescale']} cannot be emitted for {arch} yet"
        raise EmitError(text, f"solve the graph with --set rescale={policies[-1]}")
    tile_rows, keys = (int(x) for x in str(p["tile"]).split("x"))
    subtiles, d, dv = (int(str(p[x])) for x in ("subtiles", "head_dim", "head_dim_v"))
    if tile_rows != rows * subtiles:
        raise EmitError(f"sub-tiles of {tile_rows // subtiles} rows: a warpgroup here has {rows}", f"use --tile {rows * subtiles}x{keys}")
    if d % 8 or dv % 8:
        raise EmitError(f"head dims {d} and {dv} are not multiples of 8, which TMA asks for", "pad the tensors with zeros")
    ops: dict[str, Op] = {op.name: op for op in graph.ops}
    for op in ops.values():
        if op.kind not in kinds:
            raise EmitError(f"no tile operation for op {op.name} of kind {op.kind} on {arch}", f"there are {', '.join(kinds)}")
    return AttentionForward(
        arch, d, dv, rows, keys, subtiles, parse_chunks(str(p["chunks"]), keys), float(str(p["poly_share"])), p["rescale"] != "always",
        ahead=p["rescale"] == "old_max",
        kinds={v: op.kind for v, op in ops.items()}, subtile={op.name: op.subtile for op in ops.values() if op.subtile is not None},
        chunk={op.name: op.chunk for op in ops.values() if op.chunk is not None},
        loads={w: b.name for b in graph.buffers for w in b.writers if ops[w].kind == "tma_load"},
        busiest=max(checked.schedule.utilization.items(), key=lambda item: item[1])[0],
        ctas=int(str(p.get("ctas", 1))),
    )  # fmt: skip
