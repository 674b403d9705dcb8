"""``twill cost``: the steady state of an order written by hand, simulated, and in the model that schedules are solved in."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from twill.cli.files import read_text
from twill.errors import EXIT_DONE, UsageError

if TYPE_CHECKING:
    from twill.check.protocol import Order
    from twill.model.schedule import Schedule

__all__ = ["cost_command"]


def cost_command(file: str, *, as_json: bool) -> int:
    """Print cycles a period, the tightest schedule that keeps to the order, and what was measured or published, if the file says.

    A schedule is simulated as it is lowered, and its I stands beside that.

    Raises
    ------
    UsageError, ScheduleFileError : a file that cannot be read, an unknown graph, machine or op, or an order that waits for ever.
    SolverError : the solver process died.
    """
    from twill.check.protocol import cost_order, parse_order

    text = read_text(file, "an order")
    if _is_schedule(text):
        return _cost_schedule(file, as_json=as_json)
    order = parse_order(text, file)
    found = cost_order(order)
    schedule = tightest_schedule(order)
    measured = order.measured
    if as_json:
        data: dict[str, Any] = {"name": order.name, "period_cycles": round(found.period_cycles, 1)}
        data |= {"tensor_share": round(found.tensor_share, 3), "ii_cycles": schedule.ii_cycles, "length_cycles": schedule.length_cycles}
        data |= {"measured": measured.model_dump() if measured else None, "published": [p.model_dump() for p in order.published]}
        sys.stdout.write(json.dumps(data, indent=1) + "\n")
        return EXIT_DONE
    sys.stdout.write(f"{order.name}: {found.period_cycles:.0f} cycles a period on {order.graph.machine}, simulated, ")
    sys.stdout.write(f"tensor core busy {100 * found.tensor_share:.0f} % of them\n")
    if measured:
        middle = (measured.low_cycles + measured.high_cycles) / 2
        span = f"{measured.low_cycles}" if measured.low_cycles == measured.high_cycles else f"{measured.low_cycles}-{measured.high_cycles}"
        sys.stdout.write(f"  measured {span} ({100 * (found.period_cycles / middle - 1):+.1f} %): {measured.source}\n")
    _print_schedule(order, schedule)
    for published in order.published:
        sys.stdout.write(f"  published {published.tflops:g} TFLOP/s: {published.source}\n")
    return EXIT_DONE


def _is_schedule(text: str) -> bool:
    try:
        raw = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return False
    return isinstance(raw, dict) and "ii_cycles" in raw


def _cost_schedule(file: str, *, as_json: bool) -> int:
    from twill.check import checked
    from twill.check.protocol import check_protocol, cost_order, lowered_order
    from twill.cli.files import read_schedule
    from twill.cli.request import machine_of_schedule
    from twill.lower import lower

    schedule = read_schedule(file)
    program = lower(checked(schedule, machine_of_schedule(schedule.machine.name, None)))
    found = cost_order(lowered_order(schedule, program))
    ratio = check_protocol(program, schedule.graph, ii_cycles=schedule.ii_cycles).cycle_ratio_cycles
    if as_json:
        data = {"period_cycles": round(found.period_cycles, 1), "tensor_share": round(found.tensor_share, 3)}
        data |= {"ii_cycles": schedule.ii_cycles, "cycle_ratio_cycles": float(ratio or 0)}
        sys.stdout.write(json.dumps(data, indent=1) + "\n")
        return EXIT_DONE
    sys.stdout.write(f"{file}: {found.period_cycles:.0f} cycles an iteration on {schedule.machine.name}, simulated as it is lowered, ")
    sys.stdout.write(f"tensor core busy {100 * found.tensor_share:.0f} % of them\n")
    sys.stdout.write(f"  the schedule: I = {schedule.ii_cycles}; waits of its program alone permit {float(ratio or 0):.0f}\n")
    return EXIT_DONE


def tightest_schedule(order: Order) -> Schedule:
    """The checked schedule of the smallest I that has the roles of an order and their order; barriers that carry nothing do not count.

    Raises
    ------
    UsageError : the rules of the model forbid the order.
    SolverError : the solver process died.
    """
    from twill.check import checked
    from twill.model.machine import load_machine
    from twill.model.registry import build_graph
    from twill.solver.ordered import Place, tightest
    from twill.solver.solve import default_options

    machine = load_machine(order.graph.machine)
    graph = build_graph(order.graph.name, machine, order.graph.request)
    roles = {r.name: [Place(s.op, s.ahead) for s in r.steps if s.op] for r in order.roles}
    found = tightest(graph, machine, default_options(graph, machine), roles)
    if found.schedule is None:
        text = (
            f"order {order.name}: the rules of the model forbid it"
            if found.proved
            else f"order {order.name}: no schedule was found in time"
        )
        raise UsageError(text, "docs/formulation.md has the rules; compare its roles with those of `twill solve`")
    return checked(found.schedule, machine).schedule


def _print_schedule(order: Order, schedule: Schedule) -> None:
    from twill.model.machine import load_machine
    from twill.view.words import bottleneck, throughput_in_words

    sys.stdout.write(f"  in the model: I = {schedule.ii_cycles}, L = {schedule.length_cycles}, the tightest that keeps to this order; ")
    sys.stdout.write(f"legal by the checker\n  bottleneck: {bottleneck(schedule)}\n")
    speed = throughput_in_words(schedule.graph, load_machine(order.graph.machine), schedule.ii_cycles)
    if speed is not None:
        sys.stdout.write(f"  predicted: {speed} in the steady state\n")
