"""What is no emitted kernel is refused before anything is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from twill.build import BuildError, Variant, library, names
from twill.build.compiler import compiled
from twill.build.kernelfile import find, read

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "kernels" / "sm90_attn_fwd_d128.py"


def test_a_shipped_kernel() -> None:
    kernel = read(find("sm90_attn_fwd_d128"))
    text = SHIPPED.read_text()
    assert kernel.path.samefile(SHIPPED)
    assert f"Schedule:  {kernel.schedule_hash}\n" in text
    assert (kernel.host, kernel.tiles, kernel.name) == ("attn_fwd", "sm90", "sm90_attn_fwd_d128")
    assert kernel.parameters[:5] == ("q", "k", "v", "o", "lse")
    assert {"softmax_scale", "sm_count"} <= set(kernel.parameters)
    assert kernel.parameters[-2:] == ("causal", "stream")
    assert names() == tuple(sorted(p.stem for p in (ROOT / "kernels").glob("sm*.py")))


def test_every_variant_has_a_name_of_its_own() -> None:
    found = {Variant(t, c, s).name for t in ("bf16", "fp16") for c in (False, True) for s in (False, True)}  # type: ignore[arg-type]
    assert len(found) == 8


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("SCHEDULE =", "OTHER =", "names no schedule"),
        ("stream: cuda", "river: cuda", "0 functions that take a stream"),
        ("causal: cutlass.Constexpr, stream", "softcap: cutlass.Float32, causal: cutlass.Constexpr, stream", "takes softcap"),
        ("from twill.emit.sm90 import tiles", "tiles = None", "imports no tile operations"),
        ("def load(", "def load", "cannot be read as Python"),
    ],
)
def test_not_an_emitted_file(tmp_path: Path, old: str, new: str, reason: str) -> None:
    text = SHIPPED.read_text()
    assert old in text
    path = tmp_path / "changed.py"
    path.write_text(text.replace(old, new))
    with pytest.raises(BuildError, match=reason):
        read(path)


def test_not_there() -> None:
    with pytest.raises(BuildError, match="there is no shipped kernel 'sm90_attn_fwd_d129'"):
        library("sm90_attn_fwd_d129", Variant("bf16", False, False))
    with pytest.raises(BuildError, match=r"there is no file 'nowhere\.py'"):
        library("nowhere.py", Variant("bf16", False, False))


def test_another_architecture() -> None:
    with pytest.raises(BuildError, match="is written for sm_90a, not for sm_100a"):
        compiled(read(SHIPPED), Variant("bf16", False, False), "sm_100a")
