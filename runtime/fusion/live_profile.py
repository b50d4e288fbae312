"""Bytes that are live along a computation's order, kept up to date while kernels are fused and moved.

A fusion takes away the buffer of what it fuses, and keeps alive what that one read until the fused kernel runs. Where
the second outweighs the first, bytes rise between the two; they must not rise above what the computation needs at its
peak anyway. Coarse, as the memory model is: who wants to know exactly plans the memory of both programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from runtime.fusion.fusion_graph import FusionGraph
from runtime.fusion.fusion_kernel import Kernel
from runtime.schedule.memory_model import MemoryModel
from spmd.hlo import HloInstruction

_Bytes: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass
class LiveProfile:
    """Of the kernels of ``graph``, whose computation ``model`` is about. needs: bytes alive at each place of its order.

    headroom: the part of the peak that stays free wherever bytes rise; where all of it does, no kernel has scratch.
    """

    graph: FusionGraph
    model: MemoryModel
    needs: InitVar[Sequence[int]]
    headroom: float = 0.0
    limit: int = field(init=False)
    _live: _Bytes = field(init=False)
    #: By instruction that has a buffer: the last place that reads it, the last outside of kernels, the kernels that do.
    _last: dict[HloInstruction, int] = field(default_factory=dict)
    _last_outside: dict[HloInstruction, int] = field(default_factory=dict)
    _readers: dict[HloInstruction, dict[Kernel, None]] = field(default_factory=dict)
    _sources: dict[Kernel, tuple[HloInstruction, ...]] = field(default_factory=dict)

    def __post_init__(self, needs: Sequence[int]) -> None:
        graph, model = self.graph, self.model
        self._live = np.array([*needs, 0], np.int64)
        self.limit = int(self._live.max(initial=0) * (1.0 - self.headroom))
        for n, x in enumerate(graph.order):
            if x not in graph.kernel_of:
                self._last_outside.update(dict.fromkeys(model.reads[x], n))
        end = len(graph.order)
        self._last_outside.update(dict.fromkeys(model.sources[graph.computation.root], end))
        self._last.update(self._last_outside)
        for kernel in graph.kernels:
            for x in self._sources_of(kernel):
                self._readers.setdefault(x, {})[kernel] = None
                self._last[x] = max(self._last.get(x, -1), kernel.position)

    def allows(self, old: Sequence[Kernel], new: Sequence[Kernel]) -> bool:
        """Whether ``new`` kernels may take the place of ``old`` ones; if so, they are counted from now on."""
        if not all(map(self.keeps_places, new)):
            return False
        if self.headroom >= 1.0 and any(kernel.kind.scratch_bytes for kernel in new):
            return False
        changes, last = self._changes(old, new)
        if not self._apply(changes):
            return False
        for kernel in old:
            for x in self._sources.pop(kernel):
                del self._readers[x][kernel]
        for kernel in new:
            for x in self._sources_of(kernel):
                self._readers.setdefault(x, {})[kernel] = None
        self._last.update(last)
        return True

    def keeps_places(self, kernel: Kernel, also_read: Sequence[HloInstruction] = ()) -> bool:
        """Results that end where something came in are still written there, though the kernel reads that too.

        also_read: what else it is to read, all of it before it writes.
        """
        for root in kernel.roots:
            place = self.model.overwrites.get(root)
            if place is None:
                continue
            if any(place in self.model.sources[x] for x in also_read):
                return False
            readers = [x for x in kernel.inputs if place in self.model.sources[x]]
            if not all(kernel.may_overwrite(root, x) for x in readers):
                return False
        return True

    def _changes(
        self, old: Sequence[Kernel], new: Sequence[Kernel]
    ) -> tuple[list[_Change], dict[HloInstruction, int]]:
        """Where buffers begin or end elsewhere than before, and what kernels need for themselves; new last reads."""
        changes = [
            _Change(kernel.position, kernel.position + 1, sign * kernel.kind.scratch_bytes)
            for kernels, sign in ((old, -1), (new, 1))
            for kernel in kernels
            if kernel.kind.scratch_bytes
        ]
        made_before = {x: kernel.position for kernel in old for x in kernel.roots}
        made_now = {x: kernel.position for kernel in new for x in kernel.roots}
        touched = dict.fromkeys((*made_before, *made_now))
        reads_now: dict[HloInstruction, int] = {}
        for kernel in old:
            touched.update(dict.fromkeys(self._sources_of(kernel)))
        for kernel in new:
            for x in self._sources_of(kernel):
                touched[x] = None
                reads_now[x] = max(reads_now.get(x, -1), kernel.position)
        places = [kernel.position for kernel in old]
        last: dict[HloInstruction, int] = {}
        for x in touched:
            read, read_now = self._last.get(x, -1), reads_now.get(x, -1)
            if read_now < read:
                read_now = max(read_now, self._last_without(x, old)) if read in places else read
            if read_now == read and x not in made_before and x not in made_now:
                continue
            last[x], size = read_now, self._size(x)
            if not size:
                continue
            begin = self._begin(x)
            end = max(begin, read) + 1
            first = made_before.get(x, begin)
            if x in made_before and x not in made_now:
                changes.append(_Change(first, end, -size))
                continue
            first_now, end_now = made_now.get(x, begin), max(begin, read_now) + 1
            if first_now != first:
                low, high = sorted((first, first_now))
                changes.append(_Change(low, high, size if first_now < first else -size))
            if end_now != end:
                low, high = sorted((end, end_now))
                changes.append(_Change(low, high, size if end_now > end else -size))
        return changes, last

    def _last_without(self, x: HloInstruction, old: Sequence[Kernel]) -> int:
        """The place of the last read of ``x`` but for those of ``old`` kernels."""
        left = [k.position for k in self._readers.get(x, ()) if k not in old]
        return max([self._last_outside.get(x, -1), *left])

    def _apply(self, changes: Sequence[_Change]) -> bool:
        """Unless bytes rise above the limit anywhere."""
        steps: dict[int, int] = {}
        for change in changes:
            steps[change.begin] = steps.get(change.begin, 0) + change.bytes
            steps[change.end] = steps.get(change.end, 0) - change.bytes
        places = sorted(steps)
        more = 0
        spans = []
        for begin, end in pairwise(places):
            more += steps[begin]
            if not more:
                continue
            live = self._live[begin:end]
            if more > 0 and int(live.max()) + more > self.limit:
                return False
            spans.append((live, more))
        for live, more in spans:
            live += more
        return True

    def _sources_of(self, kernel: Kernel) -> tuple[HloInstruction, ...]:
        """Whose buffers the inputs show."""
        known = self._sources.get(kernel)
        if known is None:
            sources = self.model.sources
            found = dict.fromkeys(s for x in kernel.inputs for s in sources[x] if self._size(s))
            known = self._sources[kernel] = tuple(found)
        return known

    def _size(self, x: HloInstruction) -> int:
        """Nothing, where the result lies in memory that is there anyway."""
        return 0 if x in self.model.overwrites else self.model.size.get(x, 0)

    def _begin(self, x: HloInstruction) -> int:
        kernel = self.graph.kernel_of.get(x)
        return self.graph.position[x] if kernel is None else kernel.position


class _Change(NamedTuple):
    """``bytes`` more, or less, from place ``begin`` up to ``end``."""

    begin: int
    end: int
    bytes: int
