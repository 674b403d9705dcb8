"""``python -m tests.gpu.child``: reads a case a line, runs its check, prints an answer a line. Ends when the input does."""

from __future__ import annotations

import json
import sys
import traceback

from tests.gpu.cases import Case
from tests.gpu.watchdog import ANSWER

FRAMES = 6
"""How much of a traceback is told."""


def answer(case: Case) -> dict[str, object]:
    """What the check found, or how it failed; ``fatal`` if nothing that this process does later can be trusted."""
    import torch

    from tests.gpu.checks import CHECKS

    found: dict[str, object] = {}
    try:
        found = CHECKS[case.check](case)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    except AssertionError as error:
        return {"failure": str(error) or traceback.format_exc(limit=-FRAMES), "fatal": False, "found": {}}
    except Exception as error:
        fatal = "CUDA" in str(error)
        return {"failure": traceback.format_exc(limit=-FRAMES), "fatal": fatal, "found": {}}
    return {"failure": "", "fatal": False, "found": found}


def main() -> None:
    """Answer until there are no more cases."""
    for line in sys.stdin:
        case = Case(**json.loads(line))
        sys.stdout.write(ANSWER + json.dumps(answer(case)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
