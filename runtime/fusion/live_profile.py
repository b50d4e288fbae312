"""Live bytes along a computation's order, updated while kernels are fused and moved.

A fusion removes the buffer of the fused producer, and keeps the producer's inputs alive until the fused kernel runs. If
the inputs are larger, the live bytes rise between the two positions. They must not exceed the computation's peak. The
figures are as coarse as those of the memory model; exact figures come from planning the memory of both programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from runtime.fusion.fusion_graph import FusionGraph
from runtime.fusion.fusion_kernel import Kernel
from runtime.schedule.memory_model import MemoryModel
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass

_Bytes: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass
class LiveProfile:
    """Live bytes at each position of a kernel graph.

    ``model`` is the memory model of the graph's computation and ``needs`` gives the live bytes at each position before
    any fusion. ``headroom`` is the fraction of the peak that must stay free wherever live bytes rise; at 1.0 live bytes
    must not rise and kernels must not use scratch memory.
    """

    graph: FusionGraph
    model: MemoryModel
    needs: Sequence[int]
    headroom: float = 0.0
    limit: int = field(init=False)
    _live: _Bytes = field(init=False)
    #: For each instruction with a buffer: the last position that reads it, the last such position
    #: outside of kernels, and the kernels that read it.
    _last: dict[HloInstruction, int] = field(default_factory=dict)
    _last_outside: dict[HloInstruction, int] = field(default_factory=dict)
    _readers: dict[HloInstruction, dict[Kernel, None]] = field(default_factory=dict)
    _sources: dict[Kernel, tuple[HloInstruction, ...]] = field(default_factory=dict)
    #: Result that can overwrite each input in the computation's order.
    _overwriter: dict[HloInstruction, HloInstruction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph, model = self.graph, self.model
        read = {x: n for n, one in enumerate(graph.order) for x in model.reads[one]}
        self._overwriter.update(
            {
                target: root
                for root, target in model.overwrites.items()
                if read.get(target, -1) <= graph.position[root]
            }
        )
        self._live = np.array([*self.needs, 0], np.int64)
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
        """Return whether the ``new`` kernels may replace the ``old`` ones. If they may, the profile is updated."""
        if not all(map(self.keeps_in_place_updates, new)):
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

    def keeps_in_place_updates(
        self, kernel: Kernel, also_read: Sequence[HloInstruction] = ()
    ) -> bool:
        """Return whether each result of ``kernel`` that should overwrite an input can still do so.

        It cannot if the kernel reads another element of the input after it writes. ``also_read`` lists values that the
        kernel reads in addition, at any index.
        """
        for root in kernel.roots:
            target = self.model.overwrites.get(root)
            if target is None:
                continue
            if any(target in self.model.sources[x] for x in also_read):
                return False
            readers = [x for x in kernel.inputs if target in self.model.sources[x]]
            if not all(kernel.may_overwrite(root, x) for x in readers):
                return False
        return True

    def may_keep_inputs(self, kernel: Kernel, position: int) -> bool:
        """Return whether the inputs of ``kernel`` may be read until ``position`` instead of its results.

        They may if those kept longer are not larger than the results, and if none of them would have to be copied,
        because another instruction overwrites it in place before.
        """
        longer = [x for x in self._sources_of(kernel) if self._last.get(x, -1) < position]
        is_overwritten = any(
            x in self._overwriter and self._begin(self._overwriter[x]) <= position for x in longer
        )
        results = sum(self.model.size.get(x, 0) for x in kernel.roots)
        return not is_overwritten and sum(map(self._size, longer)) <= results

    def _changes(
        self, old: Sequence[Kernel], new: Sequence[Kernel]
    ) -> tuple[list[_Change], dict[HloInstruction, int]]:
        """Return the changes of live bytes if ``new`` kernels replace ``old`` ones, and the new last reads."""
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
        positions = [kernel.position for kernel in old]
        last: dict[HloInstruction, int] = {}
        for x in touched:
            read, read_now = self._last.get(x, -1), reads_now.get(x, -1)
            if read_now < read:
                read_now = max(read_now, self._last_without(x, old)) if read in positions else read
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
        written = (self.model.overwrites.get(x) for x in touched)
        for target in dict.fromkeys((*written, *touched)):
            if target is None or target not in self._overwriter:
                continue
            root = self._overwriter[target]
            begin, read = self._begin(root), self._last.get(target, -1)
            first, first_now = made_before.get(root, begin), made_now.get(root, begin)
            changes += self._copy(root, first, read, -1)
            changes += self._copy(root, first_now, last.get(target, read), 1)
        return changes, last

    def _copy(self, root: HloInstruction, written: int, read: int, sign: int) -> list[_Change]:
        """Return the change of live bytes by a buffer of ``root``, which does not overwrite its target in place.

        This buffer is needed only if the target is read after ``root`` is written.
        """
        if read <= written:
            return []
        return [_Change(written, len(self.graph.order) + 1, sign * self.model.size[root])]

    def last_read(self, x: HloInstruction, besides: Kernel) -> int:
        """Return the position of the last read of ``x`` by anything but ``besides``, or -1."""
        return self._last_without(x, (besides,))

    def _last_without(self, x: HloInstruction, old: Sequence[Kernel]) -> int:
        """Return the position of the last read of ``x`` by anything but the kernels ``old``, or -1."""
        left = [k.position for k in self._readers.get(x, ()) if k not in old]
        return max([self._last_outside.get(x, -1), *left])

    def _apply(self, changes: Sequence[_Change]) -> bool:
        """Apply the changes, unless live bytes would exceed the limit. Returns whether they were applied."""
        steps: dict[int, int] = {}
        for change in changes:
            steps[change.begin] = steps.get(change.begin, 0) + change.bytes
            steps[change.end] = steps.get(change.end, 0) - change.bytes
        positions = sorted(steps)
        more = 0
        spans = []
        for begin, end in pairwise(positions):
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
        """Return the instructions whose buffers ``kernel`` reads, directly or through views."""
        known = self._sources.get(kernel)
        if known is None:
            sources = self.model.sources
            read = [s for x in kernel.inputs for s in sources[x]]
            found = dict.fromkeys(s for s in read if self._size(s) or s in self._overwriter)
            known = self._sources[kernel] = tuple(found)
        return known

    def _size(self, x: HloInstruction) -> int:
        """Return the bytes of the buffer of ``x``, or 0 if ``x`` overwrites an existing array."""
        return 0 if x in self.model.overwrites else self.model.size.get(x, 0)

    def _begin(self, x: HloInstruction) -> int:
        """Return the position at which ``x`` is computed."""
        kernel = self.graph.kernel_of.get(x)
        return self.graph.position[x] if kernel is None else kernel.position


class _Change(NamedTuple):
    """Change of the live bytes by ``bytes`` at the positions from ``begin`` to before ``end``."""

    begin: int
    end: int
    bytes: int
