"""Fuse producers into all of their readers, the one that saves most time first."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from runtime.fusion.fusion_graph import FusionGraph
from runtime.fusion.fusion_kernel import Kernel, Recipe
from runtime.fusion.live_profile import LiveProfile

#: Readers that a producer is copied into at most.
MAX_READERS = 16
#: Savings below this part of what the kernels take are noise, for which nothing is computed twice.
WORTH = 1e-3


@dataclass(slots=True)
class _Candidate:
    """``producer`` is to be computed in its readers; ``made`` says how each of these is made then."""

    producer: Kernel
    readers: list[Kernel]
    made: list[Recipe]
    saved: float


def fuse_producers(graph: FusionGraph, profile: LiveProfile, *, duplicate: bool = True) -> int:
    """How many producers went into their readers. duplicate: into several, too.

    A heap of candidates by time saved. A candidate is found again when a kernel in it has changed; stale entries of the
    heap are left where they are and passed over, so that a graph of n kernels of bounded degree takes n log n.
    """
    return _Queue(graph, profile, MAX_READERS if duplicate else 1).run()


@dataclass
class _Queue:
    graph: FusionGraph
    profile: LiveProfile
    most_readers: int
    heap: list[tuple[float, int, int]] = field(default_factory=list)
    current: dict[int, _Candidate] = field(default_factory=dict)
    number_of: dict[Kernel, int] = field(default_factory=dict)
    refused: set[tuple[Kernel, Kernel]] = field(default_factory=set)
    _next: int = 0

    def run(self) -> int:
        for kernel in self.graph.kernels:
            self.consider(kernel)
        fused = 0
        while self.heap:
            _, _, number = heapq.heappop(self.heap)
            candidate = self.current.pop(number, None)
            if candidate is not None and self.take(candidate):
                fused += 1
        return fused

    def consider(self, producer: Kernel) -> None:
        """Put its candidate, if there is one, in the place of an earlier one."""
        self.forget(producer)
        candidate = self.candidate(producer)
        if candidate is None:
            return
        self._next += 1
        self.number_of[producer], self.current[self._next] = self._next, candidate
        heapq.heappush(self.heap, (-candidate.saved, producer.position, self._next))

    def forget(self, producer: Kernel) -> None:
        self.current.pop(self.number_of.pop(producer, -1), None)

    def candidate(self, producer: Kernel) -> _Candidate | None:
        graph = self.graph
        if graph.is_read_outside(producer) or graph.most_readers(producer) > self.most_readers:
            return None
        readers = graph.readers_of(producer)
        if not 0 < len(readers) <= self.most_readers:
            return None
        made = []
        before = after = 0.0
        for reader in readers:
            recipe = None if (producer, reader) in self.refused else graph.joined(producer, reader)
            if recipe is None or recipe.kind.cost is None:
                return None
            made.append(recipe)
            before += reader.cost.seconds
            after += recipe.kind.cost.seconds
        before += producer.cost.seconds
        saved = before - after
        if saved <= (WORTH * before if len(readers) > 1 else 0.0):
            return None
        return _Candidate(producer, readers, made, saved)

    def take(self, candidate: _Candidate) -> bool:
        """Fuse, if there is an emitter for every kernel and memory allows it."""
        producer = candidate.producer
        for reader, recipe in zip(candidate.readers, candidate.made, strict=True):
            if recipe.kind.emitter is None:
                self.refused.add((producer, reader))
                return False
        old = (producer, *candidate.readers)
        fused = [
            recipe.kernel(producer, reader, reader.position)
            for reader, recipe in zip(candidate.readers, candidate.made, strict=True)
        ]
        if not self.profile.allows(old, fused):
            return False
        touched = self.neighbours(old)
        for kernel in old:
            self.forget(kernel)
        self.graph.replace(old, fused)
        for kernel in touched:
            if kernel not in old:
                self.consider(kernel)
        for kernel in fused:
            self.consider(kernel)
        return True

    def neighbours(self, kernels: Iterable[Kernel]) -> list[Kernel]:
        """Who produces for them: their candidates have changed."""
        return list(dict.fromkeys(p for kernel in kernels for p in self.graph.producers_of(kernel)))
