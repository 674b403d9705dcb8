"""Small PTX programs under the emulator: a body, some tensors, a grid; what is left in memory and what was found."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twill.emulate.findings import Findings
from twill.emulate.host.record import Launch
from twill.emulate.machine.code import Code
from twill.emulate.machine.memory import Allocation, GlobalMemory
from twill.emulate.machine.names import Names
from twill.emulate.machine.run import Coverage, run
from twill.emulate.ptx.parser import parse

REGISTERS = """
.reg .pred %p<40>; .reg .b16 %rs<40>; .reg .b32 %r<400>; .reg .b64 %rd<80>;
"""


@dataclass
class Outcome:
    findings: Findings
    memory: list[Allocation]
    coverage: Coverage

    @property
    def kinds(self) -> set[str]:
        return {f.kind for f in self.findings.items}

    def array(self, index: int, dtype: Any) -> np.ndarray[Any, Any]:
        return self.memory[index].array(dtype)


def tensor_map(address: int, kind: int, size: int, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int], swizzle: int) -> bytes:
    """A TMA descriptor: ``kind`` as in CUtensorMapDataType, strides in bytes of the dimensions from 1 on."""
    words = [0] * 32
    words[0], words[1] = address & 0xFFFFFFFF, address >> 32
    words[2] = 2 | (len(sizes) - 1) << 4 | kind << 7 | swizzle << 13 | 1 << 18
    for i, s in enumerate(strides):
        words[3 + i] = s >> 4
    for i, s in enumerate(sizes):
        words[8 + i] = s - 1
    data = bytearray(struct.pack("<32I", *words))
    for i, b in enumerate(box):
        data[55 + i] = b - 1
    assert size in (1, 2, 4)
    return bytes(data)


def execute(
    body: str, tensors: Sequence[np.ndarray[Any, Any]] = (), *, outputs: Sequence[int] = (0,), threads: int = 32, shared: int = 0,
    scheduler: str = "eager", seed: int = 0, maps: Any = None, change: Any = None, grid: int = 1, cluster: int = 1, target: str = "sm_90a",
) -> Outcome:  # fmt: skip
    """Run a body. Tensor i's address is in ``%rd{i+1}``; ``maps`` makes the descriptors m0, m1.. from the addresses."""
    memory = GlobalMemory()
    made = [memory.add(f"t{i}", t, output=i in outputs) for i, t in enumerate(tensors)]
    descriptors: list[bytes] = maps([m.base for m in made]) if maps else []
    parameters = [f".param .align 64 .b8 m{i}[128]" for i in range(len(descriptors))] + [f".param .u64 t{i}" for i in range(len(made))]
    loads = "\n".join(f"ld.param.b64 %rd{i + 1}, [t{i}];" for i in range(len(made)))
    text = (
        f".version 9.0\n.target {target}\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n.visible .entry k(\n"
        + ",\n".join(parameters) + f"\n)\n.reqntid {threads}, 1, 1\n{{\n{REGISTERS}\n{loads}\n{body}\nret;\n}}\n"
    )  # fmt: skip
    kernel = parse(text).kernels[0]
    kernel = change(kernel) if change else kernel
    data = b"".join(descriptors) + b"".join(struct.pack("<Q", m.base) for m in made)
    launch = Launch(kernel, (grid, 1, 1), (threads, 1, 1), (cluster, 1, 1), shared, data)
    findings = Findings()
    coverage = run(launch, Code(kernel, Names()), memory, Names(), scheduler, seed, findings)
    return Outcome(findings, made, coverage)


def lane_address(target: str, base: str, scale: int = 4) -> str:
    """PTX that puts ``base + scale * %tid.x`` into a 64-bit register."""
    return f"mov.u32 %r399, %tid.x; mul.wide.u32 %rd79, %r399, {scale}; add.s64 {target}, {base}, %rd79;\n"
