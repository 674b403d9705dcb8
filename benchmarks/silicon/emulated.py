"""A case under the emulator: its outputs and findings, kept beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.silicon.cases import DTYPES, Case, launches
from twill.emulate.findings import Findings
from twill.emulate.host.record import Recorder
from twill.emulate.machine.code import Code
from twill.emulate.machine.memory import GlobalMemory
from twill.emulate.machine.names import Names
from twill.emulate.machine.run import run

__all__ = ["emulated"]


def emulated(case: Case, folder: Path, kernels: Sequence[tuple[Code, Recorder]], scheduler: str = "eager") -> Case:
    """Run a case; gives it with its findings and the file, in ``folder``, that holds its outputs. ``kernels`` has one for each call."""
    memory, findings = GlobalMemory(), Findings()
    made = {b.name: memory.add(b.name, b.contents(folder), output=b.output) for b in case.buffers}
    for call, (code, host) in zip(case.calls, kernels, strict=True):
        for launch in launches(host, call, case, lambda name: made[name].base):
            run(replace(launch, kernel=code.kernel), code, memory, Names(), scheduler, 0, findings)
    file = f"{case.name.replace(' ', '_')}_emulated.npz"
    outputs: dict[str, Any] = {b.name: made[b.name].array(DTYPES[b.dtype]).reshape(b.shape) for b in case.buffers if b.output}
    np.savez_compressed(folder / file, **outputs)
    return replace(case, emulated=file, findings=tuple(sorted({f"{f.severity}: {f.kind}" for f in findings.items})))
