"""The FlashAttention backward loop: one iteration handles one tile of queries for a resident tile of keys.

Five MMAs an iteration, all scores transposed (keys are rows): S^T = K Q^T and dP^T = V dO^T, then P = exp2(S - LSE)
and dS = P (dP - dPsum), then dV += P^T dO, dK += dS^T Q and dQ = dS K. dQ does not stay: every iteration adds it to
global memory through SMEM. Where the accumulator lives decides the form: `twill.model.graphs.bwd_registers` (Hopper) or
`twill.model.graphs.bwd_tmem` (Blackwell). LSE and dPsum are read ahead of the waits and cost nothing here.
"""

from __future__ import annotations

from twill.model.builder import GraphBuilder
from twill.model.graph import LoopGraph
from twill.model.graphs.bwd_registers import register_form
from twill.model.graphs.bwd_shape import AttnBwd, resolve
from twill.model.graphs.bwd_tmem import tmem_form
from twill.model.machine import Machine

__all__ = ["AttnBwd", "attn_bwd"]


def attn_bwd(machine: Machine, parameters: AttnBwd | None = None) -> LoopGraph:
    """Build the backward loop for a machine.

    Raises
    ------
    ParameterError : a head dim, tile, dtype or cut that the machine's matrix instructions cannot take.
    """
    p = parameters or AttnBwd()
    s = resolve(p, machine)
    dv = p.head_dim if p.head_dim_v is None else p.head_dim_v
    recorded: dict[str, int | float | str] = {
        "head_dim": p.head_dim, "head_dim_v": dv, "tile": f"{s.m}x{s.n}", "subtiles": s.subtiles,
        "dtype": p.dtype, "ds_from": p.ds_from, "ctas": s.ctas,
    }  # fmt: skip
    b = GraphBuilder("attn_bwd", machine, recorded)
    if (s.d, s.dv) != (p.head_dim, dv):
        b.note(f"head dims padded with zeros to {s.d} and {s.dv}")
    parts = tmem_form(b, machine, s) if machine.accumulator == "tmem" else register_form(b, machine, s)
    b.record("dq_parts", parts)
    return b.finish()
