"""Which emitted kernels there are: those that ship with the package, and files that the user added.

A file is parsed, never imported. What it says about itself are its constants ``SCHEDULE`` and ``TILES``, the tile library that it
imports, and the cycles an iteration in its header.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from twill.pytorch.errors import AttentionError

__all__ = ["KernelFile", "add", "kernels", "read_kernel"]

ROWS_OF_A_SUBTILE = {"sm90": 64, "sm100": 128, "sm103": 128}
ENTRY = "attn_fwd"
TILE_LIBRARY = re.compile(r"twill\.emit\.(sm\d+)")
INTERVAL = re.compile(r"\bI = (\d+) cycles")
HOW_TO_WRITE_ONE = "write one with `twill emit --arch sm90 attn_fwd --head-dim D -o FILE`"


@dataclass(frozen=True, slots=True)
class KernelFile:
    """An emitted forward kernel: ``rows`` queries by ``keys`` keys in ``interval_cycles``, for one architecture and pair of head dims."""

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

    @property
    def name(self) -> str:
        return self.path.stem


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    assignments = (node for node in tree.body if isinstance(node, ast.Assign))
    return {target.id: node.value for node in assignments for target in node.targets if isinstance(target, ast.Name)}


def _whole_numbers(call: ast.expr | None) -> dict[str, int]:
    """The keyword arguments of a call that are whole numbers."""
    if not isinstance(call, ast.Call):
        return {}
    pairs = ((word.arg, word.value) for word in call.keywords)
    return {name: value.value for name, value in pairs if name and isinstance(value, ast.Constant) and type(value.value) is int}


def _arch(tree: ast.Module) -> str | None:
    imports = (TILE_LIBRARY.match(node.module or "") for node in tree.body if isinstance(node, ast.ImportFrom))
    return next((found[1] for found in imports if found), None)


def read_kernel(path: Path, *, own: bool = True) -> KernelFile:
    """What an emitted file says about itself.

    Raises
    ------
    AttentionError : it cannot be read, or is not a forward kernel as ``twill emit`` writes them.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError) as error:
        raise AttentionError(f"{path} cannot be read as a kernel: {error}", HOW_TO_WRITE_ONE) from error
    constants = _constants(tree)
    tiles, schedule, arch = _whole_numbers(constants.get("TILES")), constants.get("SCHEDULE"), _arch(tree)
    interval = INTERVAL.search(ast.get_docstring(tree) or "")

    def refuse(lacking: str) -> AttentionError:
        return AttentionError(f"{path} is not a forward kernel that twill emitted: it lacks {lacking}", HOW_TO_WRITE_ONE)

    if not any(isinstance(node, ast.FunctionDef) and node.name == ENTRY for node in tree.body):
        raise refuse(f"a function {ENTRY}")
    if missing := [name for name in ("head_dim", "head_dim_v", "keys", "subtiles") if name not in tiles]:
        raise refuse(f"{' and '.join(missing)} in TILES")
    if not isinstance(schedule, ast.Constant) or not isinstance(schedule.value, str):
        raise refuse("the hash of its schedule in SCHEDULE")
    if arch is None:
        raise refuse("the import of a tile library")
    if interval is None:
        raise refuse("its cycles an iteration in the header")
    return KernelFile(
        path=path.resolve(), arch=arch, head_dim=tiles["head_dim"], head_dim_v=tiles["head_dim_v"], keys=tiles["keys"],
        rows=ROWS_OF_A_SUBTILE[arch] * tiles["subtiles"], interval_cycles=int(interval[1]), schedule=schedule.value, own=own,
    )  # fmt: skip


@cache
def _shipped() -> tuple[KernelFile, ...]:
    import twill.kernels

    folder = Path(str(twill.kernels.__file__)).parent
    return tuple(read_kernel(path, own=False) for path in sorted(folder.glob("*_attn_fwd_*.py")))


_added: dict[Path, KernelFile] = {}


def add(kernel: KernelFile) -> None:
    """Put a kernel into the catalogue, in place of the one that was read from the same file before."""
    _added.pop(kernel.path, None)
    _added[kernel.path] = kernel


def remove(kernel: KernelFile) -> None:
    """Take a kernel that was added out again."""
    _added.pop(kernel.path, None)


def kernels() -> tuple[KernelFile, ...]:
    """All kernels: the shipped ones by name, then the user's in the order in which they were added."""
    return _shipped() + tuple(_added.values())
