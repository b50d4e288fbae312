"""Take a value from the host (infeed), or give it one (outfeed)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.arrays.host_feed import FeedSite
from runtime.buffers.types import ArrayView
from runtime.program.thunks.thunk import BufferUse, Role, Thunk, UseKind, uses


@dataclass(frozen=True)
class InfeedThunk(Thunk):
    """Write the next value that the host feeds this device."""

    site: FeedSite
    results: tuple[ArrayView, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield from uses(UseKind.WRITE, Role.RESULT, self.results)


@dataclass(frozen=True)
class OutfeedThunk(Thunk):
    """Give the host a value of this device."""

    site: FeedSite
    operands: tuple[ArrayView, ...]

    def buffer_uses(self) -> Iterator[BufferUse]:
        yield from uses(UseKind.READ, Role.OPERAND, self.operands)
