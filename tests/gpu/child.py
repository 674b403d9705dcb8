"""``python -m tests.gpu.child``: runs the check of one case after the other."""

from __future__ import annotations

from typing import Any

from benchmarks.watchdog import serve
from tests.gpu.cases import Case


def answer(question: dict[str, Any]) -> dict[str, object]:
    """What the check of a case found, with all of its work on the GPU done."""
    import torch

    from tests.gpu.checks import CHECKS

    case = Case(**question)
    found = CHECKS[case.check](case)
    torch.cuda.synchronize()
    return found


if __name__ == "__main__":
    serve(answer)
