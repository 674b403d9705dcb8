"""The graphs that ship with twill, by name, and how the command line's parameters reach them.

A parameter that a graph does not take is refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from twill.errors import ParameterError, UsageError
from twill.model.graph import LoopGraph
from twill.model.graphs.attn_bwd import AttnBwd, attn_bwd
from twill.model.graphs.attn_fwd import AttnFwd, attn_fwd
from twill.model.graphs.gemm import Gemm, gemm
from twill.model.graphs.linear_attn import LinearAttn, linear_attn
from twill.model.graphs.parameters import DTYPE_BYTES, parse_tile
from twill.model.graphs.toy import toy
from twill.model.machine import Machine

__all__ = ["GRAPHS", "GraphRequest", "GraphSpec", "Setting", "build_graph"]


@dataclass(frozen=True, slots=True)
class GraphRequest:
    """What the user asked for; ``None`` or absent means the graph's own choice.

    ``settings`` are the ``--set NAME=VALUE`` pairs, ``tile`` is ``MxN``.
    """

    head_dim: int | None = None
    head_dim_v: int | None = None
    tile: str | None = None
    subtiles: int | None = None
    dtype: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setting:
    """One ``--set NAME=VALUE`` of a graph: how to read the value, and what it means."""

    parse: Callable[[str], Any]
    meaning: str


@dataclass(frozen=True, slots=True)
class GraphSpec:
    """A shipped graph.

    ``takes`` names the fields of `GraphRequest` that it understands, besides ``settings``. ``machine`` is the only
    machine that it is for, where there is only one.
    """

    description: str
    build: Callable[[Machine, GraphRequest], LoopGraph]
    takes: tuple[str, ...]
    settings: Mapping[str, Setting]
    machine: str | None = None


FLAGS: Mapping[str, str] = MappingProxyType(
    {"head_dim": "--head-dim", "head_dim_v": "--head-dim-v", "tile": "--tile", "subtiles": "--subtiles", "dtype": "--dtype"}
)
"""How the command line spells the fields of a request."""


def _integer(text: str) -> int:
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(text)
    return value


def _arguments(spec: GraphSpec, request: GraphRequest) -> dict[str, Any]:
    """Keyword arguments for the graph's parameter class: only what was given."""
    given = {name: getattr(request, name) for name in FLAGS if getattr(request, name) is not None}
    if "tile" in given:
        given["tile"] = parse_tile(given["tile"])
    for name in ("subtiles", "head_dim", "head_dim_v"):
        if given.get(name, 1) < 1:
            raise ParameterError(f"{FLAGS[name]} {given[name]} is not positive", "use a positive number")
    for name, text in request.settings.items():
        setting = spec.settings[name]
        try:
            given[name] = setting.parse(text)
        except ValueError:
            kind = "a whole number" if setting.parse is _integer else "a number"
            raise ParameterError(f"setting {name}={text!r} is not {kind}", f"{name}: {setting.meaning}") from None
    return given


def _attn_fwd(machine: Machine, request: GraphRequest) -> LoopGraph:
    return attn_fwd(machine, AttnFwd(**_arguments(GRAPHS["attn_fwd"], request)))


def _attn_bwd(machine: Machine, request: GraphRequest) -> LoopGraph:
    return attn_bwd(machine, AttnBwd(**_arguments(GRAPHS["attn_bwd"], request)))


def _gemm(machine: Machine, request: GraphRequest) -> LoopGraph:
    return gemm(machine, Gemm(**_arguments(GRAPHS["gemm"], request)))


def _linear_attn(machine: Machine, request: GraphRequest) -> LoopGraph:
    return linear_attn(machine, LinearAttn(**_arguments(GRAPHS["linear_attn"], request)))


def _toy(machine: Machine, request: GraphRequest) -> LoopGraph:
    return toy(machine)


CTAS = Setting(_integer, "blocks that share one MMA, 1 or 2")

GRAPHS: Mapping[str, GraphSpec] = MappingProxyType(
    {
        "attn_fwd": GraphSpec(
            "FlashAttention forward main loop: a tile of queries against one tile of keys an iteration",
            _attn_fwd,
            ("head_dim", "head_dim_v", "tile", "subtiles", "dtype"),
            {
                "chunks": Setting(str, "how P is cut along the keys: a count, or widths such as 96+32"),
                "rescale": Setting(str, "when O is rescaled: always, conditional or old_max"),
                "rescale_rate": Setting(_number, "expected share of iterations that rescale, 0 to 1"),
                "poly_share": Setting(_number, "share of exponentials computed on the FMA pipe, from 0 to below 1"),
                "ctas": CTAS,
            },
        ),
        "attn_bwd": GraphSpec(
            "FlashAttention backward main loop: one tile of queries an iteration against resident keys",
            _attn_bwd,
            ("head_dim", "head_dim_v", "tile", "subtiles", "dtype"),
            {
                "dq_parts": Setting(_integer, "pieces in which dQ leaves the loop, 1 to 8"),
                "ds_from": Setting(str, "precision of the P that dS is made of: fp32 or bf16"),
                "ctas": CTAS,
            },
        ),
        "gemm": GraphSpec(
            "matrix product main loop: one slice of the inner dimension an iteration",
            _gemm,
            ("tile", "subtiles", "dtype"),
            {"k": Setting(_integer, "inner dimension of one iteration, a multiple of 16"), "ctas": CTAS},
        ),
        "linear_attn": GraphSpec(
            "chunked linear attention (Mamba-2 SSD scan): one chunk of tokens an iteration, state carried along",
            _linear_attn,
            ("head_dim", "head_dim_v", "dtype"),
            {"chunk": Setting(_integer, "tokens an iteration")},
        ),
        "toy": GraphSpec("the textbook example: three one-cycle ops on two units; optimum I = 2, L = 4", _toy, (), {}, machine="toy"),
    }
)
"""All shipped graphs by name."""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def build_graph(name: str, machine: Machine, request: GraphRequest | None = None) -> LoopGraph:
    """Build a shipped graph for a machine.

    Raises
    ------
    UsageError : unknown graph or setting, a parameter that the graph does not take, or a machine that it is not for.
    ParameterError : a parameter with a value that the graph or the machine cannot honour.
    """
    request = request or GraphRequest()
    if name not in GRAPHS:
        raise UsageError(f"unknown graph {name!r}", f"use one of {_listed(GRAPHS)}, or the path of a graph's JSON file")
    spec = GRAPHS[name]
    example_machines = {other.machine for other in GRAPHS.values() if other.machine}
    if (spec.machine and machine.name != spec.machine) or (not spec.machine and machine.name in example_machines):
        raise UsageError(
            f"graph {name!r} is not for machine {machine.name!r}",
            f"use the machine {spec.machine!r}" if spec.machine else "use a real machine",
        )
    for parameter, flag in FLAGS.items():
        if getattr(request, parameter) is not None and parameter not in spec.takes:
            raise UsageError(f"graph {name!r} takes no {flag}", f"it takes: {_listed(FLAGS[p] for p in spec.takes)}")
    for setting in request.settings:
        if setting not in spec.settings:
            raise UsageError(f"graph {name!r} has no setting {setting!r}", f"its settings are: {_listed(spec.settings)}")
    if request.dtype is not None and request.dtype not in DTYPE_BYTES:
        raise ParameterError(f"dtype {request.dtype!r} is unknown", f"use one of {', '.join(DTYPE_BYTES)}")
    return spec.build(machine, request)
