"""``compile_kernel.py FILE``: compile an emitted kernel without a GPU, for the architecture in its name, and print its PTX."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import Any


def main(path: str) -> None:
    folder = tempfile.mkdtemp()
    os.environ.update(
        CUTE_DSL_ARCH="sm_" + Path(path).stem.partition("_")[0].removeprefix("sm") + "a",
        CUTE_DSL_KEEP="ptx",
        CUTE_DSL_DUMP_DIR=folder,
        CUTE_DSL_NO_CACHE="1",
    )
    import cutlass
    import cutlass.cute as cute
    from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

    spec = importlib.util.spec_from_file_location("emitted", path)
    assert spec is not None and spec.loader is not None
    kernel = importlib.util.module_from_spec(spec)
    sys.modules["emitted"] = kernel
    spec.loader.exec_module(kernel)
    batch, heads, kv_heads, seqlen_q, seqlen_k = (cute.sym_int32() for _ in range(5))

    def tensor(seqlen: Any, h: Any, dim: int) -> Any:
        strides = (*(cute.sym_int64(divisibility=8) for _ in range(3)), 1)
        return make_fake_tensor(cutlass.BFloat16, (batch, seqlen, h, dim), strides, assumed_align=16)

    t = kernel.TILES
    q, k = tensor(seqlen_q, heads, t.head_dim), tensor(seqlen_k, kv_heads, t.head_dim)
    v, o = tensor(seqlen_k, kv_heads, t.head_dim_v), tensor(seqlen_q, heads, t.head_dim_v)
    lse = make_fake_tensor(cutlass.Float32, (batch, heads, seqlen_q), (cute.sym_int64(), cute.sym_int64(), 1), assumed_align=4)
    rest = (None, cutlass.Float32(1.0), cutlass.Int32(132), False, make_fake_stream())
    if hasattr(kernel, "attn_bwd"):
        workspace = make_fake_tensor(cutlass.Float32, (cute.sym_int64(),), (1,), assumed_align=16)
        compiled = cute.compile(kernel.attn_bwd, q, k, v, o, o, lse, q, k, v, workspace, *rest[:-1], False, rest[-1])
    else:
        compiled = cute.compile(kernel.attn_fwd, q, k, v, o, lse, *rest)
    print(compiled.__ptx__)


if __name__ == "__main__":
    main(sys.argv[1])
