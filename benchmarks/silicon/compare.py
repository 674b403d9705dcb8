"""Run all cases of a folder on the GPU, in child processes that may hang, and put what they did beside what the emulator says."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.silicon.cases import Case, load_cases
from benchmarks.silicon.tables import comparison, contradictions, faults
from twill.bench.watchdog import Child, Failed

__all__ = ["compare"]

MODULE = "benchmarks.silicon.child"
KERNEL_S = 1.5
"""A kernel that takes longer hangs: those of the cases take less than a millisecond."""
CASE_S = 30.0


@dataclass(frozen=True, slots=True)
class _Run:
    folder: Path
    repeats: int
    end: float
    """When, on the monotonic clock, no more is begun."""

    def all(self, cases: Iterable[tuple[int, Case]], jobs: int, results: dict[str, dict[str, Any]]) -> None:
        """Run cases in ``jobs`` processes; a case that is not begun in time has no result."""
        left: queue.SimpleQueue[tuple[int, Case]] = queue.SimpleQueue()
        for item in cases:
            left.put(item)
        threads = [threading.Thread(target=self._work, args=(left, results)) for _ in range(jobs)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def _work(self, left: queue.SimpleQueue[tuple[int, Case]], results: dict[str, dict[str, Any]]) -> None:
        child = Child(MODULE)
        while time.monotonic() < self.end:
            try:
                index, case = left.get_nowait()
            except queue.Empty:
                break
            results[case.name] = self._one(child, index, case)
            print(case.name, json.dumps({k: v for k, v in results[case.name].items() if k != "outputs"}), flush=True)
        child.kill()

    def _one(self, child: Child, index: int, case: Case) -> dict[str, Any]:
        begin = time.monotonic()
        try:
            child.ask("start", {"folder": str(self.folder)}, CASE_S)
            question = {"folder": str(self.folder), "case": index, "repeats": self.repeats, "timeout_s": KERNEL_S}
            found = child.ask(case.name, question, CASE_S)
        except Failed as error:
            text = str(error).strip()
            found = {"ways": {"last": "hang" if "no answer in" in text else "fault"}, "error": text[-400:]}
        if "hang" in found.get("ways", {}).values():
            child.kill()  # its kernel still runs
        return found | {"seconds": round(time.monotonic() - begin, 2)}


def _gpu(folder: Path) -> dict[str, Any]:
    """What the GPU is; without one there is nothing to compare with."""
    child = Child(MODULE)
    try:
        return child.ask("start", {"folder": str(folder)}, CASE_S)
    except Failed as error:
        raise SystemExit(f"no case can run here, which takes an H100 or H200 and its driver: {error}") from None
    finally:
        child.close()


def compare(folder: Path, out: Path, *, jobs: int, repeats: int, budget_s: float) -> int:
    """Print and write the tables; gives the number of cases that contradict the emulator or did not run."""
    folder, begin = folder.resolve(), time.monotonic()
    cases = load_cases(folder)
    about = _gpu(folder)
    print(about, flush=True)
    this = _Run(folder, repeats, begin + budget_s)
    results: dict[str, dict[str, Any]] = {}
    kept = [(i, c) for i, c in enumerate(cases) if c.group != "control"]
    this.all(sorted(kept, key=lambda x: x[1].group == "fault"), jobs, results)
    unsure = [(i, c) for i, c in kept if c.name in results and c.name in contradictions([c], results)]
    if unsure:
        print(f"once more, alone: {', '.join(c.name for _, c in unsure)}", flush=True)
        this.all(unsure, 1, results)
    missing = [c.name for _, c in kept if c.name not in results]
    against = contradictions([c for _, c in kept], results)
    gpu = f"{about['device']}, {time.strftime('%Y-%m-%d')}, {time.monotonic() - begin:.0f} s"
    lines = [
        gpu, "",
        *comparison([c for _, c in kept if not c.fault], results), "", *faults([c for _, c in kept if c.fault], results), "",
        f"against the emulator: {', '.join(against) or 'nothing'}", f"not run: {', '.join(missing) or 'nothing'}",
    ]  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps({"about": about | {"gpu": gpu}, "results": results}, indent=1) + "\n", encoding="utf-8")
    (out / "tables.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines), flush=True)
    return len(against) + len(missing)
