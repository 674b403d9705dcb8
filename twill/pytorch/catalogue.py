"""Which emitted kernels there are: those that ship with the package, and files that the user added.

A file is parsed, never imported (`twill.build.kernelfile`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from twill.build.errors import BuildError
from twill.build.kernelfile import read
from twill.pytorch.errors import AttentionError

__all__ = ["FORWARD", "GRADIENTS", "KernelFile", "add", "backward_kernels", "kernels", "read_kernel"]

ROWS_OF_A_SUBTILE = {"sm90": 64, "sm100": 128, "sm103": 128}
FORWARD, GRADIENTS = "attn_fwd", "attn_bwd"
"""Host functions of the two kinds of kernels."""
HOW_TO_WRITE_ONE = "write one with `twill emit --arch sm90 attn_fwd --head-dim D -o FILE`"


@dataclass(frozen=True, slots=True)
class KernelFile:
    """An emitted kernel: ``rows`` queries by ``keys`` keys in ``interval_cycles``, for one architecture and pair of head dims."""

    path: Path
    arch: str
    head_dim: int
    head_dim_v: int
    rows: int
    keys: int
    interval_cycles: int
    schedule: str
    own: bool
    """Whether the user added it."""
    makes: Literal["attn_fwd", "attn_bwd"] = "attn_fwd"

    @property
    def name(self) -> str:
        return self.path.stem


def read_kernel(path: Path, *, own: bool = True) -> KernelFile:
    """What an emitted file says about itself.

    Raises
    ------
    AttentionError : it cannot be read, or is not a kernel of attention as ``twill emit`` writes them.
    """
    try:
        file = read(path)
    except BuildError as error:
        raise AttentionError(f"{path} cannot be used as a kernel: {error.problem}", HOW_TO_WRITE_ONE) from error
    sizes, interval = file.sizes, file.interval_cycles

    def refuse(lacking: str) -> AttentionError:
        return AttentionError(f"{path} is not a kernel of attention that twill emitted: it lacks {lacking}", HOW_TO_WRITE_ONE)

    if file.host not in (FORWARD, GRADIENTS):
        raise refuse(f"a function {FORWARD} or {GRADIENTS}")
    needed = ("head_dim", "head_dim_v", "keys", "subtiles" if file.host == FORWARD else "queries")
    if missing := [name for name in needed if name not in sizes]:
        raise refuse(f"{' and '.join(missing)} in TILES")
    if interval is None:
        raise refuse("its cycles an iteration in the header")
    rows = ROWS_OF_A_SUBTILE[file.tiles] * sizes["subtiles"] if file.host == FORWARD else sizes["queries"]
    return KernelFile(
        path=path.resolve(), arch=file.tiles, head_dim=sizes["head_dim"], head_dim_v=sizes["head_dim_v"], keys=sizes["keys"], rows=rows,
        interval_cycles=interval, schedule=file.schedule_hash, own=own, makes="attn_fwd" if file.host == FORWARD else "attn_bwd",
    )  # fmt: skip


@cache
def _shipped() -> tuple[KernelFile, ...]:
    import twill.kernels

    folder = Path(str(twill.kernels.__file__)).parent
    return tuple(read_kernel(path, own=False) for path in sorted(folder.glob("*_attn_*.py")))


_added: dict[Path, KernelFile] = {}


def add(kernel: KernelFile) -> None:
    """Put a kernel into the catalogue, in place of the one that was read from the same file before."""
    _added.pop(kernel.path, None)
    _added[kernel.path] = kernel


def remove(kernel: KernelFile) -> None:
    """Take a kernel that was added out again."""
    _added.pop(kernel.path, None)


def kernels() -> tuple[KernelFile, ...]:
    """All forward kernels: the shipped ones by name, then the user's in the order in which they were added."""
    return tuple(k for k in _shipped() + tuple(_added.values()) if k.makes == FORWARD)


def backward_kernels() -> tuple[KernelFile, ...]:
    """All kernels that make gradients, in the same order."""
    return tuple(k for k in _shipped() + tuple(_added.values()) if k.makes == GRADIENTS)
