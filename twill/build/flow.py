"""Control flow of a function: basic blocks, loops, and how many instructions a turn of a loop takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import networkx as nx

from twill.build.families import family
from twill.build.sass import Function, Instruction

__all__ = ["Flow", "Loop"]

SPIN_INSTRUCTIONS = 24
"""A loop of waiting is short: the try, a sleep, another try and a branch, with some address arithmetic."""
WORK = frozenset({"mma", "exp", "packed", "convert", "tma", "tensor memory", "shared", "local", "global"})
"""Families of which a loop of waiting has nothing."""
ENDS = ("EXIT", "BRA", "RET", "KILL", "JMP", "BRX", "JMX")


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: its blocks in the order of addresses, and the block that it begins with."""

    head: int
    blocks: tuple[int, ...]


class Flow:
    """Basic blocks of a function and what follows from them. Blocks are numbered by address; block 0 is the entry."""

    def __init__(self, function: Function) -> None:
        self.function = function
        code = function.instructions
        starts = {0, *function.labels.values()} | {i + 1 for i, x in enumerate(code) if x.is_a(*ENDS)}
        self._starts = sorted(i for i in starts if i < len(code))
        self.graph: nx.DiGraph[int] = nx.DiGraph()
        self.graph.add_nodes_from(range(len(self._starts)))
        number = {start: block for block, start in enumerate(self._starts)}
        for block in range(len(self._starts)):
            last = self.instructions(block)[-1]
            # a divergent warp takes the out-of-line path of BRA.DIV; these kernels never diverge there
            targets = () if last.is_a("BRA.DIV") else last.targets
            self.graph.add_edges_from((block, number[function.labels[t]]) for t in targets if function.labels[t] in number)
            if block + 1 < len(self._starts) and (not last.is_a(*ENDS) or _conditional(last)):
                self.graph.add_edge(block, block + 1)
        self._reached = {0, *nx.descendants(self.graph, 0)}

    def instructions(self, block: int) -> tuple[Instruction, ...]:
        """The instructions of a block."""
        end = self._starts[block + 1] if block + 1 < len(self._starts) else len(self.function.instructions)
        return self.function.instructions[self._starts[block] : end]

    @cached_property
    def _dominators(self) -> dict[int, int]:
        return dict(nx.immediate_dominators(self.graph.subgraph(self._reached), 0))

    def dominators(self, block: int) -> Iterator[int]:
        """The blocks that every way to a block goes through, from the block itself back to the entry."""
        while True:
            yield block
            above = self._dominators.get(block, block)
            if above in (block, None):
                return
            block = above

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Natural loops, by the address of their heads; those with the same head are one."""
        bodies: dict[int, set[int]] = {}
        for u, v in self.graph.subgraph(self._reached).edges:
            if v in self.dominators(u):
                body = bodies.setdefault(v, {v})
                body |= self._ways_back(u, v)
        return tuple(Loop(head, tuple(sorted(body))) for head, body in sorted(bodies.items()))

    def _ways_back(self, tail: int, head: int) -> set[int]:
        found, todo = {head}, [tail]
        while todo:
            block = todo.pop()
            if block not in found:
                found.add(block)
                todo.extend(p for p in self.graph.predecessors(block) if p in self._reached)
        return found

    @cached_property
    def spins(self) -> frozenset[int]:
        """Heads of the loops that only wait: for a barrier, or for registers."""

        def waits(loop: Loop) -> bool:
            if any(other is not loop and set(other.blocks) < set(loop.blocks) for other in self.loops):
                return False
            body = [x for b in loop.blocks for x in self.instructions(b)]
            tries = any(_tries(x) or x.is_a("USETMAXREG", "NANOSLEEP") for x in body)
            return len(body) <= SPIN_INSTRUCTIONS and (tries or len(body) <= 2) and not any(map(_works, body))

        return frozenset(loop.head for loop in self.loops if waits(loop))

    @cached_property
    def _retries(self) -> dict[int, frozenset[int]]:
        """Blocks that try a wait once, and where they go from there to a spin that goes on trying."""
        trying = {x.head: set(x.blocks) for x in self.loops if x.head in self.spins and any(map(_tries, self.body(x)))}
        spinning = {block for blocks in trying.values() for block in blocks}
        found = {
            block: frozenset(s for s in self.graph.successors(block) if self._straight_on(s) in trying)
            for block in self._reached - spinning
            if any(map(_tries, self.instructions(block)))
        }
        return {block: ways for block, ways in found.items() if ways}

    @cached_property
    def first_tries(self) -> frozenset[int]:
        """Addresses of waits that are tried once before the spin that goes on trying, which the assembler may move out of the way.

        The spin stands for the wait: the copy in front knows no line of PTX of its own.
        """
        return frozenset([x for x in self.instructions(block) if _tries(x)][-1].address for block in self._retries)

    def _straight_on(self, block: int) -> int:
        """Where a block leads that only prepares something; else the block itself."""
        after: list[int] = list(self.graph.successors(block))
        if (
            block not in self.spins
            and len(after) == 1
            and len(self.instructions(block)) <= 4
            and not any(map(_tries, self.instructions(block)))
        ):
            return after[0]
        return block

    @cached_property
    def _asides(self) -> frozenset[int]:
        """Heads of loops that only calculate, inside of one that issues MMAs and holds no others: a part of its turn, seldom taken."""
        real = [loop for loop in self.loops if loop.head not in self.spins]
        within = {x.head: [y for y in real if set(y.blocks) < set(x.blocks)] for x in real}
        quiet = {x.head for x in real if not any(map(_synchronizes, self.body(x)))}
        around = [x for x in real if any(family(i) == "mma" for i in self.body(x)) and {y.head for y in within[x.head]} <= quiet]
        return frozenset(y.head for x in around for y in within[x.head])

    @cached_property
    def work(self) -> tuple[Loop, ...]:
        """Innermost loops that do something: those that hold no other loop but spins and what is done aside."""
        real = [loop for loop in self.loops if loop.head not in self.spins | self._asides]
        return tuple(x for x in real if not any(y is not x and set(y.blocks) < set(x.blocks) for y in real))

    def body(self, loop: Loop) -> tuple[Instruction, ...]:
        """Every instruction of a loop, once, in the order of a turn: a block comes after those that lead to it, else by address."""
        return tuple(x for b in nx.lexicographical_topological_sort(self._turn_graph(loop)) for x in self.instructions(b))

    def once(self) -> tuple[Instruction, ...]:
        """Every instruction that can be reached, once, in the order of execution, each loop gone through once; without `first_tries`.

        Blocks of which neither leads to the other, those of different roles say, come in the order of their lines of PTX.
        """
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(self._reached)
        graph.add_edges_from((u, v) for u, v in self.graph.subgraph(self._reached).edges if v not in self.dominators(u))
        blocks = nx.lexicographical_topological_sort(graph, key=self._written)
        return tuple(x for b in blocks for x in self.instructions(b) if x.address not in self.first_tries)

    def _written(self, block: int) -> tuple[int, int]:
        """Where a block was written, by the lines of PTX of what synchronizes in it, else of all of it, and its number."""
        code = [x for x in self.instructions(block) if x.line is not None]
        lines = sorted(x.line or 0 for x in (y for y in code if y.is_a("SYNCS", "BAR", "WARPGROUP"))) or sorted(x.line or 0 for x in code)
        return (lines[len(lines) // 2] if lines else 0, block)

    def _turn_graph(self, loop: Loop) -> nx.DiGraph[int]:
        """The loop without the ways back to its head and to the heads of loops in it."""
        inside, heads = set(loop.blocks), {x.head for x in self.loops}
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(inside)
        for u, v in self.graph.edges:
            if u in inside and v in inside and v != loop.head and not (v in heads and v in self.dominators(u)):
                graph.add_edge(u, v)
        return graph

    def turn(self, loop: Loop, longest: bool) -> tuple[Instruction, ...]:
        """The instructions of the shortest or longest way round, with every wait passed at its first try."""
        acyclic = self._turn_graph(loop)
        acyclic.remove_edges_from([(block, way) for block, ways in self._retries.items() for way in ways])
        sign = 1 if longest else -1
        best: dict[int, tuple[int, tuple[int, ...]]] = {loop.head: (sign * len(self.instructions(loop.head)), (loop.head,))}
        for block in nx.topological_sort(acyclic):
            ways = [best[p] for p in acyclic.predecessors(block) if p in best]
            if ways:
                cost, way = max(ways, key=lambda x: x[0])
                best[block] = (cost + sign * len(self.instructions(block)), (*way, block))
        tails = [best[b] for b in loop.blocks if b in best and self.graph.has_edge(b, loop.head)]
        return tuple(x for block in max(tails, key=lambda x: x[0])[1] for x in self.instructions(block))


def _works(x: Instruction) -> bool:
    return family(x) in WORK or x.is_a("SYNCS.ARRIVE")


def _synchronizes(x: Instruction) -> bool:
    return family(x) in ("mma", "tma") or x.is_a("SYNCS", "BAR", "WARPGROUP")


def _tries(x: Instruction) -> bool:
    return x.is_a("SYNCS") and "TRYWAIT" in x.opcode


def _conditional(last: Instruction) -> bool:
    if last.predicate:
        return True
    return last.is_a("BRA") and bool(last.operands.partition("`")[0].strip())
