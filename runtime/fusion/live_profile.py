"""Bytes that are live along a computation's order, kept up to date while kernels are fused and moved.

A fusion takes away the buffer of what it fuses, and keeps alive what that one read until the fused kernel runs. Where
the second outweighs the first, bytes rise between the two; they must not rise above what the computation needs at its
peak anyway. Coarse, as the memory model is: who wants to know exactly plans the memory of both programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from runtime.fusion.fusion_graph import FusionGraph, Kernel
from runtime.schedule.memory_model import MemoryModel
from spmd.hlo import HloInstruction

_Bytes: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass
class LiveProfile:
    """Of the kernels of ``graph``, whose computation ``model`` is about.

    headroom: the part of the peak that stays free wherever bytes rise.
    """

    graph: FusionGraph
    model: MemoryModel
    headroom: float = 0.0
    limit: int = field(init=False)
    _live: _Bytes = field(init=False)
    #: By instruction that has a buffer: the last place outside of kernels that reads it, and the kernels that do.
    _last_outside: dict[HloInstruction, int] = field(default_factory=dict)
    _readers: dict[HloInstruction, dict[Kernel, None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph, model = self.graph, self.model
        self._live = np.array([*model.needs(graph.order), 0], np.int64)
        self.limit = int(self._live.max(initial=0) * (1.0 - self.headroom))
        for n, x in enumerate(graph.order):
            if x not in graph.kernel_of:
                self._last_outside.update(dict.fromkeys(model.reads[x], n))
        end = len(graph.order)
        self._last_outside.update(dict.fromkeys(model.sources[graph.computation.root], end))
        for kernel in graph.kernels:
            self._note(kernel)

    def allows(self, old: Sequence[Kernel], new: Sequence[Kernel]) -> bool:
        """Whether ``new`` kernels may take the place of ``old`` ones; if so, they are counted from now on."""
        if not all(map(self._keeps_places, new)):
            return False
        change = np.zeros_like(self._live)
        made_before = {x: kernel.position for kernel in old for x in kernel.roots}
        made_now = {x: kernel.position for kernel in new for x in kernel.roots}
        touched = dict.fromkeys((*made_before, *made_now))
        touched.update((s, None) for kernel in (*old, *new) for s in self._sources(kernel))
        for x in touched:
            size = self._size(x)
            if size:
                begin = self._begin(x)
                last, last_now = self._last_read(x, (), ()), self._last_read(x, old, new)
                change[made_before.get(x, begin) : last + 1] -= size
                if x in made_now or x not in made_before:
                    change[made_now.get(x, begin) : last_now + 1] += size
        after = self._live + change
        if bool((after[change > 0] > self.limit).any()):
            return False
        self._live = after
        for kernel in old:
            for x in self._sources(kernel):
                self._readers[x].pop(kernel, None)
        for kernel in new:
            self._note(kernel)
        return True

    def _keeps_places(self, kernel: Kernel) -> bool:
        """Results that end where something came in are still written there, though the kernel reads that too."""
        for root in kernel.roots:
            place = self.model.overwrites.get(root)
            readers = [x for x in kernel.inputs if place in self.model.sources[x]]
            if not all(kernel.may_overwrite(root, x) for x in readers):
                return False
        return True

    def _note(self, kernel: Kernel) -> None:
        for x in self._sources(kernel):
            self._readers.setdefault(x, {})[kernel] = None

    def _sources(self, kernel: Kernel) -> list[HloInstruction]:
        """Whose memory the inputs show."""
        return list(dict.fromkeys(s for x in kernel.inputs for s in self.model.sources[x]))

    def _size(self, x: HloInstruction) -> int:
        """Nothing, where the result lies in memory that is there anyway."""
        return 0 if x in self.model.overwrites else self.model.size.get(x, 0)

    def _begin(self, x: HloInstruction) -> int:
        kernel = self.graph.kernel_of.get(x)
        return self.graph.position[x] if kernel is None else kernel.position

    def _last_read(
        self, x: HloInstruction, without: Iterable[Kernel], and_by: Iterable[Kernel]
    ) -> int:
        """The place of the last reader of ``x``, leaving some kernels out and adding others."""
        left_out = set(without)
        found = max(self._begin(x), self._last_outside.get(x, -1))
        for reader in self._readers.get(x, ()):
            if reader not in left_out:
                found = max(found, reader.position)
        for kernel in and_by:
            if x in self._sources(kernel):
                found = max(found, kernel.position)
        return found
