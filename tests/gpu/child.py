"""``python -m tests.gpu.child``: runs the check of one case after the other."""

from __future__ import annotations

from typing import Any

from tests.gpu.cases import Case
from tests.gpu.regenerated import ANOTHER, file_of
from twill.bench.watchdog import serve

registered: set[str] = set()


def _register(case: Case) -> None:
    """Use the kernel of the case, once."""
    import twill

    path = str(file_of(case.head_dim)) if case.kernel == ANOTHER else case.kernel
    if path and path not in registered:
        twill.register_kernel(path)
        registered.add(path)


def answer(question: dict[str, Any]) -> dict[str, object]:
    """What the check of a case found, with all of its work on the GPU done."""
    import torch

    from tests.gpu.checks import CHECKS

    case = Case(**question)
    _register(case)
    found = CHECKS[case.check](case)
    torch.cuda.synchronize()
    return found


if __name__ == "__main__":
    serve(answer)
