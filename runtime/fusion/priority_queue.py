"""Fuse elementwise regions, and then producers into all of their readers, in the order of the time that this saves."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import field

from runtime.fusion.fusion_graph import FusionGraph
from runtime.fusion.fusion_kernel import Kernel
from runtime.fusion.live_profile import LiveProfile
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass

#: Largest number of readers into which a producer is copied.
MAX_READERS = 16
#: Least saving that justifies duplicating a producer, as a fraction of the kernels' time. Less is noise.
WORTH = 1e-3
#: Bound on the rounding error of a saving, as a fraction of the kernels' time.
ROUNDING = 1e-9


@dataclass(slots=True)
class _Candidate:
    """Candidate fusion of ``producer`` into all ``readers``.

    The fused cost with the ``unknown`` ones is not known yet.
    """

    producer: Kernel
    readers: list[Kernel]
    unknown: list[Kernel]


def fuse_producers(
    graph: FusionGraph,
    profile: LiveProfile,
    unfused: frozenset[HloInstruction] = frozenset(),
    *,
    duplicate: bool,
) -> None:
    """Fuse producers into their readers, except those of a result that stays ``unfused``.

    A producer of several readers is fused only if ``duplicate``. A heap holds the candidates by an upper bound on the
    time that they save. The exact cost of a candidate is computed only when it reaches the top of the heap, since most
    candidates change before; it is then pushed again. Candidates are also pushed again when one of their kernels
    changes, and stale heap entries are skipped. A graph of n kernels of bounded degree therefore takes O(n log n) time.
    """
    _Queue(graph, profile, MAX_READERS if duplicate else 1, unfused).run()


def fuse_regions(graph: FusionGraph, profile: LiveProfile) -> None:
    """Fuse each elementwise result with the instructions that are computed for it alone, at the result's own indices.

    This saves time on any machine, so it is done before candidates are compared. Kernels that a reduction or a product
    may compute as its epilogue are left to that comparison.
    """
    for kernel in reversed(graph.kernels):
        if graph.kernel_of.get(kernel.roots[0]) is not kernel or graph.may_be_epilogue(kernel):
            continue
        region = _region(graph, kernel)
        while len(region) > 1:
            made = graph.kernel_of_region(region)
            if made is not None and profile.allows(region, [made]):
                graph.replace(region, [made])
                break
            # Readers come first, so every prefix of a region is a region.
            region = region[: len(region) // 2]


def _region(graph: FusionGraph, last: Kernel) -> list[Kernel]:
    """Return ``last`` and the kernels whose every element only kernels of the region read, at the element's own index.

    Readers come first. The region has at most as many kernels as one kernel may have instructions.
    """
    region = {last: None}
    heap: list[tuple[int, int, Kernel]] = []
    waiting: set[Kernel] = set()

    def visit(kernel: Kernel) -> None:
        for producer in graph.producers_of(kernel):
            if producer not in waiting:
                waiting.add(producer)
                heapq.heappush(heap, (-producer.position, len(waiting), producer))

    visit(last)
    while heap and len(region) < graph.limits.instructions:
        _, _, producer = heapq.heappop(heap)
        if graph.is_read_in_place(producer, region) and not graph.may_be_epilogue(producer):
            region[producer] = None
            visit(producer)
    return [*region]


@dataclass
class _Queue:
    """Priority queue of candidate fusions.

    An entry of ``heap`` is (-seconds saved, position of the producer, number of the candidate).
    """

    graph: FusionGraph
    profile: LiveProfile
    most_readers: int
    unfused: frozenset[HloInstruction]
    heap: list[tuple[float, int, int]] = field(default_factory=list)
    current: dict[int, _Candidate] = field(default_factory=dict)
    number_of: dict[Kernel, int] = field(default_factory=dict)
    refused: set[tuple[Kernel, Kernel]] = field(default_factory=set)
    _next: int = 0

    def run(self) -> None:
        """Fuse until no candidate saves time."""
        for kernel in self.graph.kernels:
            self.consider(kernel)
        while self.heap:
            _, _, number = heapq.heappop(self.heap)
            candidate = self.current.pop(number, None)
            if candidate is None:
                continue
            if candidate.unknown:
                self.graph.joined(candidate.producer, candidate.unknown[0])
                self.consider(candidate.producer)
            else:
                self.fuse(candidate)

    def consider(self, producer: Kernel) -> None:
        """Replace the candidate of ``producer`` by a new one if that may save time; otherwise remove it."""
        self.forget(producer)
        readers = self.readers(producer)
        if not readers:
            return
        unknown = []
        before = after = 0.0
        for reader in readers:
            before += reader.cost.seconds
            if self.graph.is_tried(producer, reader):
                spec = self.graph.joined(producer, reader)
                if spec is None:
                    return
                after += spec.cost.seconds
            else:
                after += least_seconds(producer, reader)
                unknown.append(reader)
        before += producer.cost.seconds
        saved = before - after
        if unknown:
            saved += ROUNDING * before
        if saved > (WORTH * before if len(readers) > 1 else 0.0):
            self._next += 1
            candidate = _Candidate(producer, readers, unknown)
            self.number_of[producer], self.current[self._next] = self._next, candidate
            heapq.heappush(self.heap, (-saved, producer.position, self._next))

    def forget(self, producer: Kernel) -> None:
        """Remove the candidate of ``producer``, if it has one."""
        self.current.pop(self.number_of.pop(producer, -1), None)

    def readers(self, producer: Kernel) -> list[Kernel]:
        """Return all readers of ``producer`` if it may be fused into every one of them; otherwise an empty list."""
        graph = self.graph
        if not self.unfused.isdisjoint(producer.roots):
            return []
        if graph.is_read_outside(producer) or graph.most_readers(producer) > self.most_readers:
            return []
        readers = graph.readers_of(producer)
        if len(readers) > self.most_readers or any((producer, x) in self.refused for x in readers):
            return []
        return readers

    def fuse(self, candidate: _Candidate) -> None:
        """Carry out ``candidate`` if every new kernel has an emitter and memory allows it."""
        producer = candidate.producer
        made = []
        for reader in candidate.readers:
            spec = self.graph.joined(producer, reader)
            if spec is None or spec.kind.emitter is None:
                self.refused.add((producer, reader))
                return
            made.append(spec)
        old = (producer, *candidate.readers)
        fused = [
            spec.kernel(producer, reader, reader.position)
            for reader, spec in zip(candidate.readers, made, strict=True)
        ]
        if not self.profile.allows(old, fused):
            return
        touched = self.neighbours(old)
        for kernel in old:
            self.forget(kernel)
        self.graph.replace(old, fused)
        for kernel in touched:
            if kernel not in old:
                self.consider(kernel)
        for kernel in fused:
            self.consider(kernel)

    def neighbours(self, kernels: Iterable[Kernel]) -> list[Kernel]:
        """Return the kernels that produce inputs of ``kernels``, whose candidates a fusion of these changes."""
        return list(dict.fromkeys(p for kernel in kernels for p in self.graph.producers_of(kernel)))


def least_seconds(producer: Kernel, reader: Kernel) -> float:
    """Return a lower bound on the seconds of ``reader`` with ``producer`` computed inside it.

    A reduction keeps its loops when it is fused, so if ``producer`` reduces, the bound is that of ``producer``.
    """
    return (producer if producer.kind.reduces else reader).cost.least
