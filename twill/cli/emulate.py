"""``twill emulate``: a compiled kernel run on the CPU from its PTX."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Literal

from twill.cli.progress import Progress
from twill.errors import EXIT_DONE, EXIT_REFUSED, UsageError

__all__ = ["EmulateArguments", "emulate_command"]


@dataclass(frozen=True, slots=True)
class EmulateArguments:
    """What the command line says of the problem."""

    batch: int
    seqlen_q: int
    seqlen_k: int
    heads: int
    kv_heads: int | None
    causal: bool
    dtype: str
    deterministic: bool = False


def emulate_command(kernel: str, given: EmulateArguments, *, schedulers: str, seed: int, sm_count: int) -> int:
    """Compile, run under each scheduler, print a report each. Refused if there is an error among the findings.

    Raises
    ------
    UsageError : an unknown type or scheduler, or heads that cannot be shared.
    BuildError, EmulationError : the kernel cannot be compiled, or uses what the emulator does not know.
    """
    from twill.emulate.machine.schedulers import SCHEDULERS
    from twill.emulate.ready import ready, shape_of
    from twill.view.emulation import report

    names = SCHEDULERS if schedulers == "all" else tuple(schedulers.split(","))
    if unknown := [n for n in names if n not in SCHEDULERS]:
        raise UsageError(f"no scheduler is called {unknown[0]!r}", f"use all, or some of {', '.join(SCHEDULERS)} with commas")
    dtype = _dtype(given.dtype)
    kv_heads = given.kv_heads or given.heads
    if min(given.batch, given.seqlen_q, given.heads, kv_heads) < 1 or given.seqlen_k < 0 or given.heads % kv_heads:
        raise UsageError(
            f"{given.heads} heads over {kv_heads} of K and V, lengths {given.seqlen_q} and {given.seqlen_k}", "give sizes above 0"
        )
    with Progress("emulate") as progress:
        progress.say("compiling")
        made = ready(kernel, causal=given.causal, dtype=dtype, deterministic=given.deterministic)
        shape = shape_of(
            made, given.seqlen_q, given.seqlen_k, causal=given.causal, batch=given.batch, heads=given.heads, kv_heads=kv_heads, dtype=dtype
        )
        good = True
        for name in names:
            begin = time.perf_counter()

            def note(done: int, of: int, name: str = name) -> None:
                progress.say(f"{name}, block {done} of {of}")

            result = made.run(shape, name, seed, sm_count, note)
            good = good and not result.findings.errors
            for line in report(result, made.code, time.perf_counter() - begin):
                sys.stdout.write(line + "\n")
    return EXIT_DONE if good else EXIT_REFUSED


def _dtype(name: str) -> Literal["bf16", "fp16"]:
    if name == "bf16":
        return "bf16"
    if name == "fp16":
        return "fp16"
    raise UsageError(f"no element type is called {name!r}", "use bf16 or fp16")
