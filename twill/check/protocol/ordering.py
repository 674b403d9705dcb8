"""Rules over happens-before: every dependence of the graph is enforced, and no phase of a barrier is mistaken for another."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twill.check.protocol.expansion import Expansion
from twill.check.protocol.facts import ProtocolFacts, edge_label
from twill.check.protocol.report import ProtocolFinding, protocol_finding
from twill.lower.program import Barrier

__all__ = ["edges", "phases"]

Runs = Callable[[int], Expansion]
"""The expansion for a trip count."""


def edges(facts: ProtocolFacts, runs: Runs) -> Iterator[ProtocolFinding]:
    """``u`` of iteration i - distance is over before ``v`` of iteration i begins, for every edge (u, v, distance).

    An ``order`` edge shorter than its source (the next MMA into one accumulator) orders the beginnings only.
    """
    for e in facts.graph.edges:
        run = runs(e.distance + 1)
        whole = e.kind != "order" or e.latency_cycles >= facts.ops[e.src].latency_cycles
        source = run.end(e.src, 0) if whole else run.begin(e.src, 0)
        if not run.before(source, run.begin(e.dst, e.distance)):
            label = edge_label(e)
            earlier = f" of iteration i{-e.distance}" if e.distance else ""
            text = (
                f"{e.dst} in {facts.role(e.dst)} may begin before {e.src}{earlier} in {facts.role(e.src)} is over"
                f" ({e.value or e.kind}); shows at trip count {e.distance + 1}"
            )
            yield protocol_finding("edge", text, role=facts.role(e.dst), barrier=_guardians(facts, label), edge=label)


def _guardians(facts: ProtocolFacts, label: str) -> str:
    named = facts.guardians(label)
    return named or next((f"(none: redundant by {path})" for what, path in facts.program.redundant if what == label), "")


def phases(facts: ProtocolFacts, runs: Runs) -> Iterator[ProtocolFinding]:
    """Arrivals count for the phase that they mean, and a wait looks at a barrier before its parity comes round again.

    A wait never looks a phase early: the same instruction waited for completion k - slots before, if that exists.
    """
    for b in facts.program.barriers:
        yield from _arrivals(facts, runs, b)
        yield from _waits(facts, runs, b)


def _arrivals(facts: ProtocolFacts, runs: Runs, b: Barrier) -> Iterator[ProtocolFinding]:
    run = runs(b.slots + 1)
    label = ", ".join(b.guards)
    for site, x in facts.arrivals(b.name):
        # arrive.expect_tx runs when the load is issued
        arrival = run.at(site, b.slots) if b.tx_bytes else run.arrival(site, b.slots)
        # a completion is over with the last arrival that makes it
        made = not b.tx_bytes and all(run.before(run.arrival(other, 0), arrival) for other, _ in facts.arrivals(b.name))
        if not made and not run.before(run.completion(b.name, 0), arrival):
            text = (
                f"arrival for completion k+{b.slots}{f' after {x.op}' if x.op else ''} may come before completion k and count for it"
                f" (phase overrun; {b.slots} slots); shows at trip count {b.slots + 1}"
            )
            yield protocol_finding("phase", text, role=site.role.name, barrier=b.name, edge=label)


def _waits(facts: ProtocolFacts, runs: Runs, b: Barrier) -> Iterator[ProtocolFinding]:
    """A named barrier takes no arrival for the next phase before the wait; an mbarrier may take some, but must not complete."""
    label = ", ".join(b.guards)
    for site, x in facts.waits(b.name):
        trip_count = max(x.distance, b.slots) + 1
        run = runs(trip_count)
        passed = run.at(site, x.distance)
        if b.kind == "mbarrier":
            safe = run.before(passed, run.completion(b.name, b.slots))
        else:
            safe = all(run.before(passed, run.arrival(a, b.slots)) for a, _ in facts.arrivals(b.name))
        if not safe:
            what = "complete again" if b.kind == "mbarrier" else "take arrivals of the next phase"
            text = (
                f"the slot may {what} (completion k+{b.slots}) before the wait for completion k has passed"
                f" (phase overrun; {b.slots} slots); shows at trip count {trip_count}"
            )
            yield protocol_finding("phase", text, role=site.role.name, barrier=b.name, edge=label)
