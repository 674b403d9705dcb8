"""Issue slots a step of the Blackwell forward kernels takes, beside flash-attn-4's at the same share of polynomials: counted, not timed.

    python benchmarks/issue_slots.py FOLDER      (FOLDER as `benchmarks/emulate_peers.py compile` leaves it; no GPU)

A step is a tile of 128 keys for 256 query rows. A sub-partition issues one instruction a cycle for its warps, which are every fourth of
the block (assumed): a warp of each softmax, one that rescales, and in the busiest one the MMA warp.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from twill.build.compiler import compiled
from twill.build.kernelfile import Variant, read
from twill.build.report import Turn, counts

CASES = ((64, False, 16), (64, True, 16), (128, False, 24), (128, True, 16))
"""Head dim, causal, and how many of 128 exponentials flash-attn-4 4.0.0b36 makes polynomials of."""


@dataclass(frozen=True, slots=True)
class Step:
    """Instructions of a turn of each kind of role, rescaling in none and in all of them."""

    softmax: int
    mma: int
    rescale: tuple[int, int]

    @property
    def issue(self) -> tuple[int, int]:
        """Of the busiest sub-partition."""
        shared = self.softmax + self.mma
        return shared + self.rescale[0], shared + self.rescale[1]


def _has(turn: Turn, family: str) -> bool:
    return turn.families.get(family, (0, 0))[1] > 0


def step(turns: Iterable[Turn]) -> Step:
    """Roles told by what they do: the shortest loop of a softmax is the one without masks. One copy of it may serve both sub-tiles."""
    found = list(turns)
    exponentials = [t for t in found if _has(t, "exp") and _has(t, "tensor memory")]
    least = min(t.shortest for t in exponentials)
    steady = [t.shortest for t in exponentials if t.shortest < 1.15 * least]
    (mma,) = (t for t in found if _has(t, "mma"))
    (rescale,) = (t for t in found if not _has(t, "exp") and t.families.get("packed", (0, 0))[1] >= 32)
    return Step(sum(steady) if len(steady) > 1 else 2 * steady[0], mma.shortest, (rescale.shortest, rescale.longest))


def _peer(folder: Path, dim: int, causal: bool) -> Step:
    (cubin,) = (folder / f"fwd_sm_100a_d{dim}{'_causal' if causal else ''}").glob("*.cubin")
    (kernel,) = counts(cubin)
    return step(kernel.turns)


def _ours(work: Path, dim: int, causal: bool, polynomials: int) -> Step:
    file = work / f"d{dim}_{polynomials}.py"
    if not file.exists():
        share = f"poly_share={polynomials / 128}"
        command = [sys.executable, "-m", "twill.cli", "emit", "--arch", "sm100", "attn_fwd", "--head-dim", str(dim), "--set", share]
        subprocess.run([*command, "-o", str(file)], check=True, capture_output=True)
    (kernel,) = counts(compiled(read(file), Variant("bf16", causal, True), "sm_100a").cubin)
    return step(kernel.turns)


def main() -> int:
    """Print the table of docs/build.md."""
    folder = Path(sys.argv[1])
    print("| case, polynomials of 128 | FA4: softmax x 2, MMA, rescale | issue | twill | issue | ratio |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        for dim, causal, polynomials in CASES:
            peer, ours = _peer(folder, dim, causal), _ours(Path(work), dim, causal, polynomials)
            cells = [f"{s.softmax}, {s.mma}, {s.rescale[0]}-{s.rescale[1]} | {s.issue[0]}-{s.issue[1]}" for s in (peer, ours)]
            ratios = "-".join(f"{o / p:.3f}" for o, p in zip(ours.issue, peer.issue, strict=True))
            print(f"| d {dim}{' causal' if causal else ''}, {polynomials} | {' | '.join(cells)} | {ratios} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
