"""Lower bound of the seconds of a step whose kernels and collectives may be split into pieces and reordered.

Dependencies cause idle times that max(compute, communication) does not include: a gradient cannot be sent before it is
computed. For each kernel and collective this module computes

    head    the seconds until its first piece can begin
    tail    the seconds that its dependents take after its last piece

and then, for each resource, the earliest time at which all its work can be complete (one_machine.py). A split node has
equal pieces. A piece needs the corresponding pieces of operands that are split along the same dimension, and the whole
of other operands. Pieces therefore flow through a chain of instructions that can be split along one dimension; a
product that sums over that dimension, or reads all of it, ends the chain. The bound assumes that each instruction is
split in the best way for each of its readers and that splitting has no cost, so that no pass can do better.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import field

from collectives.cost.estimator import Estimator
from collectives.simulate.cut_graph import COMPUTE, CutGraph, Node
from collectives.simulate.one_machine import Job, least_end
from collectives.simulate.program import program_of
from collectives.simulate.remembered import RememberedEstimator
from spmd.hlo import HloModule
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LeastStep:
    """Lower bound of the seconds of a step, for any order of the program's pieces.

    what: the resource that limits it, or "critical path".
    idle: seconds of the step in which that resource (for a path, the busiest resource) is idle.
    waiting: seconds of the step if nothing overlaps.
    pieces: largest number of pieces of a node.
    """

    seconds: float
    what: str
    idle: float
    waiting: float
    pieces: int

    @property
    def hideable(self) -> float:
        """Return the most seconds that overlap can save, compared with a step in which nothing overlaps."""
        return max(self.waiting - self.seconds, 0.0)

    def hidden(self, seconds: float) -> float:
        """Return how much of ``hideable`` is hidden in a step of ``seconds`` seconds.

        Passes that overlap collectives may also make kernels faster; that counts as nothing here.
        """
        return min(max(self.waiting - seconds, 0.0), self.hideable)


def least_step(
    module: HloModule,
    estimator: Estimator,
    busy: Mapping[str, float] | None = None,
) -> LeastStep:
    """Return the least step of a scheduled ``module`` whose collectives are unsplit.

    busy: by exchange, the fraction of the processors that transfers occupy if they fully use it.

    Raises UnsupportedError and CostError as ``program_of`` does.
    """
    asked = RememberedEstimator(estimator)
    graph = CutGraph.of(module.entry, asked, program_of(module, [asked]).branches)
    earliest, remaining = EarliestTimes.of(graph), RemainingTimes.of(graph)
    jobs: dict[str, list[Job]] = defaultdict(list)
    work: dict[str, float] = defaultdict(float)
    waiting = 0.0
    for task in graph.tasks:
        head = min(earliest.begin[n] for n in task.nodes)
        tail = min(remaining.after[n] for n in task.nodes)
        for resource, seconds in task.uses:
            jobs[resource].append(Job(head, task.times * seconds, tail))
            work[resource] += task.times * seconds
        waiting += task.times * task.seconds
    taken = sum((busy or {}).get(name, 0.0) * seconds for name, seconds in work.items())
    found = [(least_end(those), name) for name, those in jobs.items()]
    found.append((work.get(COMPUTE, 0.0) + taken, COMPUTE))
    found.append((max(earliest.end, default=0.0), "critical path"))
    seconds, what = max(found, key=lambda one: one[0])
    idle = seconds - work.get(what, max(work.values(), default=0.0))
    return LeastStep(seconds, what, max(idle, 0.0), waiting, graph.pieces)


@dataclass
class EarliestTimes:
    """Earliest times of nodes, in seconds from the beginning of the step.

    begin: when a node's first piece can begin.
    end: when all of a node can be complete.
    first: by dimension along which it is split, when a node's first piece can be complete.
    """

    begin: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    first: list[dict[int, float]] = field(default_factory=list)

    @staticmethod
    def of(graph: CutGraph) -> EarliestTimes:
        found = EarliestTimes()
        for node in graph.nodes:
            found._add(node)
        return found

    def _add(self, node: Node) -> None:
        all_there = max((self.end[n] for n in node.reads), default=0.0)
        begin, last = all_there, node.seconds
        first: dict[int, float] = {}
        for cut in node.cuts:
            ready = max(map(self._ready, node.reads, cut.along.operands), default=0.0)
            begin, last = min(begin, ready), min(last, cut.last)
            dim = cut.along.result
            if dim is not None:
                first[dim] = min(ready + cut.first, first.get(dim, math.inf))
        end = max(begin + node.seconds, all_there + last)
        self.begin.append(begin)
        self.end.append(end)
        self.first.append({dim: at for dim, at in first.items() if at < end})

    def _ready(self, node: int, dim: int | None) -> float:
        """Return when the first piece of ``node`` along ``dim`` can be complete; if None, when all of it can."""
        return self.end[node] if dim is None else self.first[node].get(dim, self.end[node])


@dataclass
class RemainingTimes:
    """Least remaining seconds of the step after a node, for any way to split its readers.

    unsplit: after the complete node, if no reader is split.
    pieces: by dimension along which it is split, after the node's last piece.
    after: the minimum of these.
    """

    unsplit: list[float]
    pieces: list[dict[int, float]]
    after: list[float]

    @staticmethod
    def of(graph: CutGraph) -> RemainingTimes:
        count = len(graph.nodes)
        found = RemainingTimes([0.0] * count, [{} for _ in range(count)], [0.0] * count)
        readers: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        for n in reversed(range(count)):
            found._set(
                n,
                [
                    (reader, operand_index, graph.nodes[reader])
                    for reader, operand_index in readers[n]
                ],
            )
            for operand_index, source in enumerate(graph.nodes[n].reads):
                readers[source].append((n, operand_index))
        return found

    def _set(self, n: int, readers: list[tuple[int, int, Node]]) -> None:
        uncut = [node.seconds + self.after[reader] for reader, _, node in readers]
        cut = [
            self._after_cut(reader, operand_index, node, otherwise)
            for (reader, operand_index, node), otherwise in zip(readers, uncut, strict=True)
        ]
        self.unsplit[n] = max(uncut, default=0.0)
        for dim in {dim for one in cut for dim in one}:
            self.pieces[n][dim] = max(map(lambda one, rest: one.get(dim, rest), cut, uncut))
        self.after[n] = min([self.unsplit[n], *self.pieces[n].values()])

    def _after_cut(
        self, reader: int, operand_index: int, node: Node, otherwise: float
    ) -> dict[int, float]:
        """Return the least time after the last piece of operand ``operand_index``, which ``node`` makes, by the
        dimension along which it is split.
        """
        found: dict[int, float] = {}
        for cut in node.cuts:
            dim, made = cut.along.operands[operand_index], cut.along.result
            if dim is None:
                continue
            if made is None:
                then = self.after[reader]
            else:
                then = self.pieces[reader].get(made, self.unsplit[reader])
            found[dim] = min(found.get(dim, otherwise), cut.last + then)
        return found
