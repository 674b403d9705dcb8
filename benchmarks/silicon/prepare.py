"""Write the cases of a silicon comparison, without a GPU: compile, emulate, plant faults and judge them, assemble."""

from __future__ import annotations

from pathlib import Path

from benchmarks.silicon.cases import Case, save_cases
from benchmarks.silicon.faults import FAULTS, faults
from benchmarks.silicon.ours import ours
from benchmarks.silicon.peers import peers

__all__ = ["FAULTS", "prepare"]


def prepare(folder: Path, compiled_peers: Path | None, wanted: int) -> None:
    """Fill a folder. ``wanted`` is the number of faults planted in each of `FAULTS`."""
    folder.mkdir(parents=True, exist_ok=True)
    cases: list[Case] = []
    for made in (ours(folder), peers(folder, compiled_peers) if compiled_peers else iter(()), faults(folder, wanted)):
        for case in made:
            cases.append(case)
            print(case.name, *case.findings, *(case.fault.get("caught", ())), flush=True)
            if case.group in ("ours", "control") and any(f.startswith("error") for f in case.findings):
                raise SystemExit(f"{case.name} has findings: see `twill emulate`")
    save_cases(folder, cases)
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{len(cases)} cases, {size / 2**20:.1f} MiB in {folder}")
