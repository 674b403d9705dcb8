"""Planted faults: chosen, judged by the emulator, assembled for the GPU."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.silicon.cases import Case, pack
from benchmarks.silicon.emulated import emulated
from benchmarks.silicon.ours import Ours
from twill.emulate.campaign import Verdict, judge, lines_run
from twill.emulate.mutants import mutants
from twill.emulate.numbers import Shape
from twill.emulate.ptx.plant import planted

__all__ = ["assembled", "faults", "spread"]

FAULTS = (("sm90_attn_fwd_d128", False, (520, 1100)), ("sm90_attn_fwd_d64", True, (600, 700)))
"""Kernels that faults are planted in, with rows of Q and K."""
SCHEDULERS = ("late", "eager", "random", "newest")


def faults(folder: Path, wanted: int) -> Iterator[Case]:
    """Planted faults, with what the emulator says to each, and before them the kernel itself and what it is assembled to here.

    All faults are judged; kept are those that the emulator misses, and ``wanted`` of the others.
    """
    for name, causal, (seqlen_q, seqlen_k) in FAULTS:
        this = Ours.make(name, causal, folder)
        control = replace(this.case((seqlen_q, seqlen_k, 1, 1), folder, 0, 1), name=f"{this.label} control", group="control")
        yield emulated(control, folder, [(this.kernel.code, this.kernel.recorder)])
        yield _fault(control, this, folder, "assembled again", this.ptx, {"family": "none", "caught": (), "line": 0, "text": ""})
        shape = Shape(**control.shape)
        run = lines_run(this.kernel, this.kernel.run(shape, "late", 0, 1))
        made = [m for m in mutants(this.kernel.code.kernel) if m.line in run]
        verdicts = list(judge(this.kernel, shape, made, SCHEDULERS, 0))
        chosen = [v for v in verdicts if not v.kinds] + spread([v for v in verdicts if v.kinds], wanted)
        for i, v in enumerate(sorted(chosen, key=lambda v: v.mutant.line)):
            m = v.mutant
            about = {"family": m.family, "line": m.line, "text": m.text, "source": this.kernel.code.source(m.line)}
            about |= {"caught": v.kinds, "scheduler": v.scheduler}
            yield _fault(control, this, folder, f"fault {i}", planted(this.ptx, m.old, m.new, m.registers), about)


def spread(given: Sequence[Verdict], wanted: int) -> list[Verdict]:
    """Some of each family in turn, of each family from all over the kernel."""
    families: dict[str, list[Verdict]] = {}
    for v in given:
        families.setdefault(v.mutant.family, []).append(v)
    order = [[x[(i * _stride(len(x))) % len(x)] for i in range(len(x))] for x in families.values()]
    return [v for turn in zip_longest(*order) for v in turn if v is not None][:wanted]


def _stride(size: int) -> int:
    """A step near two fifths of ``size`` that reaches all of it."""
    return next(s for s in range(max(1, 2 * size // 5), size + 1) if np.gcd(s, size) == 1)


def _fault(control: Case, this: Ours, folder: Path, what: str, ptx: str, about: dict[str, Any]) -> Case:
    code, remarks = assembled(ptx, folder)
    file = pack(code, folder / f"{this.label}_{what.replace(' ', '_')}.cubin.xz")
    call = replace(control.calls[0], code=file)
    return replace(
        control, name=f"{this.label} {what}", group="fault", calls=(call,), emulated="", findings=(),
        fault=about | {"of": control.name, "remarks": remarks},
    )  # fmt: skip


def assembled(ptx: str, scratch: Path) -> tuple[bytes, str]:
    """Assemble for sm_90a with the ptxas on the PATH, without line information; gives what ptxas remarked as well.

    An older ptxas than the compiler's is told that the PTX is of its own version: it refuses what it does not know.
    """
    text = re.sub(r"(?m)^\s*\.(loc|file)\b.*$", "", ptx)
    source, output = scratch / "draft.ptx", scratch / "draft.cubin"
    for _ in range(2):
        source.write_text(text, encoding="utf-8")
        done = subprocess.run(["ptxas", "-arch=sm_90a", "-o", str(output), str(source)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            code = output.read_bytes()
            source.unlink()
            output.unlink()
            return code, done.stderr.strip()
        older = re.search(r"Unsupported \.version [\d.]+; current version is '([\d.]+)'", done.stderr)
        if older is None:
            break
        text = re.sub(r"(?m)^\.version.*$", f".version {older[1]}", text)
    raise SystemExit(f"ptxas refuses {source}: {done.stderr.strip()[-1000:]}")
