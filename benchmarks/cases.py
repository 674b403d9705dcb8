"""What is measured and tabulated: the cases of the paper and the configurations that ship."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twill.check import checked
from twill.model.graph import LoopGraph
from twill.model.machine import Machine, load_machine
from twill.model.registry import GraphRequest, build_graph
from twill.model.schedule import Options, Schedule
from twill.solver.solve import Outcome, default_options, explain, solve

__all__ = ["ABLATED", "LEVERS", "MEASURED", "PAPER_CASES", "Measured", "PaperCase", "Task", "solved"]


@dataclass(frozen=True, slots=True)
class Task:
    """A graph, a machine and what is asked; ``options`` are those of `default_options`."""

    graph: str
    machine: str
    request: GraphRequest = field(default_factory=GraphRequest)
    options: Mapping[str, Any] = field(default_factory=dict)

    def built(self) -> tuple[LoopGraph, Machine]:
        """The loop graph and the machine."""
        machine = load_machine(self.machine)
        return build_graph(self.graph, machine, self.request), machine

    def asked(self, **more: Any) -> Options:
        """The options, with some of them changed."""
        return default_options(*self.built(), **{**self.options, **more})

    def solve(self, *, timeout_s: float = 600.0, **more: Any) -> Outcome:
        """Solve, with some options changed."""
        return solve(*self.built(), self.asked(**more), timeout_s=timeout_s)

    def needed_rules(self, ii_cycles: int) -> tuple[str, ...]:
        """A minimal set of rules that together forbid this I."""
        core = explain(*self.built(), self.asked(), ii_cycles, timeout_s=600.0)
        return core.rules if core else ()

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments of ``twill solve`` that ask for this."""
        words = [self.graph, "--machine", self.machine]
        flags: dict[str, Any] = {
            "--head-dim": self.request.head_dim,
            "--head-dim-v": self.request.head_dim_v,
            "--tile": self.request.tile,
            "--subtiles": self.request.subtiles,
            "--registers": self.options.get("registers"),
            "--groups": self.options.get("groups"),
        }
        for flag, value in flags.items():
            words += [flag, str(value)] if value is not None else []
        return (*words, *(f"--set={name}={value}" for name, value in self.request.settings.items()))


@dataclass(frozen=True, slots=True)
class PaperCase:
    """One of the five cases of the paper, and how soon it shall be solved."""

    title: str
    task: Task
    target_s: float


TWO_CONSUMERS = GraphRequest(tile="128x128", subtiles=2, settings={"rescale": "always"})
"""The Hopper forward of the paper and of FlashAttention-3; twill's own choice is three consumers and conditional rescaling."""
RESCALED = GraphRequest(settings={"rescale": "always"})
"""The Blackwell forward of the paper; twill's own choice is conditional rescaling."""

PAPER_CASES: tuple[PaperCase, ...] = (
    PaperCase("Hopper forward", Task("attn_fwd", "h200", TWO_CONSUMERS), 2.0),
    PaperCase("Hopper forward, three consumers", Task("attn_fwd", "h200"), 2.0),
    PaperCase("Blackwell forward", Task("attn_fwd", "b200", RESCALED), 1.5),
    PaperCase("Hopper backward", Task("attn_bwd", "h200"), 4.0),
    PaperCase("Blackwell backward", Task("attn_bwd", "b200"), 12.0),
    PaperCase("Blackwell backward, four groups", Task("attn_bwd", "b200", options={"groups": 4}), 12.0),
    PaperCase("Blackwell backward, 160 registers", Task("attn_bwd", "b200", options={"registers": 160}), 3.0),
    PaperCase("Blackwell backward, four groups of 160 registers", Task("attn_bwd", "b200", options={"registers": 160, "groups": 4}), 12.0),
)
"""Head dim 128, non-causal; the paper's default backward is the one with four groups."""

ABLATED: Mapping[str, Task] = {
    "Blackwell forward": Task("attn_fwd", "b200", RESCALED),
    "Hopper forward": Task("attn_fwd", "h200", TWO_CONSUMERS),
    "Blackwell backward": Task("attn_bwd", "b200"),
    "Hopper backward": Task("attn_bwd", "h200"),
}
"""The loops of which the rules are switched off one by one."""


def _lever(options: Mapping[str, Any] | None = None, **settings: str) -> Task:
    return Task("attn_fwd", "b200", GraphRequest(settings={"rescale": "always", **settings}), options or {})


LEVERS: Mapping[str, Task] = {
    "P in 96 + 32, an eighth of exp2 on FMA, always rescale": _lever(),
    "P in one piece": _lever(chunks="1"),
    "P in halves": _lever(chunks="2"),
    "P in quarters": _lever(chunks="4"),
    "no exp2 on FMA": _lever(poly_share="0"),
    "a quarter of exp2 on FMA": _lever(poly_share="0.25"),
    "as shipped: rescale in a tenth of the iterations": _lever(rescale="conditional"),
    "exponents against the old maximum": _lever(rescale="old_max"),
    "two blocks a pair": _lever(ctas="2"),
    "as FA4's pair: two blocks, 3/16 on FMA, conditional rescale": _lever(ctas="2", poly_share="0.1875", rescale="conditional"),
    "one block, 3/16 on FMA, conditional rescale": _lever(poly_share="0.1875", rescale="conditional"),
    "one block, a quarter on FMA, conditional rescale": _lever(poly_share="0.25", rescale="conditional"),
    "one sub-tile of 128 rows (half the work)": Task("attn_fwd", "b200", GraphRequest(tile="128x128", subtiles=1)),
}
"""Variants of the Blackwell forward loop at head dim 128."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Cycles that a kernel or loop of ours took on one H200 (2026-11-30), per iteration of the modelled loop.

    ``whole_kernel`` figures include what is outside the loop and the last wave (2 to 3 %); the others are of the loop alone.
    """

    title: str
    task: Task
    cycles: int
    whole_kernel: bool = False


def _hopper(tile: str = "128x128", subtiles: int = 2, head_dim: int | None = None, rescale: str = "always") -> Task:
    settings = {"rescale": rescale}
    return Task("attn_fwd", "h200", GraphRequest(head_dim=head_dim, tile=tile, subtiles=subtiles, settings=settings))


MEASURED: tuple[Measured, ...] = (
    Measured("forward 128, 2 consumers, FA3 order, always rescale", _hopper(), 2403),
    Measured("forward 128, 2 consumers, FA3 order, no rescale (model: conditional)", _hopper(rescale="conditional"), 2262),
    Measured("forward 64, 2 consumers of 128 keys", _hopper("128x128", 2, 64), 1872),
    Measured("forward 128, 2 consumers, always rescale", _hopper(), 2507, True),
    Measured("forward 128, 2 consumers, conditional rescale", _hopper(rescale="conditional"), 2543, True),
    # given per 128 x 128 pair of 2048 tensor cycles; one iteration of 192 x 80 has 1920 of them
    Measured("forward 128, 3 consumers 192x80, always rescale", _hopper("192x80", 3), round(2506 * 1920 / 2048), True),
    Measured(
        "forward 128, 3 consumers 192x80, conditional rescale", _hopper("192x80", 3, rescale="conditional"), round(2283 * 1920 / 2048), True
    ),
    # given as multiples of the 3200 tensor cycles of an iteration
    Measured("backward 128, Q tile 80, FA4's kernel", Task("attn_bwd", "h200"), round(1.317 * 3200), True),
    Measured("backward 128, Q tile 80, best kernel of ours", Task("attn_bwd", "h200"), round(1.343 * 3200), True),
)
"""What the model of Hopper can be held against."""


def solved(task: Task, **more: Any) -> Schedule | None:
    """The proved best schedule, or None if there is none.

    Raises
    ------
    RuntimeError : time ran out before a proof.
    CheckFailed : the independent checker refuses it.
    """
    outcome = task.solve(**more)
    if outcome.status == "infeasible":
        return None
    if not outcome.schedules or outcome.status != "optimal" or not outcome.schedules[0].proof.rank_proved:
        raise RuntimeError(f"{task} {more} was not solved to proof")
    return checked(outcome.schedules[0], load_machine(task.machine)).schedule
