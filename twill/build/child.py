"""Compiles one emitted kernel, in a process of its own: the compiler reads its target from the environment, and some mistakes end it.

Started as a script with a file that holds a request (see `twill.build.compiler`); writes ``kernel.ptx``, ``kernel.cubin``,
``kernel.o`` and ``launch.json`` into the folder that the request names, and beside the request which files of twill were imported.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

MODULE = "twill_emitted_kernel"
PLACEHOLDER_SM_COUNT = 132
"""Any value: the count is an argument of the compiled function."""


def main(request_file: str) -> None:
    """Compile what the request asks for."""
    request = json.loads(Path(request_file).read_text(encoding="utf-8"))
    sys.path[:] = request["path"]
    import cutlass.cute as cute
    from cutlass._mlir_helpers.op import loc_transform

    kernel = _module(request["kernel"])
    arguments = _arguments(kernel, request)
    function = getattr(kernel, request["host"])
    with loc_transform(lambda loc: _with_statement(loc, str(kernel.__file__))):
        compiled = cute.compile(function, *(arguments[name] for name in request["parameters"]), options="--enable-tvm-ffi")
    folder = Path(request["output"])
    (folder / "kernel.ptx").write_bytes(_content(compiled.__ptx__))
    (folder / "kernel.cubin").write_bytes(_content(compiled.__cubin__))
    block, smem = (eval(request[name], vars(kernel)) for name in ("block", "smem"))
    launch = {"threads": math.prod(block) if block else None, "dynamic_smem_bytes": smem}
    (folder / "launch.json").write_text(json.dumps(launch), encoding="utf-8")
    imports = [
        str(m.__file__) for name, m in list(sys.modules.items()) if name.partition(".")[0] == "twill" and getattr(m, "__file__", None)
    ]
    Path(request_file).with_name("imports.json").write_text(json.dumps(imports), encoding="utf-8")
    compiled.export_to_c(str(folder / "kernel.o"), function_name=request["host"])


def _module(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(MODULE, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return module


def _with_statement(location: Any, file: str) -> Any:
    """A location with the line of the emitted file's statement that is being traced where the column would be.

    Tile operations stand in files of their own; which statement of which role asked for one, reports have from here.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    if frame is None or location is None:
        return location
    from cutlass._mlir import ir

    place = location.child_loc if location.is_a_name() else location
    if not place.is_a_file():
        return location
    return ir.Location.file(place.filename, place.start_line, frame.f_lineno)


def _arguments(kernel: ModuleType, request: dict[str, Any]) -> dict[str, Any]:
    """A stand-in for every parameter: sizes and strides are dynamic, strides but the last multiples of 16 bytes."""
    import cutlass
    import cutlass.cute as cute
    from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

    batch, heads, kv_heads, seqlen_q, seqlen_k = (cute.sym_int32() for _ in range(5))
    dtype = cutlass.Float16 if request["dtype"] == "fp16" else cutlass.BFloat16

    def tensor(seqlen: Any, of: Any, dim: int) -> Any:
        strides = (*(cute.sym_int64(divisibility=8) for _ in range(3)), 1)
        return make_fake_tensor(dtype, (batch, seqlen, of, dim), strides, assumed_align=16)

    tiles = kernel.TILES
    lse = make_fake_tensor(cutlass.Float32, (batch, heads, seqlen_q), (cute.sym_int64(), cute.sym_int64(), 1), assumed_align=4)
    return {
        "q": tensor(seqlen_q, heads, tiles.head_dim), "k": tensor(seqlen_k, kv_heads, tiles.head_dim),
        "v": tensor(seqlen_k, kv_heads, tiles.head_dim_v), "o": tensor(seqlen_q, heads, tiles.head_dim_v),
        "do": tensor(seqlen_q, heads, tiles.head_dim_v), "dq": tensor(seqlen_q, heads, tiles.head_dim),
        "dk": tensor(seqlen_k, kv_heads, tiles.head_dim), "dv": tensor(seqlen_k, kv_heads, tiles.head_dim_v),
        "workspace": make_fake_tensor(cutlass.Float32, (cute.sym_int64(),), (1,), assumed_align=16),
        "lse": lse if request["lse"] or "do" in request["parameters"] else None,
        "counter": make_fake_tensor(cutlass.Int32, (1,), (1,), assumed_align=4),
        "softmax_scale": cutlass.Float32(1.0), "sm_count": cutlass.Int32(PLACEHOLDER_SM_COUNT),
        "causal": request["causal"], "deterministic": request["deterministic"],
        "stream": make_fake_stream(use_tvm_ffi_env_stream=True),
    }  # fmt: skip


def _content(kept: Any) -> bytes:
    """What the compiler kept, which it hands over as content or as the path of a file."""
    if isinstance(kept, bytes):
        return kept
    if not isinstance(kept, str):
        raise TypeError(f"the compiler kept no file: {kept!r}")
    return Path(kept).read_bytes() if len(kept) < 4096 and "\n" not in kept else kept.encode()


if __name__ == "__main__":
    main(sys.argv[1])
