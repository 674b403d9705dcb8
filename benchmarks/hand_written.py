"""Blackwell's forward by FlashAttention-4 and by the solver, in one model: a table of ``docs/results.md``."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.cases import Task
from benchmarks.markers import REPOSITORY, table
from twill.check import checked
from twill.check.protocol import Order, parse_order
from twill.cli.cost import tightest_schedule
from twill.model.machine import load_machine
from twill.model.registry import GraphRequest
from twill.model.schedule import Schedule
from twill.model.throughput import throughput
from twill.view.words import bottleneck

__all__ = ["fa4_table"]

ORDERS = REPOSITORY / "docs" / "examples" / "orders"
OURS: dict[str, tuple[int, dict[str, str]]] = {
    "64": (64, {}),
    "64, pairs of blocks": (64, {"ctas": "2"}),
    "128": (128, {}),
    "128, a quarter polynomials": (128, {"poly_share": "0.25"}),
    "128, pairs of blocks": (128, {"ctas": "2"}),
    "128, pairs of blocks, a quarter polynomials": (128, {"ctas": "2", "poly_share": "0.25"}),
}


def _row(who: str, schedule: Schedule, order: Order | None) -> tuple[object, ...]:
    given = schedule.graph.parameters
    speed = throughput(schedule.graph, load_machine(schedule.machine.name), schedule.ii_cycles)
    assert speed is not None
    published = ", ".join(f"{p.tflops:g}" for p in order.published) if order else ""
    share = f"{round(128 * float(str(given['poly_share'])))} of 128"
    tensor = f"{100 * schedule.utilization['tensor']:.1f} %"
    return (
        who,
        given["ctas"],
        share,
        schedule.ii_cycles,
        schedule.length_cycles,
        tensor,
        bottleneck(schedule),
        f"{speed.tflops:.0f}",
        published,
    )


def _rows() -> Iterator[tuple[object, ...]]:
    for file in sorted(ORDERS.glob("fa4_*.json")):
        order = parse_order(file.read_text(encoding="utf-8"), file.name)
        yield _row(f"FA4: {file.stem}", tightest_schedule(order), order)
    for title, (head_dim, settings) in OURS.items():
        outcome = Task("attn_fwd", "b200", GraphRequest(head_dim=head_dim, settings=settings)).solve()
        yield _row(f"twill: {title}", checked(outcome.schedules[0], load_machine("b200")).schedule, None)


def fa4_table() -> str:
    """Rows for each order of FA4's and for ours; cycles of a tile of 256 queries by 128 keys."""
    headers = ("loop", "blocks", "polynomials", "I", "L", "tensor core", "what limits I", "predicted TFLOP/s", "published TFLOP/s")
    return table(headers, list(_rows()))
