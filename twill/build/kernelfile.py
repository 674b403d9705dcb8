"""An emitted kernel file as the build sees it, read without running it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from twill.build.errors import BuildError

__all__ = ["ARCHITECTURES", "BUILT_ON", "KernelFile", "Variant", "find", "names", "read"]

ARCHITECTURES = {"sm90": ("sm_90a",), "sm100": ("sm_100a",), "sm103": ("sm_103a",)}
"""Targets that the tile operations of a package `twill.emit.<key>` compile for."""

BUILT_ON = {"sm103": ("sm100",)}
"""Packages of tile operations that others take operations from."""

ARGUMENTS = frozenset((
    "q", "k", "v", "o", "lse", "do", "dq", "dk", "dv", "workspace", "counter", "softmax_scale", "sm_count", "causal", "deterministic",
    "stream",
))  # fmt: skip
"""Parameters of a host function that the build knows how to supply."""


@dataclass(frozen=True, slots=True)
class Variant:
    """What is fixed when a kernel is compiled: element type, causal mask or not, log-sum-exp written or not (forward), gradients the same
    to the bit in every run or not (backward).
    """

    dtype: Literal["bf16", "fp16"]
    causal: bool
    lse: bool
    deterministic: bool = False

    @property
    def name(self) -> str:
        """As in ``bf16-causal-lse``."""
        flags = {"causal": self.causal, "lse": self.lse, "deterministic": self.deterministic}
        return "-".join([self.dtype, *(name for name, on in flags.items() if on)])


@dataclass(frozen=True, slots=True)
class KernelFile:
    """An emitted file: its text, the hash of its schedule, its host function with the names of its parameters, and its tile library.

    ``smem`` and ``block`` are what it launches its kernel with, as Python; ``shape`` what its ``TILES`` is made with, and
    ``interval_cycles`` those of an iteration by its schedule, None if its header does not say.
    """

    path: Path
    text: str
    schedule_hash: str
    host: str
    parameters: tuple[str, ...]
    tiles: str
    smem: str
    block: str
    shape: dict[str, object] = field(compare=False)
    interval_cycles: int | None

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def sizes(self) -> dict[str, int]:
        """The whole numbers of ``shape``."""
        return {name: value for name, value in self.shape.items() if type(value) is int}

    @property
    def prefix(self) -> str:
        """How the name of its kernel begins in machine code; empty if it does not say."""
        found = re.search(r"^kernel\.set_name_prefix\(\"(\w+)\"", self.text, re.MULTILINE)
        return found.group(1) if found else ""


def names() -> tuple[str, ...]:
    """Names of the kernels that ship with the package."""
    return tuple(sorted(p.stem for p in _shipped().glob("*.py") if not p.stem.startswith("_")))


def _shipped() -> Path:
    import twill.kernels

    return Path(next(iter(twill.kernels.__path__)))


def find(kernel: str | Path) -> Path:
    """The file of a kernel given by path, or by name if it ships with the package.

    Raises
    ------
    BuildError : neither.
    """
    path = Path(kernel)
    if path.suffix == ".py":
        if path.is_file():
            return path.resolve()
        raise BuildError(f"there is no file {str(kernel)!r}", "write one with `twill emit SCHEDULE -o FILE.py`")
    if str(kernel) in names():
        return _shipped() / f"{kernel}.py"
    raise BuildError(f"there is no shipped kernel {str(kernel)!r}", f"give the path of a .py file, or one of {', '.join(names())}")


def read(path: Path) -> KernelFile:
    """Read an emitted file: constants and signatures only, nothing of it is executed.

    Raises
    ------
    BuildError : not a file that ``twill emit`` wrote, or one whose host function takes something that the build cannot supply.
    """
    hint = "write the file with `twill emit SCHEDULE -o FILE.py`"
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, str(path))
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError) as error:
        raise BuildError(f"{path} cannot be read as Python: {error}", hint) from None
    schedule = _assigned(tree, "SCHEDULE")
    if not isinstance(schedule, ast.Constant) or not isinstance(schedule.value, str):
        raise BuildError(f"{path} names no schedule: it is no emitted kernel", hint)
    hosts = [x for x in tree.body if isinstance(x, ast.FunctionDef) and "stream" in _parameters(x)]
    if len(hosts) != 1:
        raise BuildError(f"{path} has {len(hosts)} functions that take a stream; the one to compile is not clear", hint)
    parameters = _parameters(hosts[0])
    unknown = [p for p in parameters if p not in ARGUMENTS]
    if unknown:
        raise BuildError(
            f"{path}: {hosts[0].name} takes {', '.join(unknown)}, which the build cannot supply",
            "emit the kernel with this version of twill",
        )
    smem, block = (_launched_with(hosts[0], name) for name in ("smem", "block"))
    return KernelFile(
        path, text, schedule.value, hosts[0].name, parameters, _tiles(tree, path, hint), smem, block, _shape(tree), _interval(tree)
    )  # fmt: skip


def _parameters(function: ast.FunctionDef) -> tuple[str, ...]:
    return tuple(a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs))


def _assigned(tree: ast.Module, name: str) -> ast.expr | None:
    """What a name is assigned at the top of the file."""
    found = (x.value for x in tree.body if isinstance(x, ast.Assign) and [ast.unparse(t) for t in x.targets] == [name])
    return next(found, None)


def _shape(tree: ast.Module) -> dict[str, object]:
    made = _assigned(tree, "TILES")
    pairs = ((word.arg, word.value) for word in made.keywords) if isinstance(made, ast.Call) else ()
    return {name: ast.literal_eval(value) for name, value in pairs if name and isinstance(value, (ast.Constant, ast.Tuple))}


def _interval(tree: ast.Module) -> int | None:
    found = re.search(r"\bI = (\d+) cycles", ast.get_docstring(tree) or "")
    return int(found[1]) if found else None


def _launched_with(host: ast.FunctionDef, name: str) -> str:
    for call in (x for x in ast.walk(host) if isinstance(x, ast.Call) and ast.unparse(x.func).endswith(".launch")):
        for keyword in call.keywords:
            if keyword.arg == name:
                return ast.unparse(keyword.value)
    return "None"


def _tiles(tree: ast.Module, path: Path, hint: str) -> str:
    """The package whose ``tiles`` the file imports, such as ``sm90``."""
    for x in tree.body:
        if isinstance(x, ast.ImportFrom) and (x.module or "").startswith("twill.emit.") and any(a.name == "tiles" for a in x.names):
            return str(x.module).split(".")[2]
    raise BuildError(f"{path} imports no tile operations: it is no emitted kernel", hint)
