"""``paper_launch.py LIBRARY PRELOADED DESCRIPTORS PARAMETERS``: call a compiled kernel on tensors that only pretend to be on a GPU.

Run with ``PRELOADED`` (`paper_cuda.c`, compiled) in LD_PRELOAD. Reads calls, lines of JSON with shapes, strides and addresses of q, k, v
and o, and prints what each launch was given, or the error; ``"time": true`` asks for the microseconds of a call instead.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from typing import Any

# TVM-FFI would import it, which takes longer than all the rest, and no tensor here is one of PyTorch
sys.modules["torch"] = None  # type: ignore[assignment]
import tvm_ffi  # noqa: E402

CUDA = 2
BFLOAT, INT = (4, 16), (0, 32)
"""Type code and bits."""


class Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("index", ctypes.c_int))


class Tensor(ctypes.Structure):
    """DLTensor of dlpack.h, followed by what makes it a DLManagedTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device", Device), ("ndim", ctypes.c_int), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    )  # fmt: skip


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
alive: list[Any] = []


class Pretender:
    def __init__(self, address: int, shape: list[int], strides: list[int], kind: tuple[int, int] = BFLOAT) -> None:
        sizes, steps = ((ctypes.c_int64 * len(x))(*x) for x in (shape, strides))
        self.tensor = Tensor(
            address, Device(CUDA, 0), len(shape), *kind, 1, ctypes.addressof(sizes), ctypes.addressof(steps), 0, None, None
        )  # fmt: skip
        alive.append((self, sizes, steps))

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CUDA, 0)

    def __dlpack__(self, **given: object) -> Any:
        return new_capsule(ctypes.addressof(self.tensor), b"dltensor", None)


def main(library: str, preloaded: str, descriptors: str, parameters: str) -> None:
    function = tvm_ffi.load_module(library)["attn_fwd"]
    paper = ctypes.CDLL(preloaded)
    where = json.loads(descriptors)
    names = json.loads(parameters)
    for line in sys.stdin:
        call = json.loads(line)
        paper.paper_expect(len(where), (ctypes.c_int * len(where))(*where), int(call.get("time", False)))
        tensors = {name: tvm_ffi.from_dlpack(Pretender(*call[name])) for name in ("q", "k", "v", "o")}
        counter = tvm_ffi.from_dlpack(Pretender(1 << 43, [1], [1], INT))
        values = {**tensors, "lse": None, "counter": counter, "softmax_scale": 0.125, "sm_count": call["sm_count"]}
        given = [values[name] for name in names]
        try:
            with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), call["stream"]):
                function(*given)
                if call.get("time"):
                    best = float("inf")
                    for _ in range(40):
                        began = time.perf_counter()
                        for _ in range(200):
                            function(*given)
                        best = min(best, (time.perf_counter() - began) / 200)
                    print(f"time {best * 1e6}", flush=True)
        except Exception as error:
            print("error " + str(error).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
