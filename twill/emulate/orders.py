"""Mutants of a schedule's program: one instruction of a role dropped, or two neighbours swapped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from twill.lower import Arrive, Execute, Instruction, Wait, WaitOwn, WarpProgram

__all__ = ["OrderMutant", "order_mutants", "spelled"]


@dataclass(frozen=True, slots=True)
class OrderMutant:
    """``program`` with one change to ``role``; ``text`` says which."""

    role: str
    family: str
    text: str
    program: WarpProgram


def order_mutants(p: WarpProgram) -> Iterator[OrderMutant]:
    """Every drop and every swap of neighbours, role by role. A swap that changes nothing is left out."""
    for n, role in enumerate(p.roles):

        def changed(body: tuple[Instruction, ...], n: int = n) -> WarpProgram:
            return replace(p, roles=(*p.roles[:n], replace(p.roles[n], body=body), *p.roles[n + 1 :]))

        for k, x in enumerate(role.body):
            yield OrderMutant(role.name, f"{_kind(x)} dropped", spelled(x), changed((*role.body[:k], *role.body[k + 1 :])))
        for k, (x, y) in enumerate(zip(role.body, role.body[1:], strict=False)):
            if x != y:
                body = (*role.body[:k], y, x, *role.body[k + 2 :])
                yield OrderMutant(role.name, "neighbours swapped", f"{spelled(x)}, {spelled(y)}", changed(body))


def _kind(x: Instruction) -> str:
    match x:
        case Execute():
            return "operation"
        case Wait() | WaitOwn():
            return "wait"
        case Arrive():
            return "arrival"


def spelled(x: Instruction) -> str:
    """As ``twill lower`` prints it, without iterations."""
    match x:
        case Execute():
            return x.op
        case Wait():
            return f"wait {x.barrier}"
        case WaitOwn():
            return f"wait own MMAs, {x.pending} pending"
        case Arrive():
            return f"arrive {x.barrier}" + (f" after {x.op}" if x.when == "after" else "")
