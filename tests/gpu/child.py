"""``python -m tests.gpu.child``: runs the check of one case after the other."""

from __future__ import annotations

from typing import Any

from benchmarks.watchdog import serve
from tests.gpu.cases import Case

registered: set[str] = set()


def answer(question: dict[str, Any]) -> dict[str, object]:
    """What the check of a case found, with all of its work on the GPU done."""
    import torch

    import twill
    from tests.gpu.checks import CHECKS

    case = Case(**question)
    if case.kernel and case.kernel not in registered:
        twill.register_kernel(case.kernel)
        registered.add(case.kernel)
    found = CHECKS[case.check](case)
    torch.cuda.synchronize()
    return found


if __name__ == "__main__":
    serve(answer)
