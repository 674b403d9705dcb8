"""What a kernel is launched with, found by running its host code: the compiled object, linked to a recorder in place of CUDA.

The host function is called through TVM-FFI's C interface with tensors that say they are on a GPU but whose addresses are those of the
emulator; host code only computes with addresses, it reads nothing behind them.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twill.emulate.errors import EmulationError
from twill.emulate.ptx.syntax import Kernel, Module

__all__ = ["Launch", "Recorder", "TensorArgument", "link"]

CLUSTER_DIMENSION = 4
"""cudaLaunchAttributeClusterDimension."""
ARRAY = 71
"""kTVMFFIArray."""
CUDA_DEVICE = 2
"""kDLCUDA."""
CODES = {"bf16": (4, 16), "f16": (2, 16), "f32": (2, 32), "i32": (0, 32), "i64": (0, 64), "u8": (1, 8), "f64": (2, 64)}


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """A tensor as the host code sees it; strides count elements."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int
    parameters: bytes


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32), ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Any(ctypes.Structure):
    """TVMFFIAny."""

    _fields_ = (("kind", ctypes.c_int32), ("padding", ctypes.c_uint32), ("value", ctypes.c_uint64))


class _Array(ctypes.Structure):
    """TVMFFIObject with TVMFFISeqCell: an array of TVMFFIAny."""

    _fields_ = (
        ("references", ctypes.c_uint64), ("kind", ctypes.c_int32), ("padding", ctypes.c_uint32), ("deleter", ctypes.c_void_p),
        ("data", ctypes.c_void_p), ("size", ctypes.c_int64), ("capacity", ctypes.c_int64), ("data_deleter", ctypes.c_void_p),
    )  # fmt: skip


class _Config(ctypes.Structure):
    """cudaLaunchConfig_t."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared_bytes", ctypes.c_size_t), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p), ("attribute_count", ctypes.c_uint32),
    )  # fmt: skip


_Callback = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Config), ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p))


def link(objects: Sequence[Path], folder: Path) -> Path:
    """Link objects that CuTe DSL exported to the recorder; gives a shared library in ``folder``, which is not made again if it is there.

    Raises
    ------
    EmulationError : no C compiler, or it refuses.
    """
    source = Path(__file__).with_name("recorder.c")
    digest = hashlib.sha256(source.read_bytes())
    for item in objects:
        digest.update(item.read_bytes())
    library = folder / f"recorded-{digest.hexdigest()[:20]}.so"
    if library.exists():
        return library
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise EmulationError("no C compiler was found (cc, gcc or clang)", "install one; it links the kernel's host code to the recorder")
    draft = library.with_suffix(".draft.so")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(draft), *(str(x) for x in objects), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EmulationError(f"{compiler} failed: {done.stderr.strip()[-1500:]}", "check that the objects were exported by CuTe DSL")
    draft.rename(library)
    return library


class Recorder:
    """A linked library whose host functions can be called for their launches."""

    def __init__(self, library: Path, modules: Sequence[Module]) -> None:
        self._library = ctypes.CDLL(str(library), mode=ctypes.RTLD_LOCAL)
        self._kernels = {k.name: k for m in modules for k in m.kernels}
        self._library.twill_recorder_error.restype = ctypes.c_char_p

    def launches(self, function: str, arguments: Sequence[Any]) -> list[Launch]:
        """Call a host function with `TensorArgument`, numbers, bools, None and tuples of them; the kernels that it launched.

        Raises
        ------
        EmulationError : the host code refuses the arguments, or launches a kernel whose PTX is not at hand.
        """
        found: list[Launch] = []
        trouble: list[EmulationError] = []

        def on_launch(config: Any, name: bytes, values: Any) -> None:
            try:
                found.append(self._launch(config.contents, name.decode(), values))
            except EmulationError as error:
                trouble.append(error)

        callback = _Callback(on_launch)
        self._library.twill_recorder_install(callback)
        keep: list[Any] = []
        packed = (_Any * max(1, len(arguments)))(*(_pack(a, keep) for a in arguments))
        result = _Any()
        code = getattr(self._library, f"__tvm_ffi_{function}")(None, packed, ctypes.c_int32(len(arguments)), ctypes.byref(result))
        reason = self._library.twill_recorder_error().decode(errors="replace")
        self._library.twill_recorder_install(_Callback(0))
        if trouble:
            raise trouble[0]
        if code:
            raise EmulationError(f"the host code of {function} refuses its arguments: {reason}", "check shapes, strides and types")
        return found

    def _launch(self, config: _Config, name: str, values: Any) -> Launch:
        kernel = self._kernels.get(name)
        if kernel is None:
            raise EmulationError(f"kernel {name} was launched, but its PTX is not given", "compile with CUTE_DSL_KEEP=ptx")
        size = max((p.offset + p.size for p in kernel.parameters), default=0)
        data = bytearray(size)
        for i, p in enumerate(kernel.parameters):
            data[p.offset : p.offset + p.size] = ctypes.string_at(values[i], p.size)
        cluster = (1, 1, 1)
        for i in range(config.attribute_count):
            base = config.attributes + 72 * i
            if ctypes.c_int32.from_address(base).value == CLUSTER_DIMENSION:
                x, y, z = (ctypes.c_uint32 * 3).from_address(base + 8)
                cluster = (int(x), int(y), int(z))
        return Launch(kernel, _three(config.grid), _three(config.block), cluster, int(config.shared_bytes), bytes(data))


def _three(values: Any) -> tuple[int, int, int]:
    x, y, z = (int(v) for v in values)
    return x, y, z


def _pack(value: Any, keep: list[Any]) -> _Any:
    if value is None:
        return _Any(0, 0, 0)
    if isinstance(value, bool):
        return _Any(2, 0, int(value))
    if isinstance(value, int):
        return _Any(1, 0, value & 0xFFFFFFFFFFFFFFFF)
    if isinstance(value, float):
        return _Any(3, 0, ctypes.c_uint64.from_buffer_copy(ctypes.c_double(value)).value)
    if isinstance(value, TensorArgument):
        n = len(value.shape)
        shape, strides = (ctypes.c_int64 * n)(*value.shape), (ctypes.c_int64 * n)(*value.strides)
        code, bits = CODES[value.dtype]
        tensor = _Tensor(value.address, _Device(CUDA_DEVICE, 0), n, _Type(code, bits, 1), shape, strides, 0)
        keep += [shape, strides, tensor]
        return _Any(7, 0, ctypes.addressof(tensor))
    if isinstance(value, tuple):
        items = (_Any * max(1, len(value)))(*(_pack(x, keep) for x in value))
        array = _Array(1 | 1 << 32, ARRAY, 0, None, ctypes.addressof(items), len(value), len(value), None)
        keep += [items, array]
        return _Any(ARRAY, 0, ctypes.addressof(array))
    raise EmulationError(f"an argument of type {type(value).__name__} cannot be handed to a kernel", "give tensors, numbers or None")
