"""Lower bounds on the initiation interval and the length, and the windows that they imply.

All in cycles. Each bound belongs to a rule and is 0 while that rule is off (``docs/formulation.md`` section 4).
"""

from __future__ import annotations

from dataclasses import dataclass

from twill.solver.problem import BufferSpec, Problem

__all__ = ["Bounds", "Distances", "critical_path", "default_copies", "distances", "fewest_groups", "lower_bounds"]

NEVER = -(10**9)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Lower bounds on I by name, and which unit, cycle, memory or op each comes from."""

    values: dict[str, int]
    reasons: dict[str, str]

    @property
    def best(self) -> int:
        return max(1, *self.values.values())

    @property
    def binding(self) -> str:
        """The name of the largest bound."""
        return max(self.values, key=lambda name: self.values[name])


def lower_bounds(problem: Problem) -> Bounds:
    """Resource, recurrence, memory and issue bounds."""
    values: dict[str, int] = {}
    reasons: dict[str, str] = {}
    values["resource"], reasons["resource"] = _resource(problem) if problem.on("capacity") else (0, "")
    values["recurrence"], reasons["recurrence"] = _recurrence(problem)
    values["memory"], reasons["memory"] = _memory(problem) if problem.on("memory") else (0, "")
    values["issue"], reasons["issue"] = 0, ""
    if problem.on("concurrency"):
        longest = max(problem.ops, key=lambda op: op.issue)
        values["issue"], reasons["issue"] = longest.issue, f"the warps of {longest.name} are busy that long"
    return Bounds(values, reasons)


def _resource(problem: Problem) -> tuple[int, str]:
    work: dict[str, int] = {}
    for op in problem.ops:
        for use in op.uses:
            work[use.unit] = work.get(use.unit, 0) + use.length * use.amount
    best, reason = 0, ""
    for unit, total in work.items():
        bound = -(-total // problem.capacity[unit])
        if bound > best:
            best, reason = bound, f"{unit} is busy that long in every iteration"
    return best, reason


def _has_positive_cycle(problem: Problem, ii: int) -> list[int] | None:
    """Edge indices of a cycle that needs more than ``ii`` per iteration, or None (Bellman-Ford)."""
    n = len(problem.ops)
    dist = [0] * n
    via = [-1] * n
    last = -1
    for _ in range(n + 1):
        last = -1
        for k, e in enumerate(problem.edges):
            at = dist[e.src] + e.cheapest - e.distance * ii
            if at > dist[e.dst]:
                dist[e.dst], via[e.dst], last = at, k, e.dst
        if last < 0:
            return None
    node = last
    for _ in range(n):
        node = problem.edges[via[node]].src
    cycle, at_node = [], node
    while True:
        cycle.append(via[at_node])
        at_node = problem.edges[via[at_node]].src
        if at_node == node:
            return cycle[::-1]


def _recurrence(problem: Problem) -> tuple[int, str]:
    low, reason = 0, ""
    while True:
        cycle = _has_positive_cycle(problem, low)
        if cycle is None:
            return low, reason
        edges = [problem.edges[k] for k in cycle]
        weight, distance = sum(e.cheapest for e in edges), sum(e.distance for e in edges)
        low = -(-weight // distance) if distance else NEVER
        names = " -> ".join(problem.ops[e.src].name for e in edges)
        reason = f"{names} -> {problem.ops[edges[0].src].name} takes {weight} over {distance} iteration(s)"


def _memory(problem: Problem) -> tuple[int, str]:
    within = _inside_paths(problem)
    need: dict[str, int] = {}
    fixed: dict[str, int] = {}
    for b in problem.buffers:
        if b.persistent:
            fixed[b.memory] = fixed.get(b.memory, 0) + b.size
            continue
        need[b.memory] = need.get(b.memory, 0) + b.size * shortest_lifetime(b, within)
    best, reason = 0, ""
    for memory, total in need.items():
        free = problem.memory[memory] - fixed.get(memory, 0)
        bound = -(-total // free) if free > 0 else 0
        if bound > best:
            best, reason = bound, f"the buffers in {memory} live that long on average over its free {free}"
    return best, reason


def shortest_lifetime(b: BufferSpec, within: list[list[int]]) -> int:
    """A buffer's lifetime cannot be shorter: longest path inside one iteration from a writer to a reader, plus its hold."""
    spans = [within[w][r.op] + r.hold for w in b.writers for r in b.readers if r.distance == 0 and within[w][r.op] > NEVER]
    return max([1, *spans])


def _inside_paths(problem: Problem) -> list[list[int]]:
    """Longest paths over edges of distance 0, hand-overs at their cheapest."""
    n = len(problem.ops)
    d = [[NEVER] * n for _ in range(n)]
    out: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    indegree = [0] * n
    for e in problem.edges:
        if e.distance == 0:
            out[e.src].append((e.dst, e.cheapest))
            indegree[e.dst] += 1
    order = [v for v in range(n) if not indegree[v]]
    for v in order:
        for w, _ in out[v]:
            indegree[w] -= 1
            if not indegree[w]:
                order.append(w)
    for s in range(n):
        row = d[s]
        row[s] = 0
        for v in order:
            if row[v] > NEVER:
                for w, cost in out[v]:
                    row[w] = max(row[w], row[v] + cost)
    return d


@dataclass(frozen=True, slots=True)
class Distances:
    """Implied differences at one I: ``low[u][v]`` <= M(v) - M(u); windows [early, late] of every op."""

    low: list[list[int]]
    early: list[int]
    late: list[int]

    def span(self, u: int, v: int) -> tuple[int, int]:
        """Range of M(v) - M(u)."""
        return (max(self.low[u][v], self.early[v] - self.late[u]), min(-self.low[v][u], self.late[v] - self.early[u]))


def distances(problem: Problem, ii: int, length: int, *, plain: bool = False) -> Distances | None:
    """All-pairs longest paths with hand-overs at their cheapest; None if the recurrences alone forbid ``ii``."""
    if (ii, plain) not in problem.paths:
        problem.paths[ii, plain] = _longest_paths(problem, ii, plain)
    low = problem.paths[ii, plain]
    if low is None:
        return None
    n, q = len(problem.ops), problem.unit_cycles
    early = [max(0, max(low[u][v] for u in range(n))) for v in range(n)]
    late = [min((length - problem.ops[w].span) // q * q - low[v][w] for w in range(n) if low[v][w] > NEVER) for v in range(n)]
    return Distances(low, early, late)


def _longest_paths(problem: Problem, ii: int, plain: bool) -> list[list[int]] | None:
    n = len(problem.ops)
    low = [[NEVER] * n for _ in range(n)]
    for v in range(n):
        low[v][v] = 0
    q = problem.unit_cycles
    for e in problem.edges:
        cost = e.cheapest
        if plain:
            pass
        elif problem.separated(e.src, e.dst):
            cost = e.cross
        elif problem.together(e.src, e.dst):
            cost = e.same
        weight = -(-cost // q) * q - e.distance * ii
        low[e.src][e.dst] = max(low[e.src][e.dst], weight)
    for k in range(n):
        through = low[k]
        reached = [v for v in range(n) if through[v] > NEVER]
        for row in low:
            via = row[k]
            if via <= NEVER:
                continue
            for v in reached:
                at = via + through[v]
                if at > row[v]:
                    row[v] = at
    return None if any(low[v][v] > 0 for v in range(n)) else low


def critical_path(problem: Problem, ii: int, *, plain: bool = False) -> int:
    """No schedule with this I can be shorter; a multiple of the time unit.

    ``plain`` takes every hand-over at its cheapest, as the bound in ``docs/formulation.md`` does; otherwise ops that
    rules keep apart or together pay what they must.
    """
    d = distances(problem, ii, 10**8, plain=plain)
    if d is None:
        return 10**9
    q = problem.unit_cycles
    return max(-(-(d.early[v] + problem.ops[v].span) // q) * q for v in range(len(problem.ops)))


def fewest_groups(problem: Problem) -> int:
    """A guess at how few groups may do: a clique of ops that the rules keep apart, or the synchronous work to spread.

    Only steers the search; nothing is concluded from it.
    """
    clique: list[int] = []
    n = len(problem.ops)
    apart = {u: [v for v in range(n) if v != u and problem.separated(u, v)] for u in range(n)}
    for v in sorted(range(n), key=lambda v: -len(apart[v])):
        if all(w in apart[v] for w in clique):
            clique.append(v)
    widest = max(op.warps for op in problem.ops)
    busy = sum(op.issue for op in problem.ops if op.warps == widest) if problem.on("concurrency") else 0
    alone = 1 if problem.on("variable-latency") and any(op.variable for op in problem.ops) else 0
    return max(1, len(clique), alone + -(-busy // lower_bounds(problem).best))


def default_copies(problem: Problem) -> int:
    """Iterations in flight to consider where the user does not say: one more than the critical path needs, at least three."""
    bound = lower_bounds(problem).best
    path = critical_path(problem, bound)
    return 3 if path >= 10**9 else max(3, -(-path // bound) + 1)
