"""The child of a silicon comparison with an emulated GPU: cases keep PTX where they would keep machine code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.silicon import child
from benchmarks.silicon.cases import Array
from benchmarks.silicon.driver import DriverError
from twill.bench.watchdog import serve
from twill.emulate.errors import EmulationError
from twill.emulate.findings import Findings
from twill.emulate.host.record import Launch
from twill.emulate.machine.code import Code
from twill.emulate.machine.memory import GlobalMemory
from twill.emulate.machine.names import Names
from twill.emulate.machine.run import run
from twill.emulate.ptx.parser import parse

child.CROWD = (2, 1)


class EmulatedDevice:
    """What `benchmarks.silicon.driver.Device` offers. Deadlocks never finish; what the emulator refuses is an error of CUDA."""

    name, sm_count = "emulated", 2

    def __init__(self) -> None:
        self._memory, self._stopped = GlobalMemory(), False

    def memory(self, size: int) -> int:
        return self._memory.add("memory", np.zeros(size, np.uint8)).base

    def free(self, address: int) -> None:
        assert self._memory.find(address, 1)

    def _place(self, address: int, size: int) -> Array:
        found = self._memory.find(address, size)
        assert found is not None
        return found[0].data[found[1] : found[1] + size]

    def write(self, address: int, data: Array) -> None:
        self._place(address, data.nbytes)[:] = data.reshape(-1).view(np.uint8)

    def read(self, address: int, into: Array) -> None:
        into.reshape(-1).view(np.uint8)[:] = self._place(address, into.nbytes)

    def function(self, code: bytes, kernel: str, parameters: tuple[tuple[int, int], ...]) -> Code:
        made = parse(code.decode()).kernels[0]
        assert made.name == kernel
        assert parameters == tuple((p.offset, p.size) for p in made.parameters)
        return Code(made, Names())

    def launch(self, function: Code, launch: Launch) -> None:
        findings = Findings()
        given = Launch(function.kernel, launch.grid, launch.block, launch.cluster, launch.shared_bytes, launch.parameters)
        try:
            run(given, function, self._memory, Names(), "eager", 0, findings)
        except EmulationError as error:
            raise DriverError(f"CUDA_ERROR_LAUNCH_FAILED: {error}") from None
        self._stopped = any(f.kind == "deadlock" for f in findings.items)

    def finished(self, timeout_s: float) -> bool:
        assert timeout_s > 0
        return not self._stopped


def main() -> None:
    """Serve; the folder comes with each question."""
    replaced: Any = child
    replaced.Device = EmulatedDevice
    assert Path(__file__).is_file()
    serve(child.answer)


if __name__ == "__main__":
    main()
