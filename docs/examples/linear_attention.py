"""Export chunked linear attention (a Mamba-2 SSD scan) as loop graphs for two machines.

    python docs/examples/linear_attention.py OUTPUT_FOLDER

writes ``linear_attn-h200.json`` (accumulators in registers) and ``linear_attn-b200.json`` (accumulators in tensor memory), which
the command line takes wherever it takes a graph's name. How the graph is built, op by op, is in
``twill/model/graphs/linear_attn.py``; ``docs/graphs.md`` explains the builder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from twill.model.graph import LoopGraph
from twill.model.graphs.linear_attn import LinearAttn, linear_attn
from twill.model.machine import load_machine

MACHINES = ("h200", "b200")


def summary(graph: LoopGraph) -> str:
    """One line an op: what it is, what it costs, what it waits for."""
    lines = [f"{graph.name} on {graph.machine}: {len(graph.ops)} ops"]
    for op in graph.ops:
        waits = [e.src + (" of the chunk before" if e.distance else "") for e in graph.edges if e.dst == op.name]
        lines.append(f"  {op.name:5} {op.latency_cycles:5} cycles {op.kind:21} after {', '.join(waits) or 'nothing'}")
    return "\n".join(lines)


def main(folder: Path) -> None:
    """Build the graph for both machines and write it to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in MACHINES:
        graph = linear_attn(load_machine(name), LinearAttn(head_dim=128, head_dim_v=128))
        path = folder / f"{graph.name}-{name}.json"
        path.write_text(graph.to_json(), encoding="utf-8")
        print(summary(graph))
        print(f"  -> {path}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/examples/linear_attention.py OUTPUT_FOLDER")
    main(Path(sys.argv[1]))
