"""``twill cost``: the steady state of an order written by hand."""

from __future__ import annotations

import json
import sys

from twill.cli.files import read_text
from twill.errors import EXIT_DONE

__all__ = ["cost_command"]


def cost_command(file: str, *, as_json: bool) -> int:
    """Print cycles a period, and how far they are from what was measured, if the file says.

    Raises
    ------
    UsageError, ScheduleFileError : a file that cannot be read, an unknown graph, machine or op, or an order that waits for ever.
    """
    from twill.check.protocol import cost_order, parse_order

    order = parse_order(read_text(file, "an order"), file)
    found = cost_order(order)
    measured = order.measured
    if as_json:
        data = {"name": order.name, "period_cycles": round(found.period_cycles, 1), "tensor_share": round(found.tensor_share, 3)}
        known = measured.model_dump() if measured else None
        sys.stdout.write(json.dumps(data | {"measured": known}, indent=1) + "\n")
        return EXIT_DONE
    sys.stdout.write(f"{order.name}: {found.period_cycles:.0f} cycles a period on {order.graph.machine}, ")
    sys.stdout.write(f"tensor core busy {100 * found.tensor_share:.0f} % of them\n")
    if measured:
        middle = (measured.low_cycles + measured.high_cycles) / 2
        span = f"{measured.low_cycles}" if measured.low_cycles == measured.high_cycles else f"{measured.low_cycles}-{measured.high_cycles}"
        sys.stdout.write(f"  measured {span} ({100 * (found.period_cycles / middle - 1):+.1f} %): {measured.source}\n")
    return EXIT_DONE
