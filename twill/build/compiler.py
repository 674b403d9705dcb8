"""`compiled`: an emitted kernel as PTX, machine code and an object, and on request as a library, through the cache."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import twill.build
from twill.build.cache import entry, place
from twill.build.errors import BuildError, Problem
from twill.build.kernelfile import ARCHITECTURES, BUILT_ON, KernelFile, Variant
from twill.build.link import cuda_runtime, link
from twill.build.lint import found_in, wanted_by

__all__ = ["Compiled", "compiled", "sources"]

TIMEOUT_S = 300
LINTS = "lints.json"
VERSIONS = ("nvidia-cutlass-dsl", "nvidia-cutlass-dsl-libs-cu13", "apache-tvm-ffi")
RECIPE = ("child.py", "compiler.py", "errors.py", "lint.py", "ptx.py", "roles.py", "sass.py", "tools.py")
"""Files of this package that decide what an entry holds."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel for one target and variant, in a folder of the cache at ``place`` (None: of no cache)."""

    kernel: KernelFile
    variant: Variant
    arch: str
    folder: Path
    place: Path | None

    @property
    def ptx(self) -> Path:
        return self.folder / "kernel.ptx"

    @property
    def cubin(self) -> Path:
        return self.folder / "kernel.cubin"

    @property
    def object(self) -> Path:
        return self.folder / "kernel.o"

    @property
    def library(self) -> Path:
        """The object as a shared library, linked unless the cache has it.

        Raises
        ------
        BuildError : there is no linker, or no CUDA runtime to link with.
        """
        parts = {
            "object": _digest(self.object), "recipe": _digest(Path(__file__).with_name("link.py")), "cudart": cuda_runtime().name,
            **{name: _version(name) for name in VERSIONS},
        }  # fmt: skip
        return entry(self.place, parts, lambda draft: link(self.object, draft / "kernel.so")) / "kernel.so"

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What `twill.build.lint` holds against the machine code."""
        return tuple(Problem(**x) for x in json.loads((self.folder / LINTS).read_text(encoding="utf-8")))

    @property
    def launch(self) -> dict[str, int | None]:
        """``threads`` and ``dynamic_smem_bytes`` of a block; None where the file does not say."""
        found: dict[str, int | None] = json.loads((self.folder / "launch.json").read_text(encoding="utf-8"))
        return found


def compiled(kernel: KernelFile, variant: Variant, arch: str, *, cache: str | Path | None = None) -> Compiled:
    """Compile a kernel, or find it compiled; ``cache`` as `twill.build.cache.place` takes it.

    Raises
    ------
    BuildError : an architecture that the file is not for, something that is not installed, or a compiler that gave up.
    """
    if arch not in ARCHITECTURES.get(kernel.tiles, ()):
        known = ", ".join(ARCHITECTURES.get(kernel.tiles, ())) or "no architecture"
        raise BuildError(f"{kernel.name} is written for {known}, not for {arch}", f"give --arch {known.split(', ')[0]}")
    parts = _parts(kernel, variant, arch)
    where = place(cache)
    return Compiled(kernel, variant, arch, entry(where, parts, lambda draft: _make(kernel, variant, arch, draft)), where)


def _digest(*files: Path) -> str:
    found = hashlib.sha256()
    for path in files:
        found.update("/".join(path.parts[-3:]).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def sources(kernel: KernelFile) -> tuple[Path, ...]:
    """The files of this package that a kernel may import, and no others: the tile operations of its architecture and of all."""
    root = Path(twill.build.__path__[0]).parent
    packages = (kernel.tiles, *BUILT_ON.get(kernel.tiles, ()))
    folders = [root / "emit" / "tiles", *(f for name in packages for f in sorted((root / "emit" / name).rglob("tiles")))]
    above = {above / "__init__.py" for folder in folders for above in folder.parents if above.is_relative_to(root)}
    return (*sorted(above), *(path for folder in folders for path in sorted(folder.rglob("*.py"))))


def _parts(kernel: KernelFile, variant: Variant, arch: str) -> dict[str, str]:
    """All that the machine code depends on."""
    here = Path(twill.build.__path__[0])
    versions = {name: _version(name) for name in VERSIONS}
    return {
        "kernel": hashlib.sha256(kernel.text.encode()).hexdigest(), "schedule": kernel.schedule_hash,
        "tiles": _digest(*sources(kernel)), "recipe": _digest(*(here / name for name in RECIPE)),
        "arch": arch, "variant": variant.name, "host": os.uname().machine, "python": ".".join(map(str, sys.version_info[:2])),
        **versions,
    }  # fmt: skip


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        raise BuildError(f"{package} is not installed, and kernels are compiled with it", "install 'twill-gpu[kernels]'") from None


def _make(kernel: KernelFile, variant: Variant, arch: str, folder: Path) -> None:
    """Fill a folder: one child process with a dump folder of its own."""
    with tempfile.TemporaryDirectory(prefix="twill-") as scratch:
        request = Path(scratch) / "request.json"
        data = {
            "kernel": str(kernel.path), "host": kernel.host, "parameters": kernel.parameters, "output": str(folder),
            "dtype": variant.dtype, "causal": variant.causal, "lse": variant.lse,
            "deterministic": variant.deterministic, "smem": kernel.smem, "block": kernel.block,
            "path": [str(Path(p).resolve()) for p in sys.path],
        }  # fmt: skip
        request.write_text(json.dumps(data), encoding="utf-8")
        dump = Path(scratch) / "dump"
        dump.mkdir()
        _run_child(kernel, variant, request, _environment(arch, dump))
        imported = {Path(x).resolve() for x in json.loads((Path(scratch) / "imports.json").read_text(encoding="utf-8"))}
    unseen = sorted(imported - {p.resolve() for p in sources(kernel)})
    if unseen:
        raise BuildError(
            f"{kernel.name} imports {unseen[0]}, a change of which the kernel cache would not notice", "import tile operations only"
        )
    missing = [name for name in ("kernel.ptx", "kernel.cubin", "kernel.o") if not (folder / name).is_file()]
    if missing:
        raise BuildError(f"the compiler of {kernel.name} ended well but left no {missing[0]}", "report this: it is a mistake of twill")
    problems = found_in(folder / "kernel.cubin", (folder / "kernel.ptx").read_text(encoding="utf-8"), wanted_by(kernel))
    (folder / LINTS).write_text(json.dumps([asdict(p) for p in problems], indent=1) + "\n", encoding="utf-8")


def _environment(arch: str, dump: Path) -> dict[str, str]:
    """The user's environment without settings of the compiler, which would be compiled in unseen by the key.

    Line information changes no instruction; it tells profilers, and `twill.build.order`, what each one was made from.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CUTE_DSL_")}
    ours = {"CUTE_DSL_ARCH": arch, "CUTE_DSL_KEEP": "ptx,cubin", "CUTE_DSL_DUMP_DIR": str(dump), "CUTE_DSL_NO_CACHE": "1"}
    ours["CUTE_DSL_LINEINFO"] = "1"
    return kept | ours


def _run_child(kernel: KernelFile, variant: Variant, request: Path, environment: dict[str, str]) -> None:
    child = [sys.executable, "-P", str(Path(__file__).with_name("child.py")), str(request)]
    what = f"compiling {kernel.name} ({variant.name})"
    try:
        done = subprocess.run(child, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{what} took more than {TIMEOUT_S} s", "try again on a machine that is less busy") from None
    if done.returncode < 0:
        raise BuildError(
            f"{what}: the compiler died of signal {-done.returncode}. {done.stderr.strip()[-1500:]}",
            "tile sizes that no MMA has do this: the keys of a tile must be a multiple of 16",
        )
    if done.returncode:
        raise BuildError(f"{what} failed: {done.stderr.strip()[-3000:]}", "emit the kernel again with this version of twill")
