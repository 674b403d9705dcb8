"""``python -m twill.bench --arch sm100``: verify and time every attention kernel on the GPU of this machine, and write a report.

Every case runs in a child process that is killed when it hangs. FOLDER gets ``report.md`` and ``report.json``, written anew after every
case, so that a run that is ended from outside has found something all the same. FlashAttention-4 and -3 are timed beside it if they are
installed, and cuDNN if PyTorch has it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from twill.bench.contenders import CONTENDERS
from twill.bench.report import markdown, wrong
from twill.bench.run import Refused, Wanted, measure
from twill.bench.watchdog import Child

__all__ = ["main"]

RIGHT, WRONG, NO_GPU = 0, 1, 2


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m twill.bench", description=__doc__)
    parser.add_argument("--arch", required=True, choices=("sm90", "sm100", "sm103"), help="architecture whose kernels are meant")
    parser.add_argument("-o", "--output", type=Path, default=Path("twill-bench"), metavar="FOLDER", help="where the report goes")
    parser.add_argument("--only", default="", metavar="REGEX", help="only kernels in whose name this is found: d128, fp16-causal, ...")
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--budget", type=float, default=3600.0, metavar="SECONDS", help="start nothing after this time")
    parser.add_argument("--rounds", type=int, default=7, help="bursts of each contender in a row")
    parser.add_argument("--burst-ms", type=float, default=40.0, help="about how long a burst is")
    parser.add_argument("--quick", action="store_true", help="a few shapes a kernel")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all was right, 1 if something was wrong, 2 if there is no such GPU."""
    given = _parser().parse_args(arguments)
    wanted = Wanted(given.arch, given.only, given.contenders, given.budget, given.rounds, given.burst_ms, given.quick)
    given.output.mkdir(parents=True, exist_ok=True)

    def keep(record: dict[str, Any]) -> None:
        (given.output / "report.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        (given.output / "report.md").write_text(markdown(record), encoding="utf-8")

    with closing(Child("twill.bench.child")) as child:
        try:
            record = measure(wanted, child, keep, _say)
        except Refused as reason:
            sys.stderr.write(f"twill.bench: {reason}\n")
            return NO_GPU
    keep(record)
    _say(f"{given.output / 'report.md'}: {'something was wrong' if wrong(record) else 'all that was asked was right'}")
    return WRONG if wrong(record) else RIGHT


if __name__ == "__main__":
    sys.exit(main())
