"""When an output is right. Each rule returns how much of what it allows was used: 1 is the limit."""

from __future__ import annotations

import math

import torch

from twill.bench.reference import Exact, exact, same_dtype

__all__ = ["EXPONENT", "LSE", "SMALLEST", "UNIT", "element_rule", "flash", "judge", "lse_rule"]

UNIT = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
"""Half the distance between neighbours just above 1."""
SMALLEST = {torch.bfloat16: 0.0, torch.float16: 2.0**-25}
"""Half the distance between the smallest numbers: probabilities this small are lost in fp16."""
EXPONENT = 2.0**-20
"""Relative error of an exponential for every unit of its largest argument: rounding of the argument in fp32, with room."""
LSE = 1e-5


def _largest(x: torch.Tensor) -> float:
    return float(x.abs().max()) if x.numel() else 0.0


def flash(ours: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor) -> float:
    """FlashAttention's: the largest error is at most twice that of PyTorch in the same type, plus twice the rounding of a sum."""
    rounded = exact.to(ours.dtype)
    allowed = 2 * _largest(theirs.double() - exact) + 2 * _largest((rounded + 0.3 - 0.3 - rounded).double())
    error = _largest(ours.double() - exact)
    return error / allowed if allowed > 0 else (0.0 if error == 0 else math.inf)


def element_rule(o: torch.Tensor, truth: Exact, keys: int, largest_v: float) -> float:
    """Every element for itself, which a largest error over all does not see.

    Rounding P to the operands' type moves an output by at most a unit times the average of ``|v|``, rounding the output by a unit of it,
    the error included.
    """
    unit = UNIT[o.dtype]
    lost = SMALLEST[o.dtype] * (keys * largest_v + 1)
    allowed = (unit + unit**2 + EXPONENT * (1 + truth.top)) * truth.weight + unit * truth.o.abs() + lost + 1e-30
    return _largest((o.double() - truth.o) / allowed)


def lse_rule(lse: torch.Tensor, truth: Exact) -> float:
    """Absolute and relative to the value; rows without keys are exactly minus infinity."""
    empty = truth.lse == -math.inf
    assert bool((lse[empty] == -math.inf).all()), "a row without keys has another log-sum-exp than -inf"
    error = (lse.double() - truth.lse)[~empty]
    return _largest(error / (LSE * (1 + truth.lse[~empty].abs())))


def judge(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool, o: torch.Tensor, lse: torch.Tensor | None
) -> dict[str, float]:
    """How much of each rule's allowance was used.

    Raises
    ------
    AssertionError : more than all of one, or an output that is not finite.
    """
    truth = exact(q, k, v, scale, causal)
    assert bool(torch.isfinite(o).all()), f"{int((~torch.isfinite(o)).sum())} of {o.numel()} outputs are not finite"
    empty = (truth.lse == -math.inf).transpose(1, 2)
    assert not bool(o[empty].any()), "a row without keys is not zero"
    used = {
        "flash": flash(o, same_dtype(q, k, v, scale, causal), truth.o),
        "element": element_rule(o, truth, k.shape[1], _largest(v)),
    }
    if lse is not None:
        used["lse"] = lse_rule(lse, truth)
    over = {name: round(value, 3) for name, value in used.items() if not value <= 1}
    assert not over, f"the error is this many times what is allowed: {over} (all: {used})"
    return used
