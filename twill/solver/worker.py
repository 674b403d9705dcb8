"""The child process that runs z3: one JSON request a line in, one JSON answer a line out.

Run as a script, so that it need not import the package: it imports nothing but z3 and the standard library, ends when its
standard input closes, and watches for the death of its parent while z3 is busy.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from typing import Any


def _watch(parent: int) -> None:
    while True:
        time.sleep(0.5)
        if os.getppid() != parent:
            os._exit(4)


def main() -> None:
    """Answer requests until the input closes.

    Requests: ``load`` (text, logic, seed) starts anew; ``check`` (text, assume, effort) checks what is loaded together
    with some more text, which is forgotten afterwards, under the named Booleans, with at most that much effort (z3's rlimit; 0: any).
    """
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    z3: Any = importlib.import_module("z3")

    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    state = _State(z3)
    print(json.dumps({"ready": z3.get_version_string()}), file=out, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = state.answer(request)
        except z3.Z3Exception as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=out, flush=True)


class _State:
    def __init__(self, z3: Any) -> None:
        self.z3 = z3
        self.solver: Any = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "load":
            self.solver = self.z3.SolverFor(request["logic"])
            self.solver.set("random_seed", request["seed"])
            self.solver.from_string(request["text"])
            return {}
        extra = request["text"]
        if extra:
            self.solver.push()
            self.solver.from_string(extra)
        self.solver.set("rlimit", request["effort"])
        try:
            return self._check(request["assume"])
        finally:
            if extra:
                self.solver.pop()

    def _check(self, assume: list[str]) -> dict[str, Any]:
        z3 = self.z3
        result = self.solver.check(*[z3.Bool(n) for n in assume])
        if result == z3.unsat:
            return {"result": "unsat", "core": [str(c) for c in self.solver.unsat_core()] if assume else []}
        if result == z3.unknown:
            return {"result": "unknown", "reason": self.solver.reason_unknown()}
        model = self.solver.model()
        values: dict[str, int] = {}
        for d in model.decls():
            value = model[d]
            values[d.name()] = value.as_long() if z3.is_int_value(value) else int(z3.is_true(value))
        return {"result": "sat", "values": values}


if __name__ == "__main__":
    main()
