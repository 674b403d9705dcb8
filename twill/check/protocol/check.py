"""Verify a WarpProgram against its graph: structure, deadlock, phases, dependences and races, for every trip count."""

from __future__ import annotations

from functools import cache

from twill.check.protocol import ordering
from twill.check.protocol.eventgraph import EventEdge, critical_cycle, event_graph, token_free_cycle
from twill.check.protocol.expansion import Expansion
from twill.check.protocol.facts import ProtocolFacts, facts_of
from twill.check.protocol.races import races
from twill.check.protocol.report import ProtocolFinding, ProtocolReport, protocol_finding
from twill.check.protocol.structure import structure
from twill.lower.program import WarpProgram
from twill.model.graph import LoopGraph

__all__ = ["check_order", "check_protocol"]


def check_protocol(program: WarpProgram, graph: LoopGraph, *, ii_cycles: int | None = None) -> ProtocolReport:
    """Every way in which some interleaving of some trip count goes wrong; none is missed within what the program states.

    A malformed program is reported alone, and so is a deadlock: no order of events means anything then. ``ii_cycles`` is the schedule's I,
    for the report.
    """
    found = tuple(structure(facts_of(program, graph)))
    if found:
        return ProtocolReport(found, ii_cycles=ii_cycles)
    return check_order(program, graph, ii_cycles=ii_cycles)


def check_order(program: WarpProgram, graph: LoopGraph, *, ii_cycles: int | None = None) -> ProtocolReport:
    """What `check_protocol` asks of a program that is well formed: deadlock, phases, dependences, races."""
    facts = facts_of(program, graph)
    events = event_graph(facts)
    stuck = token_free_cycle(events)
    if stuck:
        return ProtocolReport((_deadlock(stuck),), ii_cycles=ii_cycles)
    ratio, critical = critical_cycle(events)
    return ProtocolReport(_over_all_runs(facts), ratio, tuple(map(str, critical)), ii_cycles)


def _over_all_runs(facts: ProtocolFacts) -> tuple[ProtocolFinding, ...]:
    @cache
    def runs(trip_count: int) -> Expansion:
        return Expansion(facts, trip_count)

    return (*ordering.phases(facts, runs), *ordering.edges(facts, runs), *races(facts, runs))


def _deadlock(cycle: tuple[EventEdge, ...]) -> ProtocolFinding:
    def listed(names: list[str]) -> str:
        return ", ".join(dict.fromkeys(names))

    roles = listed([r for e in cycle for r in e.roles])
    barriers = listed([e.barrier for e in cycle if e.barrier])
    guards = listed([g for e in cycle for g in e.guards])
    steps = "; ".join(f"{e.src} -> {e.dst}" + (f" ({e.distance:+d} iterations)" if e.distance else "") for e in cycle)
    return protocol_finding("deadlock", f"each waits for the next, for ever: {steps}", role=roles, barrier=barriers, edge=guards)
