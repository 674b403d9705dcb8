"""As much of the CUDA driver API as launching a cubin takes. Needs the driver's library and nothing else."""

from __future__ import annotations

import ctypes
import time
from typing import Any

from benchmarks.silicon.cases import Array
from twill.emulate.host.record import Launch

__all__ = ["Device", "DriverError", "Function"]

NOT_READY = 600
MAX_DYNAMIC_SHARED_BYTES = 8
CLUSTER_DIMENSION = 4
MULTIPROCESSOR_COUNT = 16
POLL_S = 2e-4


class DriverError(Exception):
    """CUDA refuses, or the kernel failed."""


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_uint32), ("padding", ctypes.c_uint32), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared_bytes", ctypes.c_uint32), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)), ("attribute_count", ctypes.c_uint32),
    )  # fmt: skip


class Function:
    """A kernel of a loaded cubin."""

    def __init__(self, handle: ctypes.c_void_p, parameters: tuple[tuple[int, int], ...]) -> None:
        self.handle, self.parameters = handle, parameters
        self.shared_bytes = 0


class Device:
    """The first GPU, with memory and kernels in its primary context."""

    def __init__(self) -> None:
        self._cuda: Any = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        name, count = ctypes.create_string_buffer(256), ctypes.c_int()
        self._call("cuDeviceGetName", name, 256, device)
        self._call("cuDeviceGetAttribute", ctypes.byref(count), MULTIPROCESSOR_COUNT, device)
        self.name, self.sm_count = name.value.decode(), count.value

    def memory(self, size: int) -> int:
        """The address of new memory."""
        found = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(found), ctypes.c_size_t(max(size, 16)))
        return found.value

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def write(self, address: int, data: Array) -> None:
        """Copy to the GPU; ``data`` is contiguous."""
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes))

    def read(self, address: int, into: Array) -> None:
        """Copy from the GPU."""
        self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(into.ctypes.data), ctypes.c_uint64(address), ctypes.c_size_t(into.nbytes))

    def function(self, code: bytes, kernel: str, parameters: tuple[tuple[int, int], ...]) -> Function:
        """Load a cubin and find its kernel."""
        module, handle = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(code))
        self._call("cuModuleGetFunction", ctypes.byref(handle), module, kernel.encode())
        return Function(handle, parameters)

    def launch(self, function: Function, launch: Launch) -> None:
        """Start a kernel; does not wait."""
        if launch.shared_bytes > function.shared_bytes:
            self._call("cuFuncSetAttribute", function.handle, MAX_DYNAMIC_SHARED_BYTES, launch.shared_bytes)
            function.shared_bytes = launch.shared_bytes
        values = [ctypes.create_string_buffer(launch.parameters[o : o + n], n) for o, n in function.parameters]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))
        attribute = _Attribute(CLUSTER_DIMENSION, 0, (ctypes.c_uint32 * 16)(*launch.cluster))
        count = int(launch.cluster != (1, 1, 1))
        config = _Config(
            (ctypes.c_uint32 * 3)(*launch.grid),
            (ctypes.c_uint32 * 3)(*launch.block),
            launch.shared_bytes,
            None,
            ctypes.pointer(attribute),
            count,
        )
        self._call("cuLaunchKernelEx", ctypes.byref(config), function.handle, pointers, None)

    def finished(self, timeout_s: float) -> bool:
        """Wait; False if the GPU is still busy after this time."""
        deadline = time.monotonic() + timeout_s
        while (code := self._cuda.cuStreamQuery(None)) == NOT_READY:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        self._check("the kernel", code)
        return True

    def _call(self, name: str, *given: Any) -> None:
        self._check(name, getattr(self._cuda, name)(*given))

    def _check(self, what: str, code: int) -> None:
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorName(code, ctypes.byref(text))
            raise DriverError(f"{what}: {(text.value or b'error ' + str(code).encode()).decode()}")
