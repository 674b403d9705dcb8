"""Chunked linear attention (a Mamba-2 SSD scan with scalar decay): one iteration handles one chunk of C tokens.

With a decay per token, cumulated inside the chunk, and a state H of head_dim x head_dim_v carried from chunk to chunk:

    S = Q K^T                      scores inside the chunk
    P = S * decay(i, j), j <= i    mask and decay, element-wise
    O = decay(i) * (Q H) + P V     what came before the chunk, plus what is in it
    H = decay(chunk) * H + K'^T V  with K' = K * decay(j to the end of the chunk)

The fp32 state lives in registers or TMEM, wherever MMAs leave their result; the product Q H reads a 16-bit copy of it in
SMEM. This is the loop that carries data from iteration to iteration through a long chain (copy and decay the state,
update it), which is what bounds I here.
"""

from __future__ import annotations

from dataclasses import dataclass

from twill.errors import ParameterError
from twill.model.builder import GraphBuilder
from twill.model.costs import Work, smem_store_cycles, tma_store_cycles
from twill.model.graph import LoopGraph
from twill.model.graphs.parameters import DTYPE_BYTES, check_head_dim
from twill.model.machine import Machine

__all__ = ["LinearAttn", "linear_attn"]

THREADS = 128
"""Threads of the warpgroup that runs an element-wise op."""


@dataclass(frozen=True, slots=True)
class LinearAttn:
    """Parameters of the scan; ``None`` means the machine's usual choice.

    Attributes
    ----------
    head_dim, head_dim_v : columns of Q and K, of V and O; the state is head_dim x head_dim_v.
    chunk : tokens an iteration.
    """

    head_dim: int = 128
    head_dim_v: int | None = None
    chunk: int | None = None
    dtype: str = "bf16"


@dataclass(frozen=True, slots=True)
class _Shape:
    c: int
    d: int
    dv: int
    element: int


def _shape(p: LinearAttn, machine: Machine) -> _Shape:
    check_head_dim("head dim", p.head_dim)
    dv = p.head_dim if p.head_dim_v is None else p.head_dim_v
    check_head_dim("head dim of V", dv)
    if p.dtype not in DTYPE_BYTES:
        raise ParameterError(f"dtype {p.dtype!r} is unknown", f"use one of {', '.join(DTYPE_BYTES)}")
    height = int(machine.cost("mma_tile_m"))
    chunk = height if p.chunk is None else p.chunk
    if chunk % height or not height <= chunk <= 256:
        raise ParameterError(f"a chunk of {chunk} tokens is not a multiple of {height} up to 256 on {machine.name}", f"use chunk={height}")
    return _Shape(chunk, -(-p.head_dim // height) * height, -(-dv // 16) * 16, DTYPE_BYTES[p.dtype])


def linear_attn(machine: Machine, parameters: LinearAttn | None = None) -> LoopGraph:
    """Build the scan for a machine.

    Raises
    ------
    ParameterError : a head dim, chunk or dtype that the machine's matrix instructions cannot take.
    """
    p = parameters or LinearAttn()
    s = _shape(p, machine)
    recorded: dict[str, int | float | str] = {
        "head_dim": p.head_dim, "head_dim_v": p.head_dim if p.head_dim_v is None else p.head_dim_v, "chunk": s.c, "dtype": p.dtype
    }  # fmt: skip
    b = GraphBuilder("linear_attn", machine, recorded)
    b.note(f"head dims padded with zeros to {s.d} and {s.dv}; decay factors arrive with Q and cost nothing to read")
    b.load("LQ", "Q", s.c * s.d * s.element, row_bytes=8 * s.c)
    b.load("LK", "K", s.c * s.d * s.element)
    b.load("LV", "V", s.c * s.dv * s.element)
    b.reserve("smem", 1024 + 4 * 8 * s.c)
    if machine.accumulator == "tmem":
        _tmem_form(b, machine, s)
    else:
        _register_form(b, machine, s)
    b.read("LQ", "QK", "Q", hold_cycles=b.latency_cycles("QK"))
    b.read("LQ", "QH", "Q", hold_cycles=b.latency_cycles("QH"))
    b.read("LK", "QK", "K", hold_cycles=b.latency_cycles("QK"))
    b.read("LK", "KSC", "K", hold_cycles=b.issue_cycles("KSC"))
    b.read("LV", "PV", "V", hold_cycles=b.latency_cycles("PV"))
    b.read("LV", "UPD", "V", hold_cycles=b.latency_cycles("UPD"))
    b.buffer("H_copy", "smem", s.d * s.dv * s.element, writers=("HST",))
    b.read("HST", "QH", "H_copy", hold_cycles=b.latency_cycles("QH"))
    size = s.c * s.dv * s.element
    b.bulk("SO", "tma_store", size, latency_cycles=tma_store_cycles(machine, size))
    b.buffer("O_staging", "smem", size, writers=("OST",))
    b.read("OST", "SO", "O_staging", hold_cycles=b.latency_cycles("SO"))
    return b.finish()


def _store(machine: Machine, size: float) -> float:
    """Registers to SMEM, and the barrier after which an MMA or a bulk copy may read it."""
    return smem_store_cycles(machine, size) + machine.cost("handover_named_barrier")


def _register_form(b: GraphBuilder, machine: Machine, s: _Shape) -> None:
    """Scores, output and state in the registers of the warpgroup that issues the MMA; P and K' feed MMAs from there."""
    scores, out, state = s.c * s.c, s.c * s.dv, s.d * s.dv
    b.mma("QK", "mma_qk", s.c, s.c, s.d, smem_operands="ab")
    b.compute("MASK", "decay_mask", work=(Work("fma", 2 * scores), Work("alu", 1.5 * scores)))
    b.mma("QH", "mma_qh", s.c, s.dv, s.d, smem_operands="ab")
    b.compute("OSC", "scale_output", work=(Work("fma", out),), unit="fma")
    b.mma("PV", "mma_pv", s.c, s.dv, s.c, smem_operands="b")
    b.compute("OST", "store_output", work=(Work("alu", out / 2),), extra_cycles=_store(machine, out * s.element),
              ports={"smem": out * s.element})  # fmt: skip
    k_bytes = s.c * s.d * s.element
    b.compute("KSC", "scale_keys", work=(Work("fma", s.c * s.d), Work("alu", s.c * s.d / 2)), ports={"smem": k_bytes},
              extra_cycles=k_bytes / machine.cost("smem_load_bytes"))  # fmt: skip
    b.compute("HST", "copy_and_decay_state", work=(Work("fma", state), Work("alu", state / 2)), unit="smem",
              extra_cycles=_store(machine, state * s.element), ports={"smem": state * s.element})  # fmt: skip
    b.mma("UPD", "mma_update", s.d, s.dv, s.c, smem_operands="b")

    b.value("S", "QK", scores // THREADS)
    b.use("S", "MASK", hold_cycles=0, size_bytes=4 * scores)
    b.value("P", "MASK", scores // THREADS // 2)
    b.use("P", "PV", hold_cycles=b.latency_cycles("PV"), size_bytes=2 * scores)
    b.value("O_before", "QH", out // THREADS)
    b.use("O_before", "OSC", hold_cycles=0, size_bytes=4 * out)
    b.value("O_scaled", "OSC", out // THREADS)
    b.use("O_scaled", "PV", hold_cycles=0, size_bytes=4 * out)
    b.value("O", "PV", out // THREADS)
    b.use("O", "OST", size_bytes=4 * out)
    b.value("K_scaled", "KSC", s.c * s.d // THREADS // 2)
    b.use("K_scaled", "UPD", hold_cycles=b.latency_cycles("UPD"), size_bytes=k_bytes)
    b.value("H", "UPD", state // THREADS, persistent=True)
    b.edge("UPD", "HST", "registers", value="H", distance=1, size_bytes=4 * state)
    b.edge("HST", "UPD", "registers", value="H", size_bytes=4 * state)


def _tmem_form(b: GraphBuilder, machine: Machine, s: _Shape) -> None:
    """Scores, output and state in tensor memory; P overwrites S, K' goes back to SMEM."""
    scores, out, state, keys = s.c * s.c, s.c * s.dv, s.d * s.dv, s.c * s.d
    load_fixed, store_fixed = machine.cost("tmem_load_fixed"), machine.cost("tmem_store_fixed")

    def load(elements: int) -> float:
        return elements * 4 / machine.cost("tmem_load_bytes")

    def store(elements: int, element: int) -> float:
        return elements * element / machine.cost("tmem_store_bytes")

    b.mma("QK", "mma_qk", s.c, s.c, s.d, smem_operands="ab")
    b.compute("MASK", "decay_mask", work=(Work("fma", 2 * scores), Work("alu", 1.5 * scores)), floor_cycles=load(scores),
              extra_cycles=load_fixed + store_fixed + store(scores, s.element),
              ports={"tmem": 100 * (load(scores) + store(scores, s.element))})  # fmt: skip
    b.mma("QH", "mma_qh", s.c, s.dv, s.d, smem_operands="ab")
    b.compute("OSC", "scale_output", work=(Work("fma", out),), unit="tmem", floor_cycles=load(out),
              extra_cycles=load_fixed + store_fixed + store(out, 4), ports={"tmem": 100 * (load(out) + store(out, 4))})  # fmt: skip
    b.mma("PV", "mma_pv", s.c, s.dv, s.c, smem_operands="b")
    b.compute("OST", "store_output", work=(Work("alu", out / 2),), unit="tmem", floor_cycles=load(out),
              extra_cycles=load_fixed + _store(machine, out * s.element),
              ports={"tmem": 100 * load(out), "smem": out * s.element})  # fmt: skip
    b.compute("KSC", "scale_keys", work=(Work("fma", keys), Work("alu", keys / 2)), unit="smem",
              extra_cycles=keys * s.element / machine.cost("smem_load_bytes") + _store(machine, keys * s.element),
              ports={"smem": 2 * keys * s.element})  # fmt: skip
    b.compute("HST", "copy_and_decay_state", work=(Work("fma", state), Work("alu", state / 2)), unit="tmem", floor_cycles=load(state),
              extra_cycles=load_fixed + store_fixed + store(state, 4) + _store(machine, state * s.element),
              ports={"tmem": 100 * (load(state) + store(state, 4)), "smem": state * s.element})  # fmt: skip
    b.mma("UPD", "mma_update", s.d, s.dv, s.c, smem_operands="ab")

    lanes = 128
    b.buffer("SP", "tmem", scores // lanes, writers=("QK",))
    b.read("QK", "MASK", "SP", hold_cycles=b.issue_cycles("MASK"), kind="tmem")
    b.edge("MASK", "PV", "tmem", value="P")
    b.release("SP", "PV", hold_cycles=b.occupancy_cycles("PV"))
    b.buffer("O", "tmem", out // lanes, writers=("QH",))
    b.read("QH", "OSC", "O", hold_cycles=b.issue_cycles("OSC"), kind="tmem")
    b.read("OSC", "PV", "O", hold_cycles=b.latency_cycles("PV"), kind="tmem")
    b.read("PV", "OST", "O", hold_cycles=b.issue_cycles("OST"), kind="tmem")
    b.buffer("K_scaled", "smem", keys * s.element, writers=("KSC",))
    b.read("KSC", "UPD", "K_scaled", hold_cycles=b.latency_cycles("UPD"))
    b.buffer("H", "tmem", state // lanes, persistent=True)
    b.edge("UPD", "HST", "tmem", value="H", distance=1)
    b.edge("HST", "UPD", "tmem", value="H")
    for name, registers in (("MASK", 64), ("OSC", 32), ("OST", 32), ("KSC", 32), ("HST", 32)):
        b.value(f"T_{name}", name, registers)
