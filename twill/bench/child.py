"""``python -m twill.bench.child``: touches the GPU for the process that `twill.bench` watches it from."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from twill.bench.cases import Case, Variant
from twill.bench.contenders import versions
from twill.bench.rows import Row
from twill.bench.timing import Clock, loaded, operands, times
from twill.bench.watchdog import serve

__all__ = ["answer"]

DEVICE = "cuda"
SEED = 20261130


def answer(question: dict[str, Any]) -> dict[str, object]:
    """Do what ``question["do"]`` names with the rest of the question."""
    given = dict(question)
    what: dict[str, Callable[..., dict[str, object]]] = {"about": about, "load": load, "verify": verify, "time": time_row}
    return what[given.pop("do")](**given)


def about() -> dict[str, object]:
    """The device and what is installed; ``arch`` is None where twill knows no kernels for the device."""
    import torch

    from twill.pytorch.target import ARCHITECTURES

    if not torch.cuda.is_available():
        return {"device": None, "versions": {"torch": str(torch.__version__)}}
    found = torch.cuda.get_device_properties(0)
    arch = ARCHITECTURES.get((found.major, found.minor))
    capability = f"{found.major}.{found.minor}"
    count = found.multi_processor_count
    return {"device": found.name, "capability": capability, "arch": arch, "sm_count": count, "versions": versions()}


def load(**variant: Any) -> dict[str, object]:
    """Compile or load a kernel; what its file says of it."""
    import torch

    from twill.pytorch.libraries import function_of
    from twill.pytorch.selection import Workload, choose
    from twill.pytorch.target import target_of

    v = Variant(**variant)
    target = target_of(torch.device("cuda", 0))
    kernel = choose(Workload(target.arch, target.sm_count, v.head_dim, v.head_dim_v, v.causal, 12, 1000, 1000))
    for lse in (False, True):
        function_of(kernel, v.dtype, v.causal, lse)
    return {
        "kernel": kernel.name,
        "schedule": kernel.schedule,
        "rows": kernel.rows,
        "keys": kernel.keys,
        "interval": kernel.interval_cycles,
    }


def _operands(case: Case) -> tuple[Any, Any, Any]:
    import torch

    v = case.variant
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[v.dtype]
    make = torch.Generator(device=DEVICE).manual_seed(SEED)
    q = (case.batch, case.seqlen_q, case.heads, v.head_dim)
    k = (case.batch, case.seqlen_k, case.kv_heads, v.head_dim)
    w = (case.batch, case.seqlen_k, case.kv_heads, v.head_dim_v)
    found = [torch.randn(shape, generator=make, device=DEVICE, dtype=dtype) for shape in (q, k, w)]
    return found[0], found[1], found[2]


def verify(**given: Any) -> dict[str, object]:
    """How much of what each rule allows was used; where the kernel writes, NaN lies before.

    Raises
    ------
    AssertionError : the output is wrong, or differs from run to run.
    """
    import torch

    import twill
    from twill.bench.judge import judge

    fields = ("head_dim", "head_dim_v", "dtype", "causal")
    case = Case(Variant(**{name: given[name] for name in fields}), **{k: v for k, v in given.items() if k not in fields})
    q, k, v = _operands(case)
    shape = (case.batch, case.seqlen_q, case.heads, case.variant.head_dim_v)
    poison = torch.full(shape, torch.nan, device=DEVICE, dtype=q.dtype)
    del poison
    with torch.no_grad():
        o, lse = twill.attention(q, k, v, causal=case.variant.causal, return_lse=True)
        if case.repeats:
            differing = torch.zeros((), dtype=torch.int64, device=DEVICE)
            for _ in range(case.repeats):
                again = twill.attention(q, k, v, causal=case.variant.causal)
                differing += (again.view(torch.int16) != o.view(torch.int16)).any()
            assert int(differing) == 0, f"{int(differing)} of {case.repeats} runs gave other bits"
        return {**judge(q, k, v, case.variant.head_dim**-0.5, case.variant.causal, o, lse)}


def time_row(*, row: dict[str, Any], contenders: list[str], rounds: int, burst_ms: float) -> dict[str, object]:
    """Milliseconds of every contender in every round, and why those that are missing are."""
    import torch

    wanted = Row(**row)
    given = operands(wanted)
    with torch.no_grad():
        calls, reasons = loaded(contenders, wanted, given)
        began = time.monotonic()
        found = times(calls, given, wanted.causal, rounds=rounds, burst_ms=burst_ms, clock=Clock())
    return {"ms": found, "reasons": reasons, "seconds": time.monotonic() - began}


if __name__ == "__main__":
    serve(answer)
