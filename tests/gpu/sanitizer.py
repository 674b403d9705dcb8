"""The kernels under compute-sanitizer: out-of-bounds and misaligned accesses, and barriers used wrongly."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from itertools import product

from tests.gpu.cases import HEAD_DIMS, ORDERED, Case
from tests.gpu.gradient_cases import head_dims
from twill.bench.watchdog import Child, Failed

__all__ = ["RUNS", "SanitizerRun", "sanitized"]

TOOLS = ("memcheck", "synccheck")
PAIRS = ((193, 330), (70, 1), (1, 257), (300, 128))
EXIT_CODE = 86
CLEAN = "ERROR SUMMARY: 0 errors"


@dataclass(frozen=True, slots=True)
class SanitizerRun:
    """One tool over every variant of every kernel, in one process: starting PyTorch under a tool takes longer than the kernels do."""

    tool: str
    gradients: bool = False

    @property
    def name(self) -> str:
        return f"sanitizer-{self.tool}{'-gradients' if self.gradients else ''}"

    def cases(self) -> list[Case]:
        """Small, ragged, with shared heads; gradients with and without an order of their additions."""
        check, dims_of_all = ("gradients launch", head_dims()) if self.gradients else ("launch", HEAD_DIMS)
        details = ("", ORDERED) if self.gradients else ("",)
        combinations = product(dims_of_all, ("bf16", "fp16"), (False, True), PAIRS, details)
        return [Case(check, *dims, dtype, causal, 2, 4, 2, *pair, how, timeout_s=240.0) for dims, dtype, causal, pair, how in combinations]


RUNS = tuple(SanitizerRun(tool, gradients) for gradients in (False, True) for tool in TOOLS)


def sanitized(run: SanitizerRun) -> None:
    """Run the cases under the tool. PyTorch's caching of memory is off: an access beyond a tensor is then one beyond an allocation.

    Raises
    ------
    Failed : the tool found something, or a case failed or hung.
    FileNotFoundError : compute-sanitizer is not installed.
    """
    if shutil.which("compute-sanitizer") is None:
        raise FileNotFoundError("compute-sanitizer is not installed")
    prefix = ["compute-sanitizer", "--tool", run.tool, "--error-exitcode", str(EXIT_CODE)]
    child = Child("tests.gpu.child", prefix, {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})
    try:
        for case in run.cases():
            child.ask(case.name, case.as_dict(), case.timeout_s)
    except Failed:
        child.close()
        raise
    code = child.close()
    if code != 0 or CLEAN not in child.output:
        raise Failed(f"{run.name}: exit code {code}\n{child.output}")
