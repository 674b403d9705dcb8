"""One-field corruptions of what a schedule file claims: bounds, rank and proof, and the model that it is about."""

from __future__ import annotations

from collections.abc import Callable

from twill.model.machine import Machine
from twill.model.schedule import Schedule

from .corruptions import CORRUPTIONS, Data, Expected, corruption


def _bound(name: str) -> None:
    def change(data: Data, s: Schedule, machine: Machine) -> Expected | None:
        data["lower_bounds_cycles"][name] += 1
        return Expected("lower-bounds", (name,))

    CORRUPTIONS[f"bound_{name}"] = change


for _name in ("resource", "recurrence", "memory", "issue"):
    _bound(_name)


@corruption
def bound_missing(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    del data["lower_bounds_cycles"]["issue"]
    return Expected("lower-bounds", ("issue",))


@corruption
def bound_unknown(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["lower_bounds_cycles"]["luck"] = 1
    return Expected("lower-bounds", ("luck",))


def _rank(name: str) -> None:
    def change(data: Data, s: Schedule, machine: Machine) -> Expected | None:
        data["rank"][name] += 1
        return Expected("rank", (name,))

    CORRUPTIONS[f"rank_{name}"] = change


for _name in ("groups", "held_up", "handovers", "waits", "register_peak", "slack_cycles"):
    _rank(_name)


@corruption
def margin(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["margin_cycles"] += 1
    return Expected("margin", ("margin_cycles",))


@corruption
def status(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["status"] = "feasible" if s.status == "optimal" else "optimal"
    return Expected("proof", ("status",))


def _step(step: str, field: str, change: Callable[[Data, Schedule], None]) -> None:
    def corrupt(data: Data, s: Schedule, machine: Machine) -> Expected | None:
        change(data["proof"][step], s)
        return Expected("proof", (f"proof.{step}.{field}",))

    CORRUPTIONS[f"proof_{step}_{field}_{change.__name__}"] = corrupt


def one_more(step: Data, s: Schedule) -> None:
    step["value_cycles"] += 1


def two_below(step: Data, s: Schedule) -> None:
    refuted = step["value_cycles"] - 2 * s.options.time_unit_cycles
    step.update(by="refutation", refuted_cycles=refuted, bound=None, gap_cycles=0)


def of_no_meaning(step: Data, s: Schedule) -> None:
    step.update(by="lower-bound", bound="luck", refuted_cycles=None, gap_cycles=0)


def without_name(step: Data, s: Schedule) -> None:
    step.update(by="lower-bound", bound=None, refuted_cycles=None, gap_cycles=0)


def too_large(step: Data, s: Schedule) -> None:
    step.update(by="none", bound=None, refuted_cycles=None, gap_cycles=step["value_cycles"])


def though_closed(step: Data, s: Schedule) -> None:
    step.update(by="refutation", refuted_cycles=step["value_cycles"] - s.options.time_unit_cycles, bound=None, gap_cycles=3)


def beside_refutation(step: Data, s: Schedule) -> None:
    step.update(by="refutation", refuted_cycles=step["value_cycles"] - s.options.time_unit_cycles, bound="resource", gap_cycles=0)


def beside_nothing(step: Data, s: Schedule) -> None:
    step.update(by="none", refuted_cycles=step["value_cycles"] - s.options.time_unit_cycles, bound=None, gap_cycles=1)


for _name in ("ii", "length"):
    _step(_name, "value_cycles", one_more)
    _step(_name, "refuted_cycles", two_below)
    _step(_name, "bound", of_no_meaning)
    _step(_name, "bound", without_name)
    _step(_name, "gap_cycles", too_large)
    _step(_name, "gap_cycles", though_closed)
    _step(_name, "bound", beside_refutation)
    _step(_name, "refuted_cycles", beside_nothing)


def out_of_reach(step: Data, s: Schedule) -> None:
    step.update(by="none", bound=None, refuted_cycles=None, gap_cycles=10**6)


_step("margin", "value_cycles", one_more)
_step("margin", "refuted_cycles", two_below)
_step("margin", "bound", of_no_meaning)
_step("margin", "bound", without_name)
_step("margin", "gap_cycles", out_of_reach)
_step("margin", "gap_cycles", though_closed)
_step("margin", "bound", beside_refutation)
_step("margin", "refuted_cycles", beside_nothing)


@corruption
def proof_by_smaller_bound(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    weak = next(name for name, bound in s.lower_bounds_cycles.items() if bound < s.ii_cycles)
    data["proof"]["ii"].update(by="lower-bound", bound=weak, refuted_cycles=None, gap_cycles=0)
    return Expected("proof", ("proof.ii.bound",))


@corruption
def model_hash(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["proof"]["model_hash"] = "0" * 64
    return Expected("proof", ("model_hash",))


# graph, machine, options


@corruption
def graph_latency(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    op = next(op for op in data["graph"]["ops"] if op["asynchronous"])
    op["latency_cycles"] += 1
    return Expected("proof", ("model_hash",))


@corruption
def graph_edge_dropped(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["graph"]["edges"].pop()
    data["graph"]["symmetries"] = []
    return Expected("proof", ("model_hash",))


@corruption
def graph_reservation(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    op = next(op for op in data["graph"]["ops"] if op["reservations"])
    op["reservations"][0]["amount"] = 10**6
    return Expected("graph", (s.graph.name,))


@corruption
def graph_edge_to_nowhere(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["graph"]["edges"][0]["dst"] = "nowhere"
    return Expected("graph", (s.graph.name,))


@corruption
def graph_symmetry_of_strangers(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["graph"]["symmetries"] = [[["stranger"], [s.ops[0].name]]]
    return Expected("graph", ("stranger",))


@corruption
def graph_reserves_less_than_nothing(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["graph"]["reserved"] = {"smem": -1024}
    return Expected("graph", ("smem",))


@corruption
def graph_for_another_machine(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["graph"]["machine"] = "c64"
    return Expected("machine", ("graph.machine",))


def _machine(field: str) -> None:
    def change(data: Data, s: Schedule, machine: Machine) -> Expected | None:
        data["machine"][field] += "0"
        return Expected("machine", (f"machine.{field}",))

    CORRUPTIONS[f"machine_{field}"] = change


for _name in ("name", "arch", "target", "hash"):
    _machine(_name)


@corruption
def copies_allowed(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    copies = -(-s.length_cycles // s.ii_cycles)
    if copies == 1:
        return None
    data["options"]["max_copies"] = copies - 1
    return Expected("completion", ("length_cycles",), s.length_cycles)


@corruption
def ii_allowed(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["options"]["max_ii_cycles"] = s.ii_cycles - 1
    return Expected("options", ("ii_cycles",))


@corruption
def rule_unknown(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["options"]["without"] = [*s.options.without, "gravity"]
    return Expected("options", ("options.without",))


@corruption
def rule_that_must_hold(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["options"]["without"] = [*s.options.without, "dependence"]
    return Expected("options", ("options.without",))


@corruption
def rule_on_and_off(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["options"].update(without=["local-registers"], with_rules=["local-registers"])
    return Expected("options", ("options.with_rules",))


@corruption
def options_after_the_proof(data: Data, s: Schedule, machine: Machine) -> Expected | None:
    data["options"]["max_copies"] += 1
    return Expected("proof", ("model_hash",))
