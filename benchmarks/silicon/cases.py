"""A case: tensors and the launches on them, as data that an emulator here and a GPU elsewhere both follow."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from twill.emulate.host.record import Launch, Recorder, TensorArgument
from twill.emulate.ptx.syntax import Kernel, Module, Parameter

__all__ = ["DTYPES", "Array", "Buffer", "Call", "Case", "arguments", "launches", "load_cases", "pack", "recorder", "save_cases", "unpack"]

Array = np.ndarray[Any, Any]
DTYPES = {"bf16": np.uint16, "f32": np.float32, "i32": np.int32}
INDEX = "index.json"


@dataclass(frozen=True, slots=True)
class Buffer:
    """A dense tensor: from ``data`` (file and key), or filled with ``fill``, the bits of an element. ``repeat`` tiles it on the GPU."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: tuple[str, str] | None = None
    fill: int = 0
    output: bool = False
    repeat: tuple[int, ...] = ()

    def contents(self, folder: Path) -> Array:
        """The elements before the launches."""
        kind = np.dtype(DTYPES[self.dtype])
        if self.data is None:
            bits = np.full(self.shape, self.fill, f"u{kind.itemsize}")
            made: Array = bits.view(kind)
        else:
            with np.load(folder / self.data[0]) as kept:
                made = kept[self.data[1]]
        return np.tile(made, self.repeat) if self.repeat else made


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a host function. A string among the arguments is the name of a tensor."""

    library: str
    function: str
    code: str
    kernel: str
    parameters: tuple[tuple[int, int], ...]
    """Offset and size of each parameter of the kernel."""
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """What runs, and what the emulator made of it: ``emulated`` holds the outputs, ``findings`` the kinds of what it reported."""

    name: str
    group: str
    buffers: tuple[Buffer, ...]
    calls: tuple[Call, ...]
    shape: dict[str, Any] = field(default_factory=dict)
    """The attention problem (`twill.emulate.numbers.Shape`); of a backward pass nothing."""
    emulated: str = ""
    findings: tuple[str, ...] = ()
    fault: dict[str, Any] = field(default_factory=dict)

    def crowded(self, batch: int, heads: int, sm_count: int) -> Case:
        """The same problem many times over, with a block on every multiprocessor."""
        buffers = tuple(replace(b, repeat=_repeat(b, batch, heads)) for b in self.buffers)
        calls = tuple(replace(c, arguments=tuple(sm_count if type(a) is int else a for a in c.arguments)) for c in self.calls)
        return replace(self, buffers=buffers, calls=calls)


def _repeat(b: Buffer, batch: int, heads: int) -> tuple[int, ...]:
    if len(b.shape) == 4:
        return (batch, 1, heads, 1)
    return (batch, heads, 1) if len(b.shape) == 3 else ()


def arguments(call: Call, tensors: dict[str, TensorArgument]) -> list[Any]:
    """The arguments of a call with tensors in their places."""

    def one(a: Any) -> Any:
        if isinstance(a, str):
            return tensors[a]
        return tuple(one(x) for x in a) if isinstance(a, list | tuple) else a

    return [one(a) for a in call.arguments]


def recorder(folder: Path, call: Call) -> Recorder:
    """The host code of a call, which records launches."""
    given = tuple(Parameter(str(i), offset, size) for i, (offset, size) in enumerate(call.parameters))
    return Recorder((folder / call.library).resolve(), [Module("", "", (Kernel(call.kernel, given, (), {}, {}),))])


def launches(host: Recorder, call: Call, case: Case, address: Callable[[str], int]) -> list[Launch]:
    """What a call launches when its tensors are at these addresses."""
    tensors = {}
    for b in case.buffers:
        shape = tuple(n * r for n, r in zip(b.shape, b.repeat or (1,) * len(b.shape), strict=True))
        strides = [1]
        for n in shape[:0:-1]:
            strides.insert(0, strides[0] * n)
        tensors[b.name] = TensorArgument(address(b.name), b.dtype, shape, tuple(strides))
    return host.launches(call.function, arguments(call, tensors))


def pack(code: bytes, target: Path) -> str:
    """Keep a cubin; gives the name of its file."""
    target.write_bytes(lzma.compress(code))
    return target.name


def unpack(source: Path) -> bytes:
    """The cubin of a file."""
    return lzma.decompress(source.read_bytes())


def save_cases(folder: Path, cases: Sequence[Case]) -> None:
    """Write the index of a folder."""
    (folder / INDEX).write_text(json.dumps([asdict(c) for c in cases], indent=1) + "\n", encoding="utf-8")


def load_cases(folder: Path) -> list[Case]:
    """Read the index of a folder."""
    if not (folder / INDEX).is_file():
        raise SystemExit(f"{folder} holds no cases: write them with `python -m benchmarks.emulate_silicon prepare {folder}`")
    return [_case(x) for x in json.loads((folder / INDEX).read_text(encoding="utf-8"))]


def _case(x: dict[str, Any]) -> Case:
    buffers = tuple(
        Buffer(**b | {"shape": tuple(b["shape"]), "data": b["data"] and tuple(b["data"]), "repeat": tuple(b["repeat"])})
        for b in x["buffers"]
    )
    calls = tuple(
        Call(**c | {"parameters": tuple((o, s) for o, s in c["parameters"]), "arguments": tuple(c["arguments"])}) for c in x["calls"]
    )
    return Case(**x | {"buffers": buffers, "calls": calls, "findings": tuple(x["findings"])})
