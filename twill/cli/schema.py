"""``twill schema``: the JSON Schema of the file formats. The same text is kept in ``docs/schema``."""

from __future__ import annotations

import json
import sys

from twill.errors import EXIT_DONE, UsageError

__all__ = ["FORMATS", "schema_command", "schema_text"]

FORMATS = ("schedule", "graph", "machine")


def schema_text(what: str) -> str:
    """The schema of one format as JSON text.

    Raises
    ------
    UsageError : there is no such format.
    """
    from pydantic import BaseModel

    from twill.model.graph import LoopGraph
    from twill.model.machine import Machine
    from twill.model.schedule import Schedule

    models: dict[str, type[BaseModel]] = {"schedule": Schedule, "graph": LoopGraph, "machine": Machine}
    if what not in models:
        raise UsageError(f"there is no schema of {what!r}", f"use one of {', '.join(FORMATS)}")
    return json.dumps(models[what].model_json_schema(), indent=1) + "\n"


def schema_command(what: str) -> int:
    """Print a schema.

    Raises
    ------
    UsageError : there is no such format.
    """
    sys.stdout.write(schema_text(what))
    return EXIT_DONE
