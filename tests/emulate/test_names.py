"""The tables of an emitted kernel name warps, buffers and barriers."""

from __future__ import annotations

from pathlib import Path

from twill.build.kernelfile import find
from twill.emulate.kernel import head_dims
from twill.emulate.machine.names import of_kernel

TEXT = """
from twill.emit.sm90 import tiles
TILES = tiles.Tiles(head_dim=64, head_dim_v=32, keys=128, subtiles=2)
ROLES = {"softmax_a": ("softmax", 0), "softmax_b": ("softmax", 4), "load": ("load", 8)}
STORAGE = {"K": tiles.Buffer(offset=0, stride=4096, stages=2), "Q": tiles.Buffer(offset=8192, stride=2048, stages=1)}
BARRIERS = {"Q_full": tiles.RingShape(slots=2, arrivals=1), "K_full": tiles.RingShape(slots=3, arrivals=1, tx_bytes=4096)}
def kernel(block):
    if block.warp < 8:
        softmax(block)
    else:
        if block.warp == 8:
            load(block)
        if block.warp == 9:
            queries(block)
"""


def test_names(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(TEXT)
    names = of_kernel(file)
    assert [names.role(w) for w in (0, 3, 4, 7, 8, 9, 10)] == ["softmax_a", "softmax_a", "softmax_b", "softmax_b", "load", "queries", ""]
    assert names.storage(4100) == "K[1] (offset 4100)"
    assert names.storage(8200) == "Q[0] (offset 8200)"
    assert [names.barrier(10240 + 8 * i) for i in range(5)] == ["Q_full[0]", "Q_full[1]", "K_full[0]", "K_full[1]", "K_full[2]"]
    assert names.barrier(10280) == "the barrier at shared memory offset 10280"
    assert names.statement(4) == 'ROLES = {"softmax_a": ("softmax", 0), "softmax_b": ("softmax", 4), "load": ("load", 8)} in kernel.py:4'
    assert names.statement(0) == names.statement(99) == ""


def test_every_shipped_kernel_has_names() -> None:
    names = of_kernel(find("sm90_attn_fwd_d128"))
    assert head_dims(find("sm90_attn_fwd_d192_dv128")) == (192, 128)
    assert names.role(0)
    assert {name for *_, name, _ in names.barriers} >= {"K_full", "K_empty", "V_full", "V_empty", "Q_full"}
