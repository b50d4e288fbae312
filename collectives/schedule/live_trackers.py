"""Live bytes while an order is made, from its beginning or from its end, one instruction at a time.

Both agree with spmd.analysis.live_bytes on the finished order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spmd.analysis.live_buffers import Buffer, LiveBuffers
from spmd.analysis.live_bytes import reused_bytes
from spmd.hlo.instruction import HloInstruction


class ForwardTracker:
    """Live bytes of an order that is built from its beginning.

    ``need`` returns the bytes that are live while an instruction runs if it is placed next, ``changes`` the buffers
    that become live or dead from there on. ``schedule`` places it.
    """

    def __init__(
        self,
        buffers: LiveBuffers,
        inner: Mapping[HloInstruction, int],
        persistent: Sequence[Buffer],
    ) -> None:
        self._buffers, self._inner = buffers, inner
        self._left = [0] * len(buffers.size)
        for read in buffers.read.values():
            for buffer in read:
                self._left[buffer] += 1
        for buffer in dict.fromkeys((*buffers.returned, *persistent)):
            self._left[buffer] += 1
        self.live = sum(buffers.size[b] for b in buffers.inputs if self._left[b])

    def need(self, x: HloInstruction) -> int:
        written = self._buffers.written[x]
        if not written:
            return self.live + self._inner.get(x, 0)
        size = self._buffers.size
        result = sum([size[b] for b in written])
        if self._buffers.over:
            result -= reused_bytes(self._buffers, written, self._dying(x))
        return self.live + result + self._inner.get(x, 0)

    def schedule(self, x: HloInstruction) -> None:
        size, left = self._buffers.size, self._left
        for buffer in self._buffers.written[x]:
            if left[buffer]:
                self.live += size[buffer]
        for buffer in self._buffers.read[x]:
            left[buffer] -= 1
            if not left[buffer]:
                self.live -= size[buffer]

    def changes(self, x: HloInstruction) -> tuple[list[Buffer], list[Buffer]]:
        return [b for b in self._buffers.written[x] if self._left[b]], self._dying(x)

    def _dying(self, x: HloInstruction) -> list[Buffer]:
        return [b for b in self._buffers.read[x] if self._left[b] == 1]


class BackwardTracker:
    """Live bytes of an order that is built from its end. ``live``: the buffers that the placed nodes need."""

    def __init__(
        self,
        buffers: LiveBuffers,
        inner: Mapping[HloInstruction, int],
        persistent: Sequence[Buffer],
    ) -> None:
        self._buffers, self._inner = buffers, inner
        self._is_live = [False] * len(buffers.size)
        for buffer in (*buffers.returned, *persistent):
            self._is_live[buffer] = True
        self.live = sum(size for b, size in enumerate(buffers.size) if self._is_live[b])

    def need(self, x: HloInstruction) -> int:
        size, is_live = self._buffers.size, self._is_live
        written = self._buffers.written[x]
        dying = [b for b in self._buffers.read[x] if not is_live[b]]
        more = sum([size[b] for b in dying]) + sum([size[b] for b in written if not is_live[b]])
        if written and self._buffers.over:
            more -= reused_bytes(self._buffers, written, dying)
        return self.live + more + self._inner.get(x, 0)

    def changes(self, x: HloInstruction) -> tuple[list[Buffer], list[Buffer]]:
        """Return the buffers that begin and end to be live, seen from the end: those that ``x`` reads begin, those that
        it writes end.
        """
        is_live = self._is_live
        begins = [b for b in self._buffers.read[x] if not is_live[b]]
        return begins, [b for b in self._buffers.written[x] if is_live[b]]

    def schedule(self, x: HloInstruction) -> None:
        size, is_live = self._buffers.size, self._is_live
        for buffer in self._buffers.written[x]:
            if is_live[buffer]:
                is_live[buffer] = False
                self.live -= size[buffer]
        for buffer in self._buffers.read[x]:
            if not is_live[buffer]:
                is_live[buffer] = True
                self.live += size[buffer]
