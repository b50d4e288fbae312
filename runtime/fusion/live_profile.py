"""Bytes that are live along a computation's order, kept up to date while kernels are fused and moved.

A fusion takes away the buffer of what it fuses, and keeps alive what that one read until the fused kernel runs. Where
the second outweighs the first, bytes rise between the two; they must not rise above what the computation needs at its
peak anyway. Coarse, as the memory model is: who wants to know exactly plans the memory of both programs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
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

    headroom: the part of the peak that stays free wherever bytes rise; where all of it does, no kernel has scratch.
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
        if self.headroom >= 1.0 and any(kernel.kind.scratch_bytes for kernel in new):
            return False
        changes = [change for change in self._changes(old, new) if change.begin < change.end]
        if changes and not self._apply(changes):
            return False
        for kernel in old:
            for x in self._sources(kernel):
                self._readers[x].pop(kernel, None)
        for kernel in new:
            self._note(kernel)
        return True

    def _changes(self, old: Sequence[Kernel], new: Sequence[Kernel]) -> Iterator[_Change]:
        """Where buffers begin or end elsewhere than before, and what kernels need for themselves."""
        for kernels, sign in ((old, -1), (new, 1)):
            for kernel in kernels:
                if kernel.kind.scratch_bytes:
                    at, size = kernel.position, sign * kernel.kind.scratch_bytes
                    yield _Change(at, at + 1, size)
        made_before = {x: kernel.position for kernel in old for x in kernel.roots}
        made_now = {x: kernel.position for kernel in new for x in kernel.roots}
        reads_now = [(dict.fromkeys(self._sources(kernel)), kernel.position) for kernel in new]
        touched = dict.fromkeys((*made_before, *made_now))
        for kernel in old:
            touched.update((x, None) for x in self._sources(kernel))
        for sources, _ in reads_now:
            touched.update(sources)
        left_out = set(old)
        for x in touched:
            size = self._size(x)
            if not size:
                continue
            begin = self._begin(x)
            others = self._last_read(x, begin, left_out)
            last = max((k.position for k in old if k in self._readers.get(x, ())), default=others)
            end = max(others, last) + 1
            first = made_before.get(x, begin)
            if x in made_before and x not in made_now:
                yield _Change(first, end, -size)
                continue
            ends = [position for sources, position in reads_now if x in sources]
            first_now, end_now = made_now.get(x, begin), max(others, *ends, 0) + 1
            yield _Change(
                min(first, first_now), max(first, first_now), _sign(first - first_now) * size
            )
            yield _Change(min(end, end_now), max(end, end_now), _sign(end_now - end) * size)

    def _apply(self, changes: Sequence[_Change]) -> bool:
        """Unless bytes rise above the limit anywhere."""
        begin, end = min(c.begin for c in changes), max(c.end for c in changes)
        sum_of = np.zeros(end - begin, np.int64)
        for change in changes:
            sum_of[change.begin - begin : change.end - begin] += change.bytes
        after = self._live[begin:end] + sum_of
        if bool((after[sum_of > 0] > self.limit).any()):
            return False
        self._live[begin:end] = after
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

    def _last_read(self, x: HloInstruction, begin: int, left_out: Collection[Kernel]) -> int:
        """The place of the last reader of ``x``, which begins at ``begin``; some kernels do not count."""
        found = max(begin, self._last_outside.get(x, -1))
        for reader in self._readers.get(x, ()):
            if reader not in left_out:
                found = max(found, reader.position)
        return found


@dataclass(frozen=True, slots=True)
class _Change:
    """``bytes`` more, or less, from place ``begin`` up to ``end``."""

    begin: int
    end: int
    bytes: int


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
