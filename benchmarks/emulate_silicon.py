"""The emulator against a GPU: bit by bit on the same inputs, and on planted faults.

    python -m benchmarks.emulate_silicon prepare FOLDER [--peers PEERS]   anywhere: compile, emulate, plant faults, assemble (no GPU)
    python -m benchmarks.emulate_silicon compare FOLDER [--out OUT]       on a machine with an H100 or H200: run it all, print the tables
    python -m benchmarks.emulate_silicon page FOLDER OUT                  anywhere: docs/silicon.md from what comparing left in OUT

Comparing needs Python, numpy and the driver. PEERS is a folder that `benchmarks.emulate_peers compile` has filled. Outputs should differ
in last bits: tensor cores sum in another order, and the emulator computes approximate functions exactly. A planted fault that hangs or
gives wrong values on the GPU should have been found by the emulator.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

__all__ = ["main"]


def main() -> int:
    """The command; comparing fails if the emulator is contradicted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    preparing = what.add_parser("prepare")
    preparing.add_argument("folder", type=Path)
    preparing.add_argument("--peers", type=Path, help="flash-attn-4's kernels, compiled; without it only ours are compared")
    preparing.add_argument("--faults", type=int, default=32, help="of each of two kernels, beside those that the emulator misses")
    comparing = what.add_parser("compare")
    comparing.add_argument("folder", type=Path)
    comparing.add_argument("--out", type=Path, help="where results.json and tables.md go; the folder itself if not given")
    comparing.add_argument("--jobs", type=int, default=4, help="processes on the GPU at a time")
    comparing.add_argument("--repeats", type=int, default=20, help="runs of each planted fault")
    comparing.add_argument("--budget", type=float, default=85.0, help="seconds after which no case is begun")
    writing = what.add_parser("page")
    writing.add_argument("folder", type=Path)
    writing.add_argument("out", type=Path, help="the folder that comparing filled")
    given = parser.parse_args()
    if given.what == "page":
        from benchmarks.silicon.cases import load_cases
        from benchmarks.silicon.tables import page

        found = json.loads((given.out / "results.json").read_text(encoding="utf-8"))
        sys.stdout.write("\n".join(page(load_cases(given.folder), found["results"], found["about"]["gpu"])) + "\n")
        return 0
    if given.what == "prepare":
        from benchmarks.silicon.prepare import prepare

        prepare(given.folder, given.peers, given.faults)
        return 0
    from benchmarks.silicon.compare import compare

    return compare(given.folder, given.out or given.folder, jobs=given.jobs, repeats=given.repeats, budget_s=given.budget)


if __name__ == "__main__":
    sys.exit(main())
