"""The protocol check: a WarpProgram is free of deadlocks and races for all interleavings and all trip counts."""

from twill.check.protocol.check import check_protocol
from twill.check.protocol.cost import OrderCost, cost_order
from twill.check.protocol.lowered import lowered_order
from twill.check.protocol.order import Order, parse_order
from twill.check.protocol.pair import check_pair
from twill.check.protocol.report import ProtocolFinding, ProtocolReport

__all__ = [
    "Order",
    "OrderCost",
    "ProtocolFinding",
    "ProtocolReport",
    "check_pair",
    "check_protocol",
    "cost_order",
    "lowered_order",
    "parse_order",
]
