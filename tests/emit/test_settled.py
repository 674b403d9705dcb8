"""Conversions that must not move: P and dS are held to their place where an MMA takes registers before they are used, and only there."""

from __future__ import annotations

import ast

import pytest

from twill.cli.emit import kernel_of

TAKE = {"mma_qk", "mma_dp", "mma_dq"}


def _round(name: str, function: str) -> list[tuple[str, list[str]]]:
    """Tile operations of a period with their arguments, twice round."""
    tree = ast.parse(kernel_of(name))
    period = next(x for x in tree.body if isinstance(x, ast.FunctionDef) and x.name == f"{function}_period")
    calls = [s.value for s in period.body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)]
    return 2 * [(ast.unparse(c.func).removeprefix("tiles."), [ast.unparse(a) for a in c.args]) for c in calls]


def _expected(calls: list[tuple[str, list[str]]]) -> set[str]:
    """What is converted before an MMA with a new result and used behind it, by reading the calls."""
    found = set()
    for maker, users, what in (("convert", {"mma_dv"}, "P"), ("dscore", {"mma_dk", "store_ds"}, "dS")):
        names = [name for name, _ in calls]
        start = names.index(maker)
        until = next(k for k in range(start, len(names)) if names[k] in users)
        if TAKE & set(names[start:until]):
            found.add(what)
    return found


@pytest.mark.parametrize(
    ("name", "function", "settled"),
    [
        ("sm90_attn_bwd_d128", "stage_dq1", {"P", "dS"}),
        ("sm90_attn_bwd_d128", "stage_dq2", set()),
        ("sm90_attn_bwd_d64", "softmax_a", set()),
        ("sm90_attn_bwd_d96", "softmax_a", set()),
        ("sm90_attn_bwd_d96", "softmax_b", set()),
    ],
)
def test_settled_where_registers_are_taken(name: str, function: str, settled: set[str]) -> None:
    calls = _round(name, function)
    assert _expected(calls) == settled
    assert {ast.literal_eval(a) for op, arguments in calls if op == "settle" for a in arguments[1:]} == settled
    if settled:
        names = [op for op, _ in calls]
        at = names.index("settle")
        assert names[at - 1] in ("convert", "dscore")
        assert at > max(names.index("convert"), names.index("dscore"))
        assert at < next(k for k in range(at, len(names)) if names[k] in TAKE)
