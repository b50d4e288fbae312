"""Merge kernels into kernels with several results, which read shared inputs once and save dispatches.

Two kernels become one at the position of one of them. There, all their inputs must have been computed and none of their
results may have been read. Every kernel keeps a position in the graph's order, which remains a valid order of the
computation, so no cycle can arise and none has to be searched for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import TypeAlias

from runtime.fusion.cost.loop_cost import written_block
from runtime.fusion.fusion_graph import FusionGraph
from runtime.fusion.fusion_kernel import Kernel
from runtime.fusion.live_profile import LiveProfile
from spmd.lazy_dataclass import dataclass

#: Largest number of siblings with which one kernel is tried.
MAX_TRIED = 8
#: Largest number of bytes that a kernel may touch to be merged with a kernel with which it shares no input.
SMALL_BYTES = 64 << 10


#: Function (kernel, the kernels that it would replace) -> whether it stays apart.
IsApart: TypeAlias = Callable[[Kernel, Sequence[Kernel]], bool]


def merge_kernels(
    graph: FusionGraph,
    profile: LiveProfile,
    apart: frozenset[Kernel] = frozenset(),
    stays_apart: IsApart | None = None,
    *,
    horizontal: bool,
) -> None:
    """Merge kernels where that saves time, except those that are to stay ``apart``.

    Producers are merged with readers, then kernels that share an input, and then, if ``horizontal``, small kernels.
    stays_apart: decides whether a merged kernel is to stay apart. One that is may have parts that are.
    """
    merger = _Merger(graph, profile, set(apart), stays_apart)
    merger.pass_over(merger.producers)
    merger.pass_over(merger.siblings)
    if horizontal:
        merger.small_ones()


@dataclass
class _Merger:
    """Merging of the kernels of ``graph``, except those ``apart``, as far as ``profile`` allows."""

    graph: FusionGraph
    profile: LiveProfile
    apart: set[Kernel] = field(default_factory=set)
    stays_apart: IsApart | None = None

    def pass_over(self, partners: Callable[[Kernel], Iterator[Kernel]]) -> None:
        """Merge each kernel with its first possible partner, and repeat with the result."""
        done: set[Kernel] = set()
        for kernel in self.graph.kernels:
            current: Kernel | None = kernel if self.is_there(kernel) else None
            while current is not None and current not in done:
                done.add(current)
                current = self.first_merged(current, partners(current))

    def first_merged(self, kernel: Kernel, partners: Iterator[Kernel]) -> Kernel | None:
        """Return ``kernel`` merged with the first possible partner, or None."""
        for partner in list(partners):
            made = self.merge(kernel, partner)
            if made is not None:
                return made
        return None

    def producers(self, kernel: Kernel) -> Iterator[Kernel]:
        """Yield the producers of the kernel's inputs that iterate over equally many indices."""
        for producer in self.graph.producers_of(kernel):
            if _same_points(kernel, producer):
                yield producer

    def siblings(self, kernel: Kernel) -> Iterator[Kernel]:
        """Yield up to ``MAX_TRIED`` kernels that share an input with ``kernel``, the nearest in the order first."""
        found: dict[Kernel, None] = {}
        for x in kernel.inputs:
            readers = self.graph.readers.get(x, {})
            if len(readers) <= 4 * MAX_TRIED:
                found.update(
                    (r, None) for r in readers if r is not kernel and _same_points(kernel, r)
                )
        yield from sorted(found, key=lambda k: (abs(k.position - kernel.position), k.position))[
            :MAX_TRIED
        ]

    def small_ones(self) -> None:
        """Merge kernels of equal dimensions whose dispatch costs more than their work, as those of an optimizer."""
        open_ones: dict[tuple[int, ...], Kernel] = {}
        for kernel in self.graph.kernels:
            if kernel.cost.bytes > SMALL_BYTES or not self.is_there(kernel):
                continue
            dims = written_block(kernel.roots[0]).dims
            before = open_ones.get(dims)
            made = None if before is None else self.merge(before, kernel)
            open_ones[dims] = kernel if made is None else made

    def is_there(self, kernel: Kernel) -> bool:
        """Return whether ``kernel`` is still in the graph."""
        return self.graph.kernel_of.get(kernel.roots[0]) is kernel

    def merge(self, one: Kernel, other: Kernel) -> Kernel | None:
        """Replace two kernels by one, if it saves time and can run at one's position. Returns it, or None."""
        graph = self.graph
        both = (one, other)
        is_apart = one in self.apart or other in self.apart
        if is_apart and self.stays_apart is None:
            return None
        if graph.sides is not None and not graph.sides.may_merge(one.roots, other.roots):
            return None
        first, second = sorted(both, key=lambda kernel: kernel.position)
        for position, possible in (
            (first.position, graph.earliest(second, both) < first.position),
            (second.position, graph.latest(first, both) > second.position),
        ):
            if not possible:
                continue
            made = graph.merged(first, second, position)
            if made is None or made.cost.seconds >= first.cost.seconds + second.cost.seconds:
                return None
            if made.kind.emitter is None:
                return None
            if is_apart and not (self.stays_apart and self.stays_apart(made, both)):
                return None
            if self.profile.allows(both, (made,)):
                graph.replace(both, (made,))
                if is_apart:
                    self.apart.add(made)
                return made
        return None


def _same_points(one: Kernel, other: Kernel) -> bool:
    """Return whether two kernels iterate over equally many indices."""
    return one.kind.points == other.kind.points
