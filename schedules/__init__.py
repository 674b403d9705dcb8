"""Schedules that ship with twill. Each file was solved to proof and passes ``twill check``.

``python -m twill.regenerate`` makes them all again, byte for byte.
"""

from __future__ import annotations

from importlib import resources

from twill.errors import UsageError
from twill.model.schedule import Schedule, parse_schedule

__all__ = ["load", "names"]


def names() -> tuple[str, ...]:
    """Names of the shipped schedules, such as ``sm100_attn_fwd_d128``."""
    return tuple(sorted(p.name.removesuffix(".json") for p in resources.files(__name__).iterdir() if p.name.endswith(".json")))


def load(name: str) -> Schedule:
    """A shipped schedule; its hash is verified.

    Raises
    ------
    UsageError : no such schedule.
    """
    if name not in names():
        raise UsageError(f"there is no shipped schedule {name!r}", "see `twill list schedules`")
    text = (resources.files(__name__) / f"{name}.json").read_text(encoding="utf-8")
    return parse_schedule(text, f"{name}.json")
